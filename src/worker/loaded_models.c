/* See loaded_models.h. Names are cut at nothing and judged by nobody: they go back to whom they came from. */
#include "worker/loaded_models.h"

#include <errno.h>
#include <string.h>
#include <yyjson.h>

static yyjson_doc *read_page(struct span body)
{
    if (body.len == 0 || body.len > LOADED_MODELS_PAGE_BYTES)
        return NULL;
    return yyjson_read(body.ptr, body.len, 0);
}

static int append_name(struct buf *names, yyjson_val *value)
{
    const char *name = yyjson_get_str(value);
    /* A NUL inside would make two names of it. */
    if (!name || name[0] == '\0' || strlen(name) != yyjson_get_len(value))
        return 0;
    int r = buf_append(names, name, strlen(name) + 1);
    return r < 0 ? r : 1;
}

int loaded_models_ollama(struct span body, struct buf *ret_names)
{
    yyjson_doc *doc = read_page(body);
    yyjson_val *models = yyjson_obj_get(yyjson_doc_get_root(doc), "models"), *one;
    int count = yyjson_is_arr(models) ? 0 : -EBADMSG;
    size_t i, max;

    yyjson_arr_foreach(models, i, max, one)
    {
        int r = append_name(ret_names, yyjson_obj_get(one, "model"));
        if (r < 0) {
            count = r;
            break;
        }
        count += r;
    }
    yyjson_doc_free(doc);
    return count;
}

static bool is_held(yyjson_val *status)
{
    yyjson_val *value = yyjson_obj_get(status, "value");
    return yyjson_equals_str(value, "loaded") || yyjson_equals_str(value, "loading") ||
           yyjson_equals_str(value, "sleeping");
}

int loaded_models_router(struct span body, const char *only, struct buf *ret_names)
{
    yyjson_doc *doc = read_page(body);
    yyjson_val *models = yyjson_obj_get(yyjson_doc_get_root(doc), "data"), *one;
    int count = yyjson_is_arr(models) ? 0 : -EBADMSG;
    bool router = false;
    size_t i, max;

    yyjson_arr_foreach(models, i, max, one)
    {
        yyjson_val *status = yyjson_obj_get(one, "status"), *id = yyjson_obj_get(one, "id");
        router = router || yyjson_is_obj(status);
        if (!is_held(status) || (only && !yyjson_equals_str(id, only)))
            continue;
        int r = append_name(ret_names, id);
        if (r < 0) {
            count = r;
            break;
        }
        count += r;
    }
    /* A router without any model lists none: nothing to unload there either. */
    bool single = yyjson_is_arr(models) && yyjson_arr_size(models) > 0 && !router;
    yyjson_doc_free(doc);
    return single ? -ENOTSUP : count;
}
