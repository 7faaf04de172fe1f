/*
 * The table of learning.h as text, one entry a line:
 *
 *   failsoft-learning 1
 *   load 00000000000000aa 00000000000000bb 00000000000000cc 00000000000000dd fits 28024242176 28024242176
 *   end 1
 *
 * use, model, settings, engine, device (hashes), whether it fits, then up to LEARNING_SAMPLES measured
 * bytes, oldest first. Entries are in order of use. "end" with the number of lines shows that nothing
 * was cut off; a text without it is taken all the same, line by line.
 */
#include "policy/learning.h"

#include "policy/ledger.h"
#include "policy/text.h"

#include <errno.h>

static const char learning_head[] = "failsoft-learning 1";
static const char *const learning_use_words[LEARNING_USE_COUNT] = {"load", "text", "image", "sizes",
                                                                   "room"};

enum { HEX_LEN = 16, HEX_BITS = 4, DECIMAL_MAX = 20, HEAD_AND_END_MAX = 64 };

size_t learning_text_max(uint32_t capacity)
{
    return HEAD_AND_END_MAX + (size_t)capacity * LEARNING_LINE_MAX;
}

static void learning_write_entry(struct text *t, const struct learning_entry *entry)
{
    const uint64_t hashes[] = {entry->key.model, entry->key.settings, entry->key.engine,
                               entry->key.device};
    text_add(t, learning_use_words[entry->key.use]);
    for (size_t i = 0; i < sizeof(hashes) / sizeof(hashes[0]); i++) {
        text_add(t, " ");
        text_add_hex(t, hashes[i]);
    }
    text_add(t, entry->unfit ? " unfit" : " fits");
    uint32_t first = (entry->next + LEARNING_SAMPLES - entry->count) % LEARNING_SAMPLES;
    for (uint32_t i = 0; i < entry->count; i++) {
        text_add(t, " ");
        text_add_u64(t, entry->samples[(first + i) % LEARNING_SAMPLES]);
    }
}

/* The used entry whose turn comes after `touched`; NULL: none. */
static const struct learning_entry *learning_after(const struct learning *l, uint64_t touched)
{
    const struct learning_entry *next = NULL;
    for (uint32_t i = 0; i < l->capacity; i++) {
        const struct learning_entry *entry = &l->entries[i];
        if (entry->used && entry->touched > touched && (!next || entry->touched < next->touched))
            next = entry;
    }
    return next;
}

/* text.h writes printable characters only; a line ends here. */
static void learning_end_line(struct text *t)
{
    if (!t->cut && t->len + 1 < t->size) {
        t->out[t->len++] = '\n';
        t->out[t->len] = '\0';
    } else {
        t->cut = true;
    }
}

int learning_to_text(const struct learning *l, char *out, size_t size, size_t *ret_len)
{
    if (size == 0)
        return -ENOSPC;
    struct text t;
    text_init(&t, out, size);
    text_add(&t, learning_head);
    learning_end_line(&t);
    uint64_t count = 0;
    const struct learning_entry *entry = learning_after(l, 0);
    for (; entry; entry = learning_after(l, entry->touched)) {
        learning_write_entry(&t, entry);
        learning_end_line(&t);
        count++;
    }
    text_add(&t, "end ");
    text_add_u64(&t, count);
    learning_end_line(&t);
    if (t.cut)
        return -ENOSPC;
    *ret_len = t.len;
    return 0;
}

static bool learning_parse_hex(struct span word, uint64_t *ret_value)
{
    uint64_t value = 0;
    if (word.len != HEX_LEN)
        return false;
    for (size_t i = 0; i < word.len; i++) {
        char c = word.ptr[i];
        unsigned digit = 0;
        if (c >= '0' && c <= '9')
            digit = (unsigned)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (unsigned)(c - 'a') + 10;
        else
            return false;
        value = value << HEX_BITS | digit;
    }
    *ret_value = value;
    return true;
}

static bool learning_parse_bytes(struct span word, uint64_t *ret_value)
{
    uint64_t value = 0;
    if (word.len == 0 || word.len > DECIMAL_MAX)
        return false;
    for (size_t i = 0; i < word.len; i++) {
        if (word.ptr[i] < '0' || word.ptr[i] > '9' ||
            __builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t)(word.ptr[i] - '0'), &value))
            return false;
    }
    if (value > LEDGER_BYTES_MAX)
        return false;
    *ret_value = value;
    return true;
}

static bool learning_parse_key(struct span *rest, struct learning_key *ret_key)
{
    struct span word;
    struct learning_key key = {.use = LEARNING_USE_COUNT};
    uint64_t *const hashes[] = {&key.model, &key.settings, &key.engine, &key.device};
    if (!span_split_next(rest, ' ', &word))
        return false;
    for (unsigned use = 0; use < LEARNING_USE_COUNT; use++) {
        if (span_equals_str(word, learning_use_words[use]))
            key.use = (enum learning_use)use;
    }
    if (key.use == LEARNING_USE_COUNT)
        return false;
    for (size_t i = 0; i < sizeof(hashes) / sizeof(hashes[0]); i++) {
        if (!span_split_next(rest, ' ', &word) || !learning_parse_hex(word, hashes[i]))
            return false;
    }
    *ret_key = key;
    return true;
}

/* A whole line or nothing. */
static bool learning_parse_entry(struct span line, struct learning_entry *ret_entry)
{
    struct learning_entry entry = {.used = true};
    struct span word;
    if (line.len >= LEARNING_LINE_MAX || !learning_parse_key(&line, &entry.key) ||
        !span_split_next(&line, ' ', &word))
        return false;
    entry.unfit = span_equals_str(word, "unfit");
    if (!entry.unfit && !span_equals_str(word, "fits"))
        return false;
    while (span_split_next(&line, ' ', &word)) {
        if (entry.count == LEARNING_SAMPLES ||
            !learning_parse_bytes(word, &entry.samples[entry.count]))
            return false;
        entry.count++;
    }
    entry.next = entry.count % LEARNING_SAMPLES;
    *ret_entry = entry;
    return true;
}

int learning_from_text(struct learning *l, struct span text, uint32_t *ret_skipped)
{
    struct span line;
    uint32_t skipped = 0;
    if (!span_split_next(&text, '\n', &line) || !span_equals_str(line, learning_head))
        return -EPROTO;
    while (span_split_next(&text, '\n', &line)) {
        struct learning_entry entry;
        if (line.len == 0 || span_starts_with(line, SPAN_LIT("end ")))
            continue;
        if (!learning_parse_entry(line, &entry)) {
            if (skipped < UINT32_MAX)
                skipped++;
            continue;
        }
        learning_set_unfit(l, &entry.key, entry.unfit);
        for (uint32_t i = 0; i < entry.count; i++)
            (void)learning_note(l, &entry.key, entry.samples[i]);
    }
    *ret_skipped = skipped;
    return 0;
}
