/*
 * Fuzzes the JSON scanner against yyjson, strict as it comes: the same verdict on every text, and
 * for an object the same members. Two differences are meant and left out: nesting deeper than 512
 * (an error here), and numbers too large for a double (yyjson reads them raw here).
 */
#include "base/json_scan.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <yyjson.h>

#undef NDEBUG
#include <assert.h>

static yyjson_doc *read_with_yyjson(struct span text)
{
    return yyjson_read_opts((char *)(uintptr_t)text.ptr, text.len, YYJSON_READ_NUMBER_AS_RAW, NULL,
                            NULL);
}

static enum json_kind kind_of(yyjson_val *value)
{
    switch (yyjson_get_type(value)) {
    case YYJSON_TYPE_OBJ: return JSON_KIND_OBJECT;
    case YYJSON_TYPE_ARR: return JSON_KIND_ARRAY;
    case YYJSON_TYPE_STR: return JSON_KIND_STRING;
    case YYJSON_TYPE_RAW:
    case YYJSON_TYPE_NUM: return JSON_KIND_NUMBER;
    case YYJSON_TYPE_BOOL: return yyjson_is_true(value) ? JSON_KIND_TRUE : JSON_KIND_FALSE;
    case YYJSON_TYPE_NULL: return JSON_KIND_NULL;
    default: return JSON_KIND_NONE;
    }
}

/* A raw string of ours, resolved, is what yyjson made of it. */
static void check_string(struct span raw, yyjson_val *value)
{
    char *out = malloc(raw.len + 1);
    assert(out);
    int r = json_scan_get_string(raw, out, raw.len + 1);
    const char *theirs = yyjson_get_str(value);
    size_t n = yyjson_get_len(value);
    if (memchr(theirs, '\0', n)) {
        assert(r == -EINVAL);
    } else {
        assert(r == 0 && strlen(out) == n && memcmp(out, theirs, n) == 0);
        /* Exactly enough room is enough, one byte less is not. */
        assert(json_scan_get_string(raw, out, n + 1) == 0);
        assert(json_scan_get_string(raw, out, n) == -EMSGSIZE);
    }
    free(out);
}

struct member_check {
    struct span text;
    yyjson_obj_iter iter;
    size_t count;
    const char *last_end;
};

static void check_member(void *ctx, const struct json_member *m)
{
    struct member_check *c = ctx;
    assert(m->key.ptr > c->last_end);
    assert(m->value.ptr > m->key.ptr + m->key.len && m->value.len > 0);
    assert(m->value.ptr + m->value.len <= c->text.ptr + c->text.len);
    c->last_end = m->value.ptr + m->value.len;
    c->count++;

    yyjson_val *key = yyjson_obj_iter_next(&c->iter);
    assert(key);
    check_string((struct span){m->key.ptr - 1, m->key.len + 2}, key);
    assert(m->key_has_escape == (m->key.len > 0 && memchr(m->key.ptr, '\\', m->key.len)));
    yyjson_val *value = yyjson_obj_iter_get_val(key);
    assert(m->kind == kind_of(value));
    if (m->kind == JSON_KIND_STRING)
        check_string(m->value, value);

    /* The span is the value and nothing else: it reads as one, and alone it is one of ours. */
    enum json_kind kind;
    assert(json_scan(m->value, NULL, NULL, &kind, NULL) == 0 && kind == m->kind);
    yyjson_doc *alone = read_with_yyjson(m->value);
    assert(alone && yyjson_equals(yyjson_doc_get_root(alone), value));
    yyjson_doc_free(alone);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span text = {(const char *)data, size};
    enum json_kind kind = JSON_KIND_NONE;
    struct json_scan_error error = {0, NULL};
    int r = json_scan(text, NULL, NULL, &kind, &error);
    assert(r == 0 || r == -EBADMSG);
    yyjson_doc *doc = read_with_yyjson(text);
    if (r == 0) {
        assert(doc);
        yyjson_val *root = yyjson_doc_get_root(doc);
        assert(kind == kind_of(root));
        struct member_check check = {.text = text, .last_end = text.ptr};
        if (kind == JSON_KIND_OBJECT)
            assert(yyjson_obj_iter_init(root, &check.iter));
        assert(json_scan(text, check_member, &check, &kind, &error) == 0);
        assert(check.count == (kind == JSON_KIND_OBJECT ? yyjson_obj_size(root) : 0));
    } else {
        assert(error.message && error.offset <= size && kind == JSON_KIND_NONE);
        assert(!doc || strncmp(error.message, "too deep", 8) == 0);
        /*
         * The offset is right: up to it the text is the beginning of something valid, that is, cut
         * there, the only complaint is that it ends (an escape or a character that is wrong as a
         * whole is named by its first byte, so the cut may also be in front of that).
         */
        struct json_scan_error cut;
        if (json_scan((struct span){text.ptr, error.offset}, NULL, NULL, &kind, &cut) != 0)
            assert(cut.offset == error.offset);
    }
    yyjson_doc_free(doc);
    return 0;
}
