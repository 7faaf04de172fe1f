/* Judging answers by the shape of the body (F61, F73): pure, as data. */
#include "tests/unit/unit.h"

#include "worker/probe.h"

#include <string.h>

static void health_by_shape(void **state)
{
    static const struct {
        int status;
        const char *body;
        enum probe_health health;
        const char *why;
    } cases[] = {
        {200, "{\"status\":\"ok\"}", PROBE_HEALTH_READY, ""},
        {200, " {\"status\": \"ok\", \"slots_idle\": 1}\n", PROBE_HEALTH_READY, ""},
        {503,
         "{\"error\":{\"message\":\"Loading model\",\"type\":\"unavailable_error\",\"code\":503}}",
         PROBE_HEALTH_LOADING, "loading"},
        {503, "{\"error\":{\"code\":503,\"message\":\"Loading model\"}}", PROBE_HEALTH_LOADING,
         "loading"},
        {503, "{\"status\":\"loading model\"}", PROBE_HEALTH_LOADING, "loading"},
        {200, "{\"status\":\"loading model\"}", PROBE_HEALTH_LOADING, "loading"},
        {200, "<!doctype html><title>x</title>", PROBE_HEALTH_STRANGER, "HTML"},
        {200, "\r\n\t <html>", PROBE_HEALTH_STRANGER, "HTML"},
        {200, "", PROBE_HEALTH_STRANGER, "unknown server type"},
        {200, "ok", PROBE_HEALTH_STRANGER, "no JSON"},
        {200, "{\"data\":[]}", PROBE_HEALTH_STRANGER, "other JSON"},
        {200, "{\"status\":{\"ok\":1}}", PROBE_HEALTH_STRANGER, "other JSON"},
        {200, "[1,2", PROBE_HEALTH_STRANGER, "no JSON"},
        {503, "busy", PROBE_HEALTH_NOT_YET, "503 busy"},
        {500, "{\"error\":{\"message\":\"x\"}}", PROBE_HEALTH_NOT_YET, "500"},
        {404, "<html>", PROBE_HEALTH_NOT_YET, "404"},
        {503, "", PROBE_HEALTH_NOT_YET, "503"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char why[256] = "untouched";

        assert_int_equal(
            probe_judge_health(cases[i].status, span_from_str(cases[i].body), why, sizeof(why)),
            cases[i].health);
        if (cases[i].why[0] == '\0')
            assert_string_equal(why, "");
        else if (strstr(why, cases[i].why) == NULL)
            fail_msg("%s: \"%s\" lacks \"%s\"", cases[i].body, why, cases[i].why);
    }
}

/* A program's own path: only the status counts, and a path that is not there is told. */
static void path_by_status(void **state)
{
    static const struct {
        int status;
        const char *body;
        enum probe_health health;
        const char *why;
    } cases[] = {
        {200, "<html>", PROBE_HEALTH_READY, ""},
        {204, "", PROBE_HEALTH_READY, ""},
        {299, "x", PROBE_HEALTH_READY, ""},
        {300, "x", PROBE_HEALTH_NOT_YET, "/up answered 300 x"},
        {401, "who?", PROBE_HEALTH_NOT_YET, "/up answered 401 who?"},
        {404, "x", PROBE_HEALTH_NOT_YET, "/up answered 404: it has no such path; `health`"},
        {405, "x", PROBE_HEALTH_NOT_YET, "no such path"},
        {503, "Loading model", PROBE_HEALTH_NOT_YET, "/up answered 503 Loading model"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char why[256] = "untouched";

        assert_int_equal(probe_judge_path("/up", cases[i].status, span_from_str(cases[i].body), why,
                                          sizeof(why)),
                         cases[i].health);
        if (cases[i].why[0] == '\0')
            assert_string_equal(why, "");
        else if (strstr(why, cases[i].why) == NULL)
            fail_msg("%d: \"%s\" lacks \"%s\"", cases[i].status, why, cases[i].why);
    }
}

static void engine_by_shape(void **state)
{
    static const struct {
        unsigned step;
        int status;
        const char *body;
        enum worker_engine engine;
    } cases[] = {
        {0, 200, "{\"default_generation_settings\":{\"params\":{", WORKER_ENGINE_LLAMA_SERVER},
        {0, 503, "{\"error\":{\"message\":\"Loading model\"}}", WORKER_ENGINE_LLAMA_SERVER},
        {0, 200, "<html>\"default_generation_settings\"", WORKER_ENGINE_UNKNOWN},
        {0, 404, "{\"default_generation_settings\":1}", WORKER_ENGINE_UNKNOWN},
        {0, 200, "{}", WORKER_ENGINE_UNKNOWN},
        {1, 200, "{\"version\":\"0.12.3\"}", WORKER_ENGINE_OLLAMA},
        {1, 404, "{\"version\":\"0\"}", WORKER_ENGINE_UNKNOWN},
        {2, 200, "{\"object\":\"list\",\"data\":[{\"id\":\"m\"", WORKER_ENGINE_OPENAI},
        {2, 401, "{\"error\":{\"message\":\"no key\"}}", WORKER_ENGINE_OPENAI},
        {2, 401, "{\"detail\":\"no\"}", WORKER_ENGINE_UNKNOWN},
        {2, 200, "<html>\"data\"</html>", WORKER_ENGINE_UNKNOWN},
        {2, 200, "", WORKER_ENGINE_UNKNOWN},
        {3, 200, "{\"data\":[]}", WORKER_ENGINE_UNKNOWN},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(
            probe_judge_engine(cases[i].step, cases[i].status, span_from_str(cases[i].body)),
            cases[i].engine);
    assert_string_equal(probe_engine_path(0), "/props");
    assert_null(probe_engine_path(PROBE_ENGINE_STEPS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(health_by_shape),
        cmocka_unit_test(path_by_status),
        cmocka_unit_test(engine_by_shape),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
