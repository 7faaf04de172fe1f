/*
 * `failsoft plan`: how much memory will it take, and where, and does it fit? For a configuration, tier
 * by tier, or for one model file and the settings of the command line. See plan.h.
 */
#include "cli/plan.h"

#include "base/units.h"
#include "cli/cli.h"
#include "config/config.h"
#include "model/gguf_type.h"
#include "worker/plan_settings.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUTPUT_MAX_BYTES = 8 * 1024 * 1024 };

static const char help[] =
    "usage: failsoft plan [--config FILE] [--json]\n"
    "       failsoft plan --model FILE [settings] [--json]\n\n"
    "Predicts the memory of every worker before it is started, by part: weights, cache of keys "
    "and\n"
    "values, compute buffers. Reads the headers of the model files only. For a configuration "
    "also:\n"
    "whether each tier fits now, what would make it fit, and which of them can live together; by\n"
    "the ledger of the gateway where it is running, else by one look at the devices.\n\n"
    "  --config FILE        a configuration; default as for `failsoft check`\n"
    "  --model FILE         one GGUF file (the first, where there are several)\n"
    "  --context N          tokens of one slot; default: what the model was trained for\n"
    "  --slots N            requests at a time; default 1\n"
    "  --gpu-layers N       layers on the device; default: all\n"
    "  --device KIND        sim, gpu or none (everything on the host); default gpu\n"
    "  --cache-type-k TYPE  f16, q8_0, …; default f16\n"
    "  --cache-type-v TYPE\n"
    "  --flash-attention W  on, off or auto; default on\n"
    "  --batch N --micro-batch N   default 256 and 64\n"
    "  --kv-unified         one cache that all slots share\n"
    "  --embeddings         an embeddings service: a text is one batch\n"
    "  --cpu-moe            expert matrices stay on the host\n"
    "  --no-mmap            weights are read into memory\n"
    "  --mmproj FILE        a projector for pictures or sound\n"
    "  --draft FILE         a draft model\n"
    "  --json               as JSON\n\n"
    "exit status: 0 all fits, 1 a tier that does not fit, or of which that cannot be told, or a\n"
    "model that cannot be read, 2 wrong usage, 3 no such file\n";

struct plan_arguments {
    const char *config, *operand, *model;
    const char *context, *slots, *gpu_layers, *device, *cache_type_k, *cache_type_v;
    const char *flash_attention, *batch, *micro_batch, *projector, *draft;
    bool json, unified, embeddings, cpu_moe, no_mmap;
};

static int out_of_memory(void)
{
    fputs("failsoft plan: out of memory\n", stderr);
    return CLI_EXIT_ENVIRONMENT;
}

/* What does not fit, what nobody can tell, a model that cannot be read: findings. */
static int status_of(const struct plan *p)
{
    for (size_t i = 0; i < p->count; i++) {
        const struct plan_entry *e = &p->entries[i];

        if (e->broken || e->fit == PLAN_FIT_NO || e->fit == PLAN_FIT_UNKNOWN)
            return CLI_EXIT_FINDING;
    }
    for (size_t i = 0; i < p->place_count; i++) {
        if (p->places[i].leave_out != 0)
            return CLI_EXIT_FINDING;
    }
    return CLI_EXIT_GOOD;
}

static int print_plan(const struct plan *p, bool json)
{
    struct buf out;
    int r;

    buf_init(&out, OUTPUT_MAX_BYTES);
    r = json ? plan_write_json(&out, p) : plan_write_text(&out, p);
    if (r == 0)
        r = cli_print(&out);
    buf_free(&out);
    return r < 0 ? CLI_EXIT_ENVIRONMENT : status_of(p);
}

static void free_plan(struct plan *p)
{
    plan_free_entries(p);
    free(p->places);
}

/* --- a configuration --- */

static void find_devices(struct plan *p)
{
    for (size_t i = 0; i < p->count; i++) {
        const struct config_tier *tier = p->entries[i].tier;

        for (size_t j = 0; j + 1 < p->place_count; j++) {
            if (tier->kind != CONFIG_TIER_KIND_CPU && tier->device != NULL &&
                p->places[j].device == tier->device)
                p->entries[i].device = &p->places[j];
        }
    }
}

static int plan_tiers(const struct config *c, bool json)
{
    struct plan p = {.config = c};
    int status;
    int r = plan_read_tiers(&p);

    if (r == 0)
        r = plan_look(&p);
    if (r == 0) {
        find_devices(&p);
        /* Its figures come last: what it holds is what it takes. */
        plan_add_learned(&p);
        plan_ask_gateway(&p);
        plan_judge(&p);
        plan_put_together(&p);
        status = print_plan(&p, json);
    } else if (r == -ENOMEM) {
        status = out_of_memory();
    } else {
        fprintf(stderr, "failsoft plan: %s\n", strerror(-r));
        status = CLI_EXIT_ENVIRONMENT;
    }
    free_plan(&p);
    return status;
}

static int plan_config(const struct plan_arguments *a)
{
    struct config_report report;
    struct config *c = NULL;
    struct buf problems;
    char path[PATH_MAX];
    int status;
    int r;

    if (cli_find_config(a->config ? a->config : a->operand, path, sizeof(path)) < 0)
        return CLI_EXIT_ENVIRONMENT;
    config_report_init(&report);
    buf_init(&problems, OUTPUT_MAX_BYTES);
    r = config_load_file(path, &c, &report);
    if (report.errors > 0 && cli_write_problems(&report, &problems) == 0 && problems.len > 0)
        fwrite(problems.data, 1, problems.len, stderr);
    if (r == -ENOMEM)
        status = out_of_memory();
    else if (r < 0)
        status = report.unreadable ? CLI_EXIT_ENVIRONMENT : CLI_EXIT_FINDING;
    else
        status = plan_tiers(c, a->json);
    buf_free(&problems);
    config_report_free(&report);
    config_free(c);
    return status;
}

/* --- one model file --- */

static int refuse(const char *flag, const char *value, const char *allowed)
{
    fprintf(stderr, "failsoft plan: %s does not take `%.60s`; it takes %s\n", flag, value, allowed);
    return -EINVAL;
}

static int take_number(const char *flag, const char *text, uint64_t max, uint64_t *ret)
{
    uint64_t number;

    if (text == NULL)
        return 0;
    if (units_parse_u64(text, &number) < 0 || number > max)
        return refuse(flag, text, "a whole number");
    *ret = number;
    return 0;
}

static int take_type(const char *flag, const char *text, uint32_t *ret)
{
    const struct gguf_type *t = gguf_type_find_name(text);

    if (text == NULL)
        return 0;
    if (t == NULL)
        return refuse(flag, text, "f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1 or iq4_nl");
    *ret = t->id;
    return 0;
}

static int take_flash(const char *text, enum estimate_switch *ret)
{
    if (text == NULL || strcmp(text, "on") == 0)
        *ret = ESTIMATE_SWITCH_ON;
    else if (strcmp(text, "off") == 0)
        *ret = ESTIMATE_SWITCH_OFF;
    else if (strcmp(text, "auto") == 0)
        *ret = ESTIMATE_SWITCH_AUTO;
    else
        return refuse("--flash-attention", text, "on, off or auto");
    return 0;
}

static int take_device(const char *text, struct estimate_settings *s)
{
    if (text == NULL || strcmp(text, "gpu") == 0) {
        s->repack = false;
    } else if (strcmp(text, "sim") == 0) {
        s->device_alignment = 64;
    } else if (strcmp(text, "none") == 0) {
        s->device = false;
        s->gpu_layers = 0;
    } else {
        return refuse("--device", text, "sim, gpu or none");
    }
    return 0;
}

static int settings_from_arguments(const struct plan_arguments *a, struct estimate_settings *s)
{
    uint64_t slots = 1;
    uint64_t layers = UINT64_MAX;
    uint64_t batch = 0;
    uint64_t micro_batch = 0;

    estimate_settings_init(s);
    plan_settings_look_at_cpu(s);
    if (take_number("--context", a->context, UINT64_MAX, &s->context_tokens) < 0 ||
        take_number("--slots", a->slots, UINT32_MAX, &slots) < 0 ||
        take_number("--gpu-layers", a->gpu_layers, INT32_MAX, &layers) < 0 ||
        take_number("--batch", a->batch, UINT32_MAX, &batch) < 0 ||
        take_number("--micro-batch", a->micro_batch, UINT32_MAX, &micro_batch) < 0 ||
        take_type("--cache-type-k", a->cache_type_k, &s->cache_type_k) < 0 ||
        take_type("--cache-type-v", a->cache_type_v, &s->cache_type_v) < 0 ||
        take_flash(a->flash_attention, &s->flash_attention) < 0 || take_device(a->device, s) < 0)
        return -EINVAL;
    s->slots = (uint32_t)slots;
    if (layers != UINT64_MAX && s->device)
        s->gpu_layers = (int32_t)layers;
    s->unified = a->unified;
    s->experts_on_host = a->cpu_moe;
    s->mapped = !a->no_mmap;
    if (a->embeddings)
        estimate_settings_embeddings(s);
    s->batch = batch > 0 ? (uint32_t)batch : s->batch;
    s->micro_batch = micro_batch > 0 ? (uint32_t)micro_batch : s->micro_batch;
    return 0;
}

static int copy_paths(const struct plan_arguments *a, struct tier_source *source)
{
    const char *paths[TIER_FILES] = {a->model, a->projector, a->draft};

    for (unsigned i = 0; i < TIER_FILES; i++) {
        if (paths[i] != NULL && (source->paths[i] = strdup(paths[i])) == NULL)
            return -ENOMEM;
    }
    return 0;
}

static int plan_model(const struct plan_arguments *a)
{
    struct plan p = {.count = 1};
    struct plan_entry *e = p.entries = calloc(1, sizeof(*p.entries));
    int status = CLI_EXIT_USAGE;

    if (e == NULL)
        return out_of_memory();
    e->path = a->model;
    if (settings_from_arguments(a, &e->source.settings) < 0)
        goto out;
    if (copy_paths(a, &e->source) < 0 || plan_read_entry(e) < 0) {
        status = out_of_memory();
    } else if (e->problem[0] != '\0') {
        fprintf(stderr, "failsoft plan: %s\n", e->problem);
        status = CLI_EXIT_ENVIRONMENT;
    } else {
        status = print_plan(&p, a->json);
    }
out:
    free_plan(&p);
    return status;
}

int cli_plan_main(int argc, char **argv)
{
    struct plan_arguments a = {0};
    const struct cli_flag flags[] = {
        {"--config", CLI_FLAG_VALUE, NULL, &a.config},
        {"--model", CLI_FLAG_VALUE, NULL, &a.model},
        {"--context", CLI_FLAG_VALUE, NULL, &a.context},
        {"--slots", CLI_FLAG_VALUE, NULL, &a.slots},
        {"--gpu-layers", CLI_FLAG_VALUE, NULL, &a.gpu_layers},
        {"--device", CLI_FLAG_VALUE, NULL, &a.device},
        {"--cache-type-k", CLI_FLAG_VALUE, NULL, &a.cache_type_k},
        {"--cache-type-v", CLI_FLAG_VALUE, NULL, &a.cache_type_v},
        {"--flash-attention", CLI_FLAG_VALUE, NULL, &a.flash_attention},
        {"--batch", CLI_FLAG_VALUE, NULL, &a.batch},
        {"--micro-batch", CLI_FLAG_VALUE, NULL, &a.micro_batch},
        {"--mmproj", CLI_FLAG_VALUE, NULL, &a.projector},
        {"--draft", CLI_FLAG_VALUE, NULL, &a.draft},
        {"--kv-unified", CLI_FLAG_SWITCH, &a.unified, NULL},
        {"--embeddings", CLI_FLAG_SWITCH, &a.embeddings, NULL},
        {"--cpu-moe", CLI_FLAG_SWITCH, &a.cpu_moe, NULL},
        {"--no-mmap", CLI_FLAG_SWITCH, &a.no_mmap, NULL},
        {"--json", CLI_FLAG_SWITCH, &a.json, NULL},
        {NULL, CLI_FLAG_SWITCH, NULL, NULL}};
    const struct cli_arguments arguments = {"plan", help, flags, &a.operand};
    int status;

    if (cli_read_arguments(&arguments, argc, argv, &status) < 0)
        return status;
    if (a.model != NULL && (a.config != NULL || a.operand != NULL)) {
        fputs("failsoft plan: a configuration and a model named; one of them\n", stderr);
        return CLI_EXIT_USAGE;
    }
    return a.model != NULL ? plan_model(&a) : plan_config(&a);
}
