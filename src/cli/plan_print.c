/*
 * Estimates as tables for people and as JSON for machines.
 */
#include "cli/plan.h"

#include "base/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

static const char *mib(const struct estimate_bytes *b, char *out, size_t size)
{
    snprintf(out, size, "%.1f", (double)b->bytes / (1024.0 * 1024.0));
    return out;
}

static const char *upper_mib(const struct estimate_bytes *b, char *out, size_t size)
{
    snprintf(out, size, "%.1f", (double)b->upper_bytes / (1024.0 * 1024.0));
    return out;
}

static int write_row(struct buf *out, const char *name, const struct estimate_bytes *device,
                     const struct estimate_bytes *host)
{
    char a[24], b[24], c[24], d[24];

    if (device->upper_bytes == 0 && host->upper_bytes == 0)
        return 0;
    return buf_printf(out, "    %-10s %12s %12s %12s %12s\n", name, mib(device, a, sizeof(a)),
                      upper_mib(device, b, sizeof(b)), mib(host, c, sizeof(c)),
                      upper_mib(host, d, sizeof(d)));
}

static int write_entry(struct buf *out, const struct plan_entry *p)
{
    const struct estimate *e = &p->estimate;
    char device[24], host[24];
    int r;

    r = buf_printf(out, "%s%s%s%s%s\n", p->service ? p->service : p->path, p->tier ? "/" : "",
                   p->tier ? p->tier : "", p->device ? " on " : "", p->device ? p->device : "");
    if (r == 0 && p->problem)
        return buf_printf(out, "  %s\n", p->problem);
    units_format_bytes(e->device_total.bytes, device, sizeof(device));
    units_format_bytes(e->host_total.bytes, host, sizeof(host));
    if (r == 0)
        r = buf_printf(
            out,
            "  %s on the device, %s on the host; %u of %u layers on the device, cache for "
            "%" PRIu64 " tokens (%" PRIu64 " a slot); confidence %s\n",
            device, host, e->device_layers, e->layers, e->kv_tokens, e->slot_tokens,
            estimate_confidence_name(e->confidence));
    if (r == 0)
        r = buf_printf(out, "    %-10s %12s %12s %12s %12s\n", "MiB", "device", "at most", "host",
                       "at most");
    for (int i = 0; r == 0 && i < ESTIMATE_PART_COUNT; i++)
        r = write_row(out, estimate_part_name((enum estimate_part)i), &e->device[i], &e->host[i]);
    if (r == 0)
        r = write_row(out, "total", &e->device_total, &e->host_total);
    for (uint32_t i = 0; r == 0 && i < e->reason_count; i++)
        r = buf_printf(out, "    note: %s\n", e->reasons[i]);
    return r;
}

int plan_write_text(struct buf *out, const struct plan_entry *entries, size_t count)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < count; i++)
        r = write_entry(out, &entries[i]);
    return r;
}

/* --- JSON --- */

static void add_text(yyjson_mut_doc *doc, yyjson_mut_val *to, const char *key, const char *text)
{
    if (text != NULL)
        yyjson_mut_obj_add_strcpy(doc, to, key, text);
}

static void add_bytes(yyjson_mut_doc *doc, yyjson_mut_val *to, const char *key,
                      const struct estimate_bytes *b)
{
    yyjson_mut_val *o = yyjson_mut_obj_add_obj(doc, to, key);

    yyjson_mut_obj_add_uint(doc, o, "bytes", b->bytes);
    yyjson_mut_obj_add_uint(doc, o, "upper_bytes", b->upper_bytes);
}

static void add_side(yyjson_mut_doc *doc, yyjson_mut_val *to, const char *key,
                     const struct estimate_bytes *parts, const struct estimate_bytes *total)
{
    yyjson_mut_val *o = yyjson_mut_obj_add_obj(doc, to, key);

    for (int i = 0; i < ESTIMATE_PART_COUNT; i++)
        add_bytes(doc, o, estimate_part_name((enum estimate_part)i), &parts[i]);
    add_bytes(doc, o, "total", total);
}

static void add_estimate(yyjson_mut_doc *doc, yyjson_mut_val *o, const struct plan_entry *p)
{
    const struct estimate *e = &p->estimate;
    yyjson_mut_val *reasons;

    yyjson_mut_obj_add_strcpy(doc, o, "architecture", p->facts->architecture);
    yyjson_mut_obj_add_uint(doc, o, "layers", e->layers);
    yyjson_mut_obj_add_uint(doc, o, "device_layers", e->device_layers);
    yyjson_mut_obj_add_uint(doc, o, "slots", p->settings.slots);
    yyjson_mut_obj_add_uint(doc, o, "kv_tokens", e->kv_tokens);
    yyjson_mut_obj_add_uint(doc, o, "slot_tokens", e->slot_tokens);
    yyjson_mut_obj_add_str(doc, o, "confidence", estimate_confidence_name(e->confidence));
    reasons = yyjson_mut_obj_add_arr(doc, o, "reasons");
    for (uint32_t i = 0; i < e->reason_count; i++)
        yyjson_mut_arr_add_strcpy(doc, reasons, e->reasons[i]);
    add_side(doc, o, "device", e->device, &e->device_total);
    add_side(doc, o, "host", e->host, &e->host_total);
    yyjson_mut_obj_add_uint(doc, o, "mapped_bytes", e->mapped_bytes);
    yyjson_mut_obj_add_uint(doc, o, "repacked_bytes", e->repacked_bytes);
    yyjson_mut_obj_add_uint(doc, o, "header_read_bytes", p->facts->file->read_bytes);
}

int plan_write_json(struct buf *out, const struct plan_entry *entries, size_t count)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = doc ? yyjson_mut_obj(doc) : NULL;
    yyjson_mut_val *list;
    char *text = NULL;
    int r = -ENOMEM;

    if (root == NULL)
        goto out;
    yyjson_mut_doc_set_root(doc, root);
    list = yyjson_mut_obj_add_arr(doc, root, "plans");
    for (size_t i = 0; i < count; i++) {
        const struct plan_entry *p = &entries[i];
        yyjson_mut_val *o = yyjson_mut_arr_add_obj(doc, list);

        add_text(doc, o, "service", p->service);
        add_text(doc, o, "tier", p->tier);
        add_text(doc, o, "on", p->device);
        add_text(doc, o, "model", p->path);
        add_text(doc, o, "problem", p->problem);
        if (p->problem == NULL)
            add_estimate(doc, o, p);
    }
    text = yyjson_mut_write(doc, YYJSON_WRITE_PRETTY, NULL);
    if (text != NULL)
        r = buf_append_str(out, text);
    if (r == 0)
        r = buf_append_str(out, "\n");
out:
    free(text);
    yyjson_mut_doc_free(doc);
    return r;
}
