/*
 * The list of problems of one configuration, bounded, on the heap of its caller.
 */
#include "config/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void config_report_init(struct config_report *report)
{
    memset(report, 0, sizeof(*report));
}

void config_report_free(struct config_report *report)
{
    if (!report)
        return;
    for (size_t i = 0; i < report->count; i++)
        free(report->items[i].message);
    free(report->items);
    free(report->path);
    config_report_init(report);
}

static struct config_problem *report_grow(struct config_report *report)
{
    struct config_problem *items;

    if (report->count >= CONFIG_REPORT_MAX)
        return NULL;
    items = realloc(report->items, (report->count + 1) * sizeof(*items));
    if (!items)
        return NULL;
    report->items = items;
    return &items[report->count];
}

/* Names from the file stand in messages: no control character of theirs reaches a terminal. */
static void make_printable(char *message)
{
    for (unsigned char *p = (unsigned char *)message; *p; p++) {
        if (*p < 0x20 || *p == 0x7f)
            *p = '?';
    }
}

void config_report_add(struct config_report *report, enum config_severity severity,
                       struct config_mark mark, const char *format, ...)
{
    struct config_problem *p;
    char *message = NULL;
    va_list ap;

    if (severity == CONFIG_SEVERITY_ERROR)
        report->errors++;
    else
        report->warnings++;
    va_start(ap, format);
    if (vasprintf(&message, format, ap) < 0)
        message = NULL;
    va_end(ap);
    if (message)
        make_printable(message);
    p = message ? report_grow(report) : NULL;
    if (!p) {
        free(message);
        report->truncated = true;
        return;
    }
    *p = (struct config_problem){
        .severity = severity, .line = mark.line, .column = mark.column, .message = message};
    report->count++;
}

static bool comes_after(const struct config_problem *a, const struct config_problem *b)
{
    if (a->line != b->line)
        return a->line > b->line;
    return a->column > b->column;
}

void config_report_sort(struct config_report *report)
{
    /* Insertion: stable, at most CONFIG_REPORT_MAX entries, nearly in order already. */
    for (size_t i = 1; i < report->count; i++) {
        struct config_problem moved = report->items[i];
        size_t j = i;

        while (j > 0 && comes_after(&report->items[j - 1], &moved)) {
            report->items[j] = report->items[j - 1];
            j--;
        }
        report->items[j] = moved;
    }
}
