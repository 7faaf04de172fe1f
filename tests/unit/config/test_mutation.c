/*
 * Random damage to right files: whatever comes of it, no crash, no leak, and a verdict that agrees
 * with the report. The seed is fixed, so that a failure can be repeated.
 */
#include "unit.h"

#include "config/config.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 4000, TEXT_MAX = 4096 };

static const char seed_text[] =
    "listen: 127.0.0.1:8080\n"
    "engine: llama-server\n"
    "limits: { body: 64MiB, idle_timeout: 75s, connections: auto }\n"
    "devices:\n"
    "  gpu0: { kind: sim, reserve: 1GiB, card: c }\n"
    "services:\n"
    "  chat: &chat\n"
    "    kind: chat\n"
    "    model: ~/m.gguf\n"
    "    aliases: [gpt-4o, default]\n"
    "    sampling: { temperature: 0.7, top_k: 40 }\n"
    "    tiers:\n"
    "      - { name: gpu, device: gpu0, slots: 4, args: [--mlock], env: { A: b } }\n"
    "      - { name: cpu, threads: auto, queue: { length: 16, wait: 60s } }\n"
    "      - { name: remote, url: \"http://[::1]:80/x\", engine: ollama }\n"
    "  pic: { kind: generic, paths: [/predict], tiers: [{ name: cpu, url: 'http://h' }] }\n";

/* xorshift64: the same on every machine. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static const char *const pieces[] = {
    "{",     "}",    "[",    "]",    ":",         "- ",      "&chat ",
    "*chat", "\n",   "\t",   "'",    "\"",        "#",       "|\n",
    "!x ",   "\xff", "~",    "null", "0",         "-1",      "99999999999999999999",
    "1e999", "nan",  "auto", "all",  "30",        "http://", "https://",
    "::",    "/../", "%",    "@",    "name: cpu", "tiers:",  "<<: *chat",
    "\\x00",
};

static size_t damage(char *text, size_t len, uint64_t *random)
{
    const char *piece = pieces[next_random(random) % UNIT_COUNT(pieces)];
    size_t at = next_random(random) % (len + 1);
    size_t n = strlen(piece);

    switch (next_random(random) % 4) {
    case 0: /* a byte becomes another */
        if (at < len)
            text[at] = (char)(next_random(random) & 0xff);
        return len;
    case 1: /* a part is lost */
        n = next_random(random) % 40;
        n = n > len - at ? len - at : n;
        memmove(text + at, text + at + n, len - at - n);
        return len - n;
    case 2: /* cut off */ return next_random(random) % 8 == 0 ? at : len;
    default: /* a piece too much */
        if (len + n > TEXT_MAX)
            return len;
        memmove(text + at + n, text + at, len - at);
        memcpy(text + at, piece, n);
        return len + n;
    }
}

static void check_report(const struct config_report *report, int r, const struct config *c)
{
    size_t errors = 0;

    assert_true((r == 0) == (c != NULL));
    assert_true((r == 0) == (report->errors == 0));
    for (size_t i = 0; i < report->count; i++) {
        const struct config_problem *p = &report->items[i];

        errors += p->severity == CONFIG_SEVERITY_ERROR;
        assert_true(p->line > 0 && p->column > 0);
        assert_true(p->message[0] != '\0');
        /* What is in a file never reaches a terminal as a control character. */
        for (const char *q = p->message; *q; q++)
            assert_true((unsigned char)*q >= 0x20 && *q != 0x7f);
    }
    assert_true(report->truncated || errors == report->errors);
}

static void test_mutations(void **state)
{
    uint64_t random = 0x9E3779B97F4A7C15u;

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct config_report report;
        struct config *c = NULL;
        char text[TEXT_MAX];
        size_t len = sizeof(seed_text) - 1;
        int r;

        memcpy(text, seed_text, len);
        for (uint64_t n = 1 + next_random(&random) % 6; n > 0; n--)
            len = damage(text, len, &random);
        config_report_init(&report);
        r = config_load_string(text, len, "/", &c, &report);
        check_report(&report, r, c);
        config_free(c);
        config_report_free(&report);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mutations)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
