/*
 * The log: one line an event to stderr, `time level area: text`. A line is written with one
 * write(2), so lines of several threads never mix. Libraries return errors; the top layers log.
 */
#ifndef FAILSOFT_BASE_LOG_H
#define FAILSOFT_BASE_LOG_H

enum log_level {
    LOG_LEVEL_ERROR = 0,
    LOG_LEVEL_WARNING,
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG,
};

/* Lines above this level are dropped. Default: LOG_LEVEL_INFO. */
void log_set_level(enum log_level level);
enum log_level log_get_level(void);

/*
 * Writes one line; longer than 4 KiB is cut with "…". Control characters and line breaks in the
 * text are written as \xNN, so that nothing a client or worker sends can forge a line.
 */
void log_write(enum log_level level, const char *area, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define log_error(area, ...)   log_write(LOG_LEVEL_ERROR, area, __VA_ARGS__)
#define log_warning(area, ...) log_write(LOG_LEVEL_WARNING, area, __VA_ARGS__)
#define log_info(area, ...)    log_write(LOG_LEVEL_INFO, area, __VA_ARGS__)
/* Checked first, because debug lines stand in hot paths. */
#define log_debug(area, ...)                                                                       \
    do {                                                                                           \
        if (log_get_level() >= LOG_LEVEL_DEBUG)                                                    \
            log_write(LOG_LEVEL_DEBUG, area, __VA_ARGS__);                                         \
    } while (0)

#endif
