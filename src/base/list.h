/*
 * An intrusive doubly linked list. A node belongs to at most one list; a node that is in none
 * points to itself, so removing twice is harmless. The list owns nothing.
 */
#ifndef FAILSOFT_BASE_LIST_H
#define FAILSOFT_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list_node {
    struct list_node *prev;
    struct list_node *next;
};

#define LIST_ENTRY(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

/* Walks the list; the current node may be removed in the body. */
#define LIST_FOR_EACH(pos, head)                                                                   \
    for (struct list_node *pos = (head)->next, *pos##_next = pos->next; pos != (head);             \
         pos = pos##_next, pos##_next = pos->next)

static inline void list_init(struct list_node *head)
{
    head->prev = head;
    head->next = head;
}

static inline bool list_is_empty(const struct list_node *head)
{
    return head->next == head;
}

static inline void list_remove(struct list_node *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

static inline void list_push_back(struct list_node *head, struct list_node *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

static inline void list_push_front(struct list_node *head, struct list_node *node)
{
    list_push_back(head->next, node);
}

#endif
