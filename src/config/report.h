/* Adding to a report of problems. Private to config/. */
#ifndef FAILSOFT_CONFIG_REPORT_H
#define FAILSOFT_CONFIG_REPORT_H

#include "config/config.h"

/*
 * Adds one problem. What does not fit (CONFIG_REPORT_MAX, or no memory) is counted, not kept, so
 * that an error is never lost from the verdict.
 */
void config_report_add(struct config_report *report, enum config_severity severity,
                       struct config_mark mark, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#define config_report_error(report, mark, ...)                                                     \
    config_report_add(report, CONFIG_SEVERITY_ERROR, mark, __VA_ARGS__)
#define config_report_warning(report, mark, ...)                                                   \
    config_report_add(report, CONFIG_SEVERITY_WARNING, mark, __VA_ARGS__)

/* Puts the problems in the order of the file, equal places in the order they were found. */
void config_report_sort(struct config_report *report);

#endif
