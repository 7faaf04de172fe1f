/*
 * The parsers by type. Each says in its refusal what it would have taken.
 */
#include "config/values.h"

#include "base/units.h"
#include "config/address.h"
#include "config/config.h"
#include "config/words.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int refuse(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int refuse(char *why, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vsnprintf(why, VALUE_WHY_SIZE, format, ap);
    va_end(ap);
    return -EINVAL;
}

static void join_words(const char *const *words, char *out, size_t out_size)
{
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; words[i] && used < out_size; i++)
        used += (size_t)snprintf(out + used, out_size - used, "%s%s", i ? ", " : "", words[i]);
}

static void describe_range(const struct config_option *o, char *out, size_t out_size)
{
    char low[24];
    char high[24];

    switch (o->type) {
    case OPTION_TYPE_BYTES:
        units_format_bytes(o->min, low, sizeof(low));
        units_format_bytes(o->max, high, sizeof(high));
        snprintf(out, out_size, "%s to %s", low, high);
        return;
    case OPTION_TYPE_DURATION:
        units_format_duration_ms(o->min, low, sizeof(low));
        units_format_duration_ms(o->max, high, sizeof(high));
        snprintf(out, out_size, "%s to %s", o->min ? low : "0", high);
        return;
    default: snprintf(out, out_size, "%" PRIu64 " to %" PRIu64, o->min, o->max); return;
    }
}

void value_describe(const struct config_option *o, char *out, size_t out_size)
{
    const char *or_auto = o->flags & OPTION_AUTO ? ", or `auto`" : "";
    char range[64];

    switch (o->type) {
    case OPTION_TYPE_BYTES:
    case OPTION_TYPE_DURATION:
        describe_range(o, range, sizeof(range));
        snprintf(out, out_size, "%s%s", range, or_auto);
        return;
    case OPTION_TYPE_COUNT:
        describe_range(o, range, sizeof(range));
        snprintf(out, out_size, "a whole number, %s%s", range, or_auto);
        return;
    case OPTION_TYPE_LAYERS:
        describe_range(o, range, sizeof(range));
        snprintf(out, out_size, "a whole number, %s, or `all`", range);
        return;
    case OPTION_TYPE_WORD:
    case OPTION_TYPE_WORD_TEXT: join_words(o->words, out, out_size); return;
    case OPTION_TYPE_TEXT: snprintf(out, out_size, "text"); return;
    case OPTION_TYPE_PATH: snprintf(out, out_size, "a path"); return;
    case OPTION_TYPE_COMMAND: snprintf(out, out_size, "a path or a name"); return;
    case OPTION_TYPE_LISTEN: snprintf(out, out_size, "address:port"); return;
    case OPTION_TYPE_URL: snprintf(out, out_size, "an http:// URL"); return;
    case OPTION_TYPE_TEXTS: snprintf(out, out_size, "a list of texts"); return;
    case OPTION_TYPE_PAIRS: snprintf(out, out_size, "a map of names to texts"); return;
    case OPTION_TYPE_SAMPLING: snprintf(out, out_size, "a map of names to numbers"); return;
    case OPTION_TYPE_BLOCK: snprintf(out, out_size, "a map of options"); return;
    case OPTION_TYPE_NAMED: snprintf(out, out_size, "a map of names"); return;
    case OPTION_TYPE_LIST: snprintf(out, out_size, "a list"); return;
    }
}

static bool is_number(const char *text)
{
    bool digit = false;

    for (const char *p = text; *p; p++) {
        if (isdigit((unsigned char)*p))
            digit = true;
        else if (*p != '.')
            return false;
    }
    return digit;
}

static int refuse_amount(const struct config_option *o, const char *text, int error, char *why)
{
    bool bytes = o->type == OPTION_TYPE_BYTES;
    char allowed[96];

    value_describe(o, allowed, sizeof(allowed));
    if (error == -ERANGE)
        return refuse(why, "is out of range; allowed: %s", allowed);
    if (is_number(text) && strlen(text) <= 12 && strcmp(text, "0") != 0)
        return bytes ? refuse(why, "has no unit; write e.g. `%sMiB` or `%sGiB`; allowed: %s", text,
                              text, allowed)
                     : refuse(why,
                              "has no unit; write `%ss` for seconds or `%sms` for milliseconds; "
                              "allowed: %s",
                              text, text, allowed);
    return refuse(why, "is not %s; allowed: %s",
                  bytes ? "a size (a number and B, KiB, MiB, GiB, KB, MB or GB)"
                        : "a duration (a number and ms, s, m, h or d)",
                  allowed);
}

static int parse_amount(const struct config_option *o, const char *text, uint64_t *ret, char *why)
{
    uint64_t value;
    int r;

    if ((o->flags & OPTION_AUTO) && strcmp(text, "auto") == 0) {
        *ret = 0;
        return 0;
    }
    r = o->type == OPTION_TYPE_BYTES ? units_parse_bytes(text, &value)
                                     : units_parse_duration_ms(text, &value);
    if (r == 0 && (value < o->min || value > o->max))
        r = -ERANGE;
    if (r < 0)
        return refuse_amount(o, text, r, why);
    *ret = value;
    return 0;
}

static int parse_count(const struct config_option *o, const char *text, uint64_t *ret, char *why)
{
    char allowed[96];
    uint64_t value;
    int r = units_parse_u64(text, &value);

    if (r == 0 && value >= o->min && value <= o->max) {
        *ret = value;
        return 0;
    }
    value_describe(o, allowed, sizeof(allowed));
    if (r == 0 || r == -ERANGE || (text[0] == '-' && is_number(text + 1)))
        return refuse(why, "is out of range; allowed: %s", allowed);
    return refuse(why, "is not a whole number; allowed: %s", allowed);
}

static int parse_u32(const struct config_option *o, const char *text, uint32_t *ret, char *why)
{
    uint64_t value = 0;
    int r;

    if ((o->flags & OPTION_AUTO) && strcmp(text, "auto") == 0) {
        *ret = 0;
        return 0;
    }
    r = parse_count(o, text, &value, why);
    if (r == 0)
        *ret = (uint32_t)value;
    return r;
}

static int parse_layers(const struct config_option *o, const char *text, int32_t *ret, char *why)
{
    uint64_t value = 0;
    int r;

    if (strcmp(text, "all") == 0) {
        *ret = -1;
        return 0;
    }
    r = parse_count(o, text, &value, why);
    if (r == 0)
        *ret = (int32_t)value;
    return r;
}

static int parse_word(const struct config_option *o, const char *text, int *ret, char *why)
{
    const char *meant;
    char allowed[160];

    for (int i = 0; o->words[i]; i++) {
        if (strcmp(o->words[i], text) == 0) {
            *ret = i;
            return 0;
        }
    }
    /* The other words that YAML 1.1 knows for the same thing. */
    if (o->words == option_switches) {
        if (strcmp(text, "true") == 0 || strcmp(text, "yes") == 0)
            return parse_word(o, "on", ret, why);
        if (strcmp(text, "false") == 0 || strcmp(text, "no") == 0)
            return parse_word(o, "off", ret, why);
    }
    join_words(o->words, allowed, sizeof(allowed));
    meant = words_suggest_from(text, o->words);
    return refuse(why, "is not known; allowed: %s%s%s%s", allowed, meant ? "; did you mean `" : "",
                  meant ? meant : "", meant ? "`?" : "");
}

static int store_text(const struct value_place *place, const char *text, char **ret)
{
    char *copy = arena_copy(place->arena, text, strlen(text));

    if (!copy)
        return -ENOMEM;
    *ret = copy;
    return 0;
}

static int parse_word_text(const struct value_place *place, const struct config_option *o,
                           const char *text, char **ret, char *why)
{
    int index;
    int r = parse_word(o, text, &index, why);

    return r < 0 ? r : store_text(place, text, ret);
}

static int parse_text(const struct value_place *place, const char *text, char **ret, char *why)
{
    if (!*text)
        return refuse(why, "is empty");
    for (const char *p = text; *p; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return refuse(why, "has a control character");
    }
    return store_text(place, text, ret);
}

int value_expand_path(const struct value_place *place, const char *text, char **ret_path, char *why)
{
    const char *prefix = place->base_dir;
    size_t prefix_len;
    size_t len;
    char *path;

    if (!*text)
        return refuse(why, "is empty");
    if (text[0] == '~') {
        if (text[1] != '\0' && text[1] != '/')
            return refuse(why, "names another user's home, which is not supported; write the "
                               "whole path");
        prefix = getenv("HOME");
        if (!prefix || prefix[0] != '/')
            return refuse(why, "begins with ~, but HOME is not set");
        text += text[1] == '/' ? 2 : 1;
    } else if (text[0] == '/') {
        return store_text(place, text, ret_path);
    } else if (text[0] == '.' && text[1] == '/') {
        text += 2;
    }
    prefix_len = strlen(prefix);
    len = strlen(text);
    path = arena_alloc(place->arena, prefix_len + 1 + len + 1, 1);
    if (!path)
        return -ENOMEM;
    memcpy(path, prefix, prefix_len);
    if (len > 0) {
        if (prefix_len > 0 && path[prefix_len - 1] != '/')
            path[prefix_len++] = '/';
        memcpy(path + prefix_len, text, len);
    }
    *ret_path = path;
    return 0;
}

static int parse_command(const struct value_place *place, const char *text, char **ret, char *why)
{
    if (strchr(text, '/') || text[0] == '~')
        return value_expand_path(place, text, ret, why);
    return parse_text(place, text, ret, why);
}

static int parse_listen(const struct value_place *place, const char *text, struct config *c,
                        char *why)
{
    char host[ADDRESS_HOST_SIZE];
    const char *problem;
    uint16_t port;
    int r = address_parse_listen(text, host, &port, &problem);

    if (r < 0)
        return refuse(why, "%s", problem);
    r = store_text(place, host, &c->host);
    if (r == 0)
        c->port = port;
    return r;
}

static int parse_url(const struct value_place *place, const char *text, struct config_tier *t,
                     char *why)
{
    struct address_url url;
    const char *problem;
    int r = address_parse_url(text, &url, &problem);

    if (r < 0)
        return refuse(why, "%s", problem);
    t->url_prefix = arena_copy(place->arena, url.prefix, url.prefix_len);
    if (!t->url_prefix || store_text(place, url.host, &t->url_host) < 0 ||
        store_text(place, text, &t->url) < 0)
        return -ENOMEM;
    t->url_port = url.port;
    return 0;
}

/* RFC 8259 §6: what JSON takes as a number. */
static bool is_json_number(const char *p, bool *ret_whole)
{
    *ret_whole = true;
    if (*p == '-')
        p++;
    if (*p == '0')
        p++;
    else if (*p >= '1' && *p <= '9')
        while (isdigit((unsigned char)*p))
            p++;
    else
        return false;
    if (*p == '.') {
        *ret_whole = false;
        if (!isdigit((unsigned char)*++p))
            return false;
        while (isdigit((unsigned char)*p))
            p++;
    }
    if (*p == 'e' || *p == 'E') {
        *ret_whole = false;
        p++;
        if (*p == '+' || *p == '-')
            p++;
        if (!isdigit((unsigned char)*p))
            return false;
        while (isdigit((unsigned char)*p))
            p++;
    }
    return *p == '\0';
}

int value_check_sampling(const struct option_sampling *s, const char *text, char *why)
{
    bool whole;
    double value;

    if (!is_json_number(text, &whole) || strlen(text) > 32)
        return refuse(why, "is not a number; allowed: %.10g to %.10g", s->min, s->max);
    if (s->whole && !whole)
        return refuse(why, "is not a whole number; allowed: %.10g to %.10g", s->min, s->max);
    value = strtod(text, NULL);
    if (!(value >= s->min && value <= s->max))
        return refuse(why, "is out of range; allowed: %.10g to %.10g", s->min, s->max);
    return 0;
}

int value_parse(const struct value_place *place, const struct config_option *o, const char *text,
                void *object, char *why)
{
    void *field = (char *)object + o->offset;

    switch (o->type) {
    case OPTION_TYPE_TEXT: return parse_text(place, text, field, why);
    case OPTION_TYPE_PATH: return value_expand_path(place, text, field, why);
    case OPTION_TYPE_COMMAND: return parse_command(place, text, field, why);
    case OPTION_TYPE_BYTES:
    case OPTION_TYPE_DURATION: return parse_amount(o, text, field, why);
    case OPTION_TYPE_COUNT: return parse_u32(o, text, field, why);
    case OPTION_TYPE_LAYERS: return parse_layers(o, text, field, why);
    case OPTION_TYPE_WORD: return parse_word(o, text, field, why);
    case OPTION_TYPE_WORD_TEXT: return parse_word_text(place, o, text, field, why);
    case OPTION_TYPE_LISTEN: return parse_listen(place, text, object, why);
    case OPTION_TYPE_URL: return parse_url(place, text, object, why);
    default: return refuse(why, "is not a plain value");
    }
}
