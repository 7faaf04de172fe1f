/*
 * The tree: anchors work, bombs and towers do not.
 */
#include "unit.h"

#include "config/document.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int parse(const char *text, struct arena *a, struct config_report *report,
                 struct document_node **root)
{
    *root = NULL;
    config_report_init(report);
    return document_parse(a, text, strlen(text), report, root);
}

static void test_tree(void **state)
{
    struct arena a = {NULL};
    struct config_report report;
    struct document_node *root;

    (void)state;
    assert_int_equal(parse("a: [x, 'y']\nb:\n  c: |\n    text\n", &a, &report, &root), 0);
    assert_int_equal(root->kind, DOCUMENT_KIND_MAP);
    assert_int_equal(root->count, 2);
    assert_string_equal(root->keys[1]->text, "b");
    assert_int_equal(root->items[0]->kind, DOCUMENT_KIND_LIST);
    assert_false(root->items[0]->items[0]->quoted);
    assert_true(root->items[0]->items[1]->quoted);
    assert_string_equal(root->items[1]->items[0]->text, "text\n");
    assert_int_equal(root->items[0]->items[1]->mark.line, 1);
    assert_int_equal(root->items[0]->items[1]->mark.column, 8);
    config_report_free(&report);
    arena_free(&a);
}

static void test_anchor(void **state)
{
    struct arena a = {NULL};
    struct config_report report;
    struct document_node *root;

    (void)state;
    assert_int_equal(parse("a: &q { length: 4 }\nb: *q\n", &a, &report, &root), 0);
    assert_ptr_equal(root->items[0], root->items[1]);
    config_report_free(&report);
    arena_free(&a);
}

/* Nine levels of nine aliases each: 387 million values in a few hundred bytes. */
static void test_alias_bomb(void **state)
{
    struct arena a = {NULL};
    struct config_report report;
    struct document_node *root;
    char text[1024];
    size_t len = 0;

    (void)state;
    len += (size_t)snprintf(text, sizeof(text), "a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for (int i = 1; i < 9; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len,
                                "a%d: &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d]\n", i, i,
                                i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1);
    assert_int_equal(parse(text, &a, &report, &root), -EINVAL);
    assert_int_equal(report.count, 1);
    assert_non_null(strstr(report.items[0].message, "more than 10000 values"));
    config_report_free(&report);
    arena_free(&a);
}

static void test_tower(void **state)
{
    struct arena a = {NULL};
    struct config_report report;
    struct document_node *root;
    char text[DOCUMENT_MAX_DEPTH * 4];

    (void)state;
    memset(text, '[', sizeof(text));
    text[DOCUMENT_MAX_DEPTH + 1] = '\0';
    assert_int_equal(parse(text, &a, &report, &root), -EINVAL);
    assert_string_equal(report.items[0].message, "nested deeper than 32 levels");
    assert_int_equal(report.items[0].column, DOCUMENT_MAX_DEPTH + 1);
    config_report_free(&report);
    arena_free(&a);
    memset(text + DOCUMENT_MAX_DEPTH, ']', DOCUMENT_MAX_DEPTH);
    text[2 * DOCUMENT_MAX_DEPTH] = '\0';
    assert_int_equal(parse(text, &a, &report, &root), 0);
    config_report_free(&report);
    arena_free(&a);
}

static void test_many_anchors(void **state)
{
    struct arena a = {NULL};
    struct config_report report;
    struct document_node *root;
    char text[2048] = "[";
    size_t len = 1;

    (void)state;
    for (int i = 0; i <= DOCUMENT_MAX_ANCHORS; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "&a%d x,", i);
    snprintf(text + len, sizeof(text) - len, "]");
    assert_int_equal(parse(text, &a, &report, &root), -EINVAL);
    assert_string_equal(report.items[0].message, "more than 64 anchors");
    config_report_free(&report);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tree),         cmocka_unit_test(test_anchor),
        cmocka_unit_test(test_alias_bomb),   cmocka_unit_test(test_tower),
        cmocka_unit_test(test_many_anchors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
