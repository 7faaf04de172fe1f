/* The intrusive list: order, removal in a walk, removing twice. */
#include "tests/unit/unit.h"

#include "base/list.h"

struct item {
    int number;
    struct list_node node;
};

static void expect(struct list_node *head, const int *numbers, size_t count)
{
    size_t i = 0;
    LIST_FOR_EACH(pos, head)
    {
        assert_true(i < count);
        assert_int_equal(LIST_ENTRY(pos, struct item, node)->number, numbers[i]);
        i++;
    }
    assert_int_equal(i, count);
    /* Backwards it is the same list. */
    for (struct list_node *pos = head->prev; pos != head; pos = pos->prev)
        assert_int_equal(LIST_ENTRY(pos, struct item, node)->number, numbers[--i]);
    assert_int_equal(i, 0);
    assert_int_equal(list_is_empty(head), count == 0);
}

static void order_and_removal(void **state)
{
    (void)state;
    struct list_node head;
    struct item items[5];
    list_init(&head);
    expect(&head, NULL, 0);
    for (int i = 0; i < 5; i++)
        items[i].number = i;
    list_push_back(&head, &items[1].node);
    list_push_back(&head, &items[2].node);
    list_push_front(&head, &items[0].node);
    list_push_back(&head, &items[3].node);
    list_push_back(&head, &items[4].node);
    expect(&head, (int[]){0, 1, 2, 3, 4}, 5);

    /* The current node may go while the list is walked: first, middle, last. */
    LIST_FOR_EACH(pos, &head)
    {
        if (LIST_ENTRY(pos, struct item, node)->number % 2 == 0)
            list_remove(pos);
    }
    expect(&head, (int[]){1, 3}, 2);

    /* Removing twice is harmless, and a removed node can join again. */
    list_remove(&items[0].node);
    list_remove(&items[1].node);
    list_remove(&items[1].node);
    list_push_back(&head, &items[0].node);
    expect(&head, (int[]){3, 0}, 2);

    LIST_FOR_EACH(pos, &head)
    list_remove(pos);
    expect(&head, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(order_and_removal)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
