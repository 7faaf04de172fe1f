/*
 * `failsoft plan`: how much memory will it take, and where? For a configuration, tier by tier, or
 * for one model file and the settings of the command line.
 */
#include "cli/plan.h"

#include "base/units.h"
#include "cli/cli.h"
#include "model/gguf_type.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUTPUT_MAX_BYTES = 8 * 1024 * 1024, PROBLEM_BYTES = 400 };

static const char help[] =
    "usage: failsoft plan [--config FILE] [--json]\n"
    "       failsoft plan --model FILE [settings] [--json]\n\n"
    "Predicts the memory of every worker before it is started, by part: weights, cache of keys "
    "and\n"
    "values, compute buffers. Reads the headers of the model files only.\n\n"
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
    "exit status: 0 good, 1 a model that cannot be read, 2 wrong usage, 3 no such file\n";

struct plan_arguments {
    const char *config, *operand, *model;
    const char *context, *slots, *gpu_layers, *device, *cache_type_k, *cache_type_v;
    const char *flash_attention, *batch, *micro_batch, *projector, *draft;
    bool json, unified, embeddings, cpu_moe, no_mmap;
};

static int read_model(const char *path, struct plan_model **ret)
{
    struct plan_model *model = calloc(1, sizeof(*model));
    int r;

    if (model == NULL)
        return -ENOMEM;
    r = gguf_file_read(path, &model->file);
    if (r < 0) {
        free(model);
        return r;
    }
    model_facts_read(&model->file, &model->facts);
    *ret = model;
    return 0;
}

static void free_model(struct plan_model *model)
{
    if (model == NULL)
        return;
    gguf_file_free(&model->file);
    free(model);
}

/* --- one tier of a configuration --- */

struct plan_list {
    struct plan_entry *entries;
    struct plan_model **models; /* three an entry: model, projector, draft */
    char (*problems)[PROBLEM_BYTES];
    size_t count, capacity;
};

static void list_free(struct plan_list *l)
{
    for (size_t i = 0; l->models != NULL && i < 3 * l->capacity; i++)
        free_model(l->models[i]);
    free(l->models);
    free(l->entries);
    free(l->problems);
}

static int list_init(struct plan_list *l, size_t capacity)
{
    *l = (struct plan_list){.capacity = capacity > 0 ? capacity : 1};
    l->entries = calloc(l->capacity, sizeof(*l->entries));
    l->models = calloc(3 * l->capacity, sizeof(struct plan_model *));
    l->problems = calloc(l->capacity, sizeof(*l->problems));
    if (l->entries == NULL || l->models == NULL || l->problems == NULL) {
        list_free(l);
        return -ENOMEM;
    }
    return 0;
}

/* Reads one file of the current entry; a failure becomes the entry's problem. 0 or -ENOMEM. */
static int list_read(struct plan_list *l, unsigned which, const char *path)
{
    int r;

    if (path == NULL || l->entries[l->count].problem != NULL)
        return 0;
    r = read_model(path, &l->models[3 * l->count + which]);
    if (r == -ENOMEM)
        return r;
    if (r < 0) {
        snprintf(l->problems[l->count], PROBLEM_BYTES, "%.250s: %s", path, strerror(-r));
        l->entries[l->count].problem = l->problems[l->count];
    }
    return 0;
}

/* Estimates the current entry from what was read, and goes on to the next. */
static void list_finish(struct plan_list *l, const char *unknown_arg)
{
    struct plan_entry *p = &l->entries[l->count];
    struct plan_model **models = &l->models[3 * l->count];

    if (p->problem == NULL) {
        p->facts = &models[0]->facts;
        p->settings.projector = models[1] ? &models[1]->facts : NULL;
        p->settings.draft = models[2] ? &models[2]->facts : NULL;
        if (unknown_arg != NULL)
            model_facts_doubt(&models[0]->facts,
                              "what the argument `%.60s` does to memory is not counted",
                              unknown_arg);
        estimate_make(p->facts, &p->settings, &p->estimate);
    }
    l->count++;
}

static int add_tier(struct plan_list *l, const struct config_service *service,
                    const struct config_tier *tier)
{
    struct plan_entry *p = &l->entries[l->count];
    const char *projector = NULL;
    const char *draft = NULL;
    const char *unknown = NULL;
    int r;

    p->service = service->name;
    p->tier = tier->name;
    p->device = tier->kind == CONFIG_TIER_KIND_CPU ? NULL : tier->device_name;
    p->path = tier->model_path;
    if (!tier->managed)
        p->problem = "somebody else runs this engine; what it takes can only be observed";
    else if (tier->model_path == NULL)
        p->problem = "no model file";
    plan_settings_from_tier(service, tier, &p->settings);
    (void)plan_settings_apply_args(&tier->args, &p->settings, &projector, &draft, &unknown);
    r = list_read(l, 0, p->path);
    if (r == 0)
        r = list_read(l, 1, projector);
    if (r == 0)
        r = list_read(l, 2, draft);
    if (r == 0)
        list_finish(l, unknown);
    return r;
}

static int print_list(const struct plan_list *l, bool json)
{
    int status = CLI_EXIT_GOOD;
    struct buf out;
    int r;

    buf_init(&out, OUTPUT_MAX_BYTES);
    r = json ? plan_write_json(&out, l->entries, l->count)
             : plan_write_text(&out, l->entries, l->count);
    if (r == 0)
        r = cli_print(&out);
    buf_free(&out);
    for (size_t i = 0; i < l->count; i++) {
        if (l->problems[i][0] != '\0' ||
            (l->entries[i].facts != NULL && !l->entries[i].facts->usable))
            status = CLI_EXIT_FINDING;
    }
    return r < 0 ? CLI_EXIT_ENVIRONMENT : status;
}

static int out_of_memory(void)
{
    fputs("failsoft plan: out of memory\n", stderr);
    return CLI_EXIT_ENVIRONMENT;
}

static int plan_tiers(const struct config *c, bool json)
{
    struct plan_list l;
    size_t count = 0;
    int r;

    for (size_t i = 0; i < c->service_count; i++)
        count += c->services[i].tier_count;
    if (list_init(&l, count) < 0)
        return out_of_memory();
    r = 0;
    for (size_t i = 0; r == 0 && i < c->service_count; i++) {
        for (size_t j = 0; r == 0 && j < c->services[i].tier_count; j++)
            r = add_tier(&l, &c->services[i], &c->services[i].tiers[j]);
    }
    r = r < 0 ? out_of_memory() : print_list(&l, json);
    list_free(&l);
    return r;
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

static int plan_model(const struct plan_arguments *a)
{
    struct plan_list l;
    int status;
    int r;

    if (list_init(&l, 1) < 0)
        return out_of_memory();
    l.entries[0].path = a->model;
    r = settings_from_arguments(a, &l.entries[0].settings);
    if (r < 0) {
        list_free(&l);
        return CLI_EXIT_USAGE;
    }
    r = list_read(&l, 0, a->model);
    if (r == 0)
        r = list_read(&l, 1, a->projector);
    if (r == 0)
        r = list_read(&l, 2, a->draft);
    if (r < 0) {
        status = out_of_memory();
    } else if (l.entries[0].problem != NULL) {
        fprintf(stderr, "failsoft plan: %s\n", l.entries[0].problem);
        status = CLI_EXIT_ENVIRONMENT;
    } else {
        list_finish(&l, NULL);
        status = print_list(&l, a->json);
    }
    list_free(&l);
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
