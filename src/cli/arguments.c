/*
 * Reading arguments, the same way for every command.
 */
#include "cli/cli.h"

#include "config/config.h"
#include "config/words.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct flag_walk {
    const struct cli_flag *next;
};

static const char *flag_next(void *ctx)
{
    struct flag_walk *walk = ctx;

    return walk->next->name ? (walk->next++)->name : NULL;
}

static int complain(const struct cli_arguments *a, const char *what, const char *arg,
                    const char *meant, int *ret_exit)
{
    char quoted[WORDS_QUOTED_SIZE];

    words_quote(arg, strlen(arg), quoted);
    fprintf(stderr, "failsoft %s: %s %s%s%s%s; see `failsoft %s --help`\n", a->command, what,
            quoted, meant ? ", did you mean `" : "", meant ? meant : "", meant ? "`?" : "",
            a->command);
    *ret_exit = CLI_EXIT_USAGE;
    return -EINVAL;
}

static const struct cli_flag *flag_find(const struct cli_flag *flags, const char *arg, size_t len)
{
    for (const struct cli_flag *f = flags; f->name; f++) {
        if (strlen(f->name) == len && memcmp(f->name, arg, len) == 0)
            return f;
    }
    return NULL;
}

static int read_flag(const struct cli_arguments *a, int argc, char **argv, int *pos, int *ret_exit)
{
    const char *arg = argv[*pos];
    size_t len = strcspn(arg, "=");
    const struct cli_flag *f = flag_find(a->flags, arg, len);
    const char *value = arg[len] == '=' ? arg + len + 1 : NULL;

    if (!f) {
        struct flag_walk walk = {a->flags};

        return complain(a, "unknown option", arg, words_suggest(arg, flag_next, &walk), ret_exit);
    }
    if (f->kind == CLI_FLAG_SWITCH && value)
        return complain(a, "no value is taken by", arg, NULL, ret_exit);
    if (f->kind == CLI_FLAG_VALUE && !value) {
        if (*pos + 1 >= argc)
            return complain(a, "a value is missing after", arg, NULL, ret_exit);
        value = argv[++*pos];
    }
    if (f->given)
        *f->given = true;
    if (f->value && value)
        *f->value = value;
    return 0;
}

int cli_read_arguments(const struct cli_arguments *a, int argc, char **argv, int *ret_exit)
{
    bool words_only = false;

    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        int r = 0;

        if (!words_only && strcmp(arg, "--") == 0) {
            words_only = true;
        } else if (!words_only && (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0)) {
            fputs(a->help, stdout);
            *ret_exit = CLI_EXIT_GOOD;
            return -ECANCELED;
        } else if (!words_only && arg[0] == '-' && arg[1] != '\0') {
            r = read_flag(a, argc, argv, &i, ret_exit);
        } else if (a->operand && !*a->operand) {
            *a->operand = arg;
        } else {
            r = complain(a, "one argument too many:", arg, NULL, ret_exit);
        }
        if (r < 0)
            return r;
    }
    return 0;
}

int cli_find_config(const char *named, char *out, size_t out_size)
{
    int r;

    if (named) {
        if (strlen(named) >= out_size)
            return -ENAMETOOLONG;
        memcpy(out, named, strlen(named) + 1);
        return 0;
    }
    r = config_find_default(out, out_size);
    if (r == -ENOENT)
        fputs("failsoft: no configuration: neither ./failsoft.yaml nor "
              "$XDG_CONFIG_HOME/failsoft/failsoft.yaml (~/.config by default) nor "
              "/etc/failsoft/failsoft.yaml exists; name one with --config FILE\n",
              stderr);
    return r;
}

int cli_print(const struct buf *b)
{
    if ((b->len > 0 && fwrite(b->data, 1, b->len, stdout) != b->len) || fflush(stdout) != 0)
        return -EIO;
    return 0;
}

int cli_write_problems(const struct config_report *report, struct buf *out)
{
    const char *path = report->path ? report->path : "configuration";
    int r = 0;

    for (size_t i = 0; r == 0 && i < report->count; i++) {
        const struct config_problem *p = &report->items[i];
        const char *severity = p->severity == CONFIG_SEVERITY_ERROR ? "error" : "warning";

        if (p->line > 0)
            r = buf_printf(out, "%s:%u:%u: %s: %s\n", path, p->line, p->column, severity,
                           p->message);
        else
            r = buf_printf(out, "%s: %s: %s\n", path, severity, p->message);
    }
    if (r == 0 && report->truncated)
        r = buf_printf(out, "%s: … and more\n", path);
    return r;
}
