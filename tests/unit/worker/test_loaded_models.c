/*
 * Lists of loaded models. Ollama's page after docs/api.md of Ollama, a router's after
 * tools/server/README.md of llama.cpp, that of a single model recorded from llama-server v0.4.0 (cut).
 */
#include "tests/unit/unit.h"

#include "worker/loaded_models.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ROUTER                                                                                     \
    "{\"object\":\"list\",\"data\":["                                                              \
    "{\"id\":\"a\",\"status\":{\"value\":\"unloaded\",\"failed\":true,\"exit_code\":1}},"          \
    "{\"id\":\"b\",\"status\":{\"value\":\"loaded\",\"args\":[\"llama-server\"]}},"                \
    "{\"id\":\"c\",\"status\":{\"value\":\"loading\"}},"                                           \
    "{\"id\":\"d\",\"status\":{\"value\":\"sleeping\"}},"                                          \
    "{\"id\":\"e\",\"status\":{\"value\":\"downloading\"}}]}"
#define SINGLE                                                                                     \
    "{\"models\":[{\"name\":\"m\",\"model\":\"m\"}],\"object\":\"list\",\"data\":[{\"id\":\"m\","  \
    "\"object\":\"model\",\"owned_by\":\"llamacpp\",\"meta\":{\"n_ctx_train\":2048}}]}"
#define PS                                                                                         \
    "{\"models\":[{\"name\":\"mistral:latest\",\"model\":\"mistral:latest\",\"size\":5137025024,"  \
    "\"expires_at\":\"2024-06-04T14:38:31.83753-07:00\",\"size_vram\":5137025024},"                \
    "{\"name\":\"x\",\"model\":\"hf.co/a/b:Q4\"},{\"name\":\"no model\"},{\"model\":\"\"},"        \
    "{\"model\":\"two\\u0000names\"},3]}"

static struct buf names;

static int of(bool ollama, const char *body, const char *only)
{
    buf_free(&names);
    buf_init(&names, 64);
    struct span page = span_from_str(body);
    return ollama ? loaded_models_ollama(page, &names) : loaded_models_router(page, only, &names);
}

static void assert_names(const char *joined)
{
    char text[64] = "";
    for (size_t i = 0; i < names.len; i++)
        text[i] = names.data[i] ? names.data[i] : ' ';
    assert_string_equal(text, joined);
}

static void test_ollama(void **state)
{
    (void)state;
    assert_int_equal(of(true, PS, NULL), 2);
    assert_names("mistral:latest hf.co/a/b:Q4 ");
    assert_int_equal(of(true, "{\"models\":[]}", NULL), 0);
    assert_names("");
    buf_free(&names);
}

static void test_router(void **state)
{
    (void)state;
    assert_int_equal(of(false, ROUTER, NULL), 3);
    assert_names("b c d ");
    assert_int_equal(of(false, ROUTER, "c"), 1);
    assert_names("c ");
    assert_int_equal(of(false, ROUTER, "a"), 0);
    assert_int_equal(of(false, ROUTER, "not there"), 0);
    assert_int_equal(of(false, "{\"data\":[]}", NULL), 0);
    assert_int_equal(of(false, SINGLE, NULL), -ENOTSUP);
    assert_int_equal(of(false, SINGLE, "m"), -ENOTSUP);
    buf_free(&names);
}

static void test_no_list(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "", "x", "[]", "{\"models\":{},\"data\":3}", "null", "{\"models\":[", "{}"};
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        assert_int_equal(of(true, bodies[i], NULL), -EBADMSG);
        assert_int_equal(of(false, bodies[i], NULL), -EBADMSG);
    }
    buf_free(&names);
}

static void test_too_many(void **state)
{
    (void)state;
#define NAME "{\"model\":\"0123456789012345678901234567890\"}"
    static const char body[] = "{\"models\":[" NAME "," NAME "," NAME "]}";
    assert_int_equal(of(true, body, NULL), -EMSGSIZE);
    buf_free(&names);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ollama),
        cmocka_unit_test(test_router),
        cmocka_unit_test(test_no_list),
        cmocka_unit_test(test_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
