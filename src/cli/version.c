/*
 * `failsoft version`: what runs, how it was built, and with which libraries.
 */
#include "cli/cli.h"

#include <llhttp.h>
#include <stdio.h>
#include <uv.h>
#include <yaml.h>
#include <yyjson.h>

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown"
#endif

#define TEXT_OF(x)  TEXT_OF_(x)
#define TEXT_OF_(x) #x

#define LLHTTP_TEXT                                                                                \
    TEXT_OF(LLHTTP_VERSION_MAJOR)                                                                  \
    "." TEXT_OF(LLHTTP_VERSION_MINOR) "." TEXT_OF(LLHTTP_VERSION_PATCH)

static const char help[] =
    "usage: failsoft version [--json]\n\n"
    "Shows the version, the compiler and the versions of the libraries in use.\n";

int cli_version_main(int argc, char **argv)
{
    bool json = false;
    const struct cli_flag flags[] = {{"--json", CLI_FLAG_SWITCH, &json, NULL},
                                     {NULL, CLI_FLAG_SWITCH, NULL, NULL}};
    const struct cli_arguments arguments = {"version", help, flags, NULL};
    int status;

    if (cli_read_arguments(&arguments, argc, argv, &status) < 0)
        return status;
    if (json)
        printf("{\"version\":\"%s\",\"compiler\":\"%s\",\"libraries\":{\"libuv\":\"%s\","
               "\"llhttp\":\"%s\",\"yyjson\":\"%s\",\"libyaml\":\"%s\"}}\n",
               FAILSOFT_VERSION, COMPILER, uv_version_string(), LLHTTP_TEXT, YYJSON_VERSION_STRING,
               yaml_get_version_string());
    else
        printf("failsoft %s\nbuilt with %s\nlibuv %s, llhttp %s, yyjson %s, libyaml %s\n",
               FAILSOFT_VERSION, COMPILER, uv_version_string(), LLHTTP_TEXT, YYJSON_VERSION_STRING,
               yaml_get_version_string());
    return fflush(stdout) == 0 ? CLI_EXIT_GOOD : CLI_EXIT_ENVIRONMENT;
}
