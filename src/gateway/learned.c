/* The table of what was learned, and its file. See learned.h. */
#include "gateway/learned.h"

#include "base/log.h"
#include "config/state_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct learned {
    uv_loop_t *loop;
    char *path; /* NULL: memory only */
    struct learning table;
    struct learning_entry entries[LEARNED_CAPACITY];
    uint64_t write_after_ms;
    uv_timer_t timer;
    uv_work_t job;
    bool job_running;
    bool unsaved; /* changed since the text of the last job was made */
    bool failing; /* the last write failed, and that was said */
    char *text;   /* of the running job */
    size_t text_len;
    int job_result;
    bool closing;
    void (*on_closed)(void *ctx);
    void *on_closed_ctx;
};

/* --- reading --- */

/* The text ends with its line "end N". */
static bool has_end(struct span text)
{
    struct span line, last = SPAN_NONE;
    while (span_split_next(&text, '\n', &line))
        if (line.len > 0)
            last = line;
    return span_starts_with(last, SPAN_LIT("end "));
}

int learned_read(const char *path, struct learning *table, struct learned_reading *ret)
{
    struct learned_reading reading = {0};
    struct buf text;
    /* As much as a full table can be, and one that is larger is not ours. */
    buf_init(&text, learning_text_max(LEARNED_CAPACITY));
    int r = state_file_read(path, &text, &reading.cut);
    if (r == 0) {
        reading.foreign = learning_from_text(table, buf_span(&text), &reading.skipped) < 0;
        reading.cut |= !reading.foreign && !has_end(buf_span(&text));
        *ret = reading;
    }
    buf_free(&text);
    return r;
}

static void read_file(struct learned *l)
{
    struct learned_reading reading = {0};
    int r = learned_read(l->path, &l->table, &reading);
    if (r == -ENOENT)
        return;
    if (r < 0) {
        log_warning("learning", "%s cannot be read: %s", l->path, strerror(-r));
        return;
    }
    if (!reading.skipped && !reading.cut && !reading.foreign)
        return;
    r = state_file_keep_aside(l->path);
    const char *kept = r == 0 ? "; it is kept beside it as .damaged" : "";
    if (reading.foreign)
        log_warning("learning", "%s is not of this version, nothing of it is used%s", l->path,
                    kept);
    else
        log_warning("learning", "%s is damaged: %" PRIu32 " lines skipped%s, the others are used%s",
                    l->path, reading.skipped, reading.cut ? ", its end is missing" : "", kept);
    /* A good one takes its place, so that this is said once. */
    learned_changed(l);
}

/* --- writing --- */

static void on_timer_closed(uv_handle_t *handle)
{
    struct learned *l = handle->data;
    void (*on_closed)(void *) = l->on_closed;
    void *ctx = l->on_closed_ctx;
    free(l->path);
    free(l);
    if (on_closed)
        on_closed(ctx);
}

/* Any thread. */
static void write_work(uv_work_t *job)
{
    struct learned *l = job->data;
    l->job_result = state_file_write(l->path, (struct span){l->text, l->text_len});
}

static void write_now(struct learned *l);

static void write_done(uv_work_t *job, int status)
{
    struct learned *l = job->data;
    int r = status < 0 ? status : l->job_result;
    free(l->text);
    l->text = NULL;
    l->job_running = false;
    if (r < 0 && !l->failing)
        log_warning("learning", "%s cannot be written: %s; what is learned is lost at a restart",
                    l->path, strerror(-r));
    if (r == 0 && l->failing)
        log_info("learning", "%s can be written again", l->path);
    l->failing = r < 0;
    if (l->closing)
        write_now(l);
    else
        l->unsaved |= r < 0; /* goes with the next change, or at the end */
}

/* Starts a job for what is unsaved; when closing and nothing is left to do, goes. */
static void write_now(struct learned *l)
{
    if (l->job_running)
        return;
    if (l->unsaved && l->path) {
        size_t size = learning_text_max(LEARNED_CAPACITY);
        l->unsaved = false;
        l->text = malloc(size);
        if (l->text && learning_to_text(&l->table, l->text, size, &l->text_len) == 0 &&
            uv_queue_work(l->loop, &l->job, write_work, write_done) == 0) {
            l->job_running = true;
            return;
        }
        free(l->text);
        l->text = NULL;
    }
    if (l->closing)
        uv_close((uv_handle_t *)&l->timer, on_timer_closed);
}

static void on_timer(uv_timer_t *timer)
{
    struct learned *l = timer->data;
    write_now(l);
}

void learned_changed(struct learned *l)
{
    l->unsaved = true;
    /* Counted from the first change, or one that comes every second would never be written. */
    if (l->path && !l->closing && !uv_is_active((uv_handle_t *)&l->timer))
        uv_timer_start(&l->timer, on_timer, l->write_after_ms, 0);
}

/* --- life --- */

int learned_open(uv_loop_t *loop, const char *path, uint64_t write_after_ms,
                 struct learned **ret_learned)
{
    struct learned *l = calloc(1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    l->loop = loop;
    l->write_after_ms = write_after_ms;
    learning_init(&l->table, l->entries, LEARNED_CAPACITY);
    l->path = path && path[0] ? strdup(path) : NULL;
    if (path && path[0] && !l->path) {
        free(l);
        return -ENOMEM;
    }
    int r = uv_timer_init(loop, &l->timer);
    if (r < 0) {
        free(l->path);
        free(l);
        return r;
    }
    /* Alone, it keeps no loop alive: closing is what writes the rest. */
    uv_unref((uv_handle_t *)&l->timer);
    l->timer.data = l->job.data = l;
    if (l->path)
        read_file(l);
    *ret_learned = l;
    return 0;
}

struct learning *learned_table(struct learned *l)
{
    return &l->table;
}

void learned_close(struct learned *l, void (*on_closed)(void *ctx), void *ctx)
{
    if (!l || l->closing)
        return;
    l->closing = true;
    l->on_closed = on_closed;
    l->on_closed_ctx = ctx;
    uv_timer_stop(&l->timer);
    uv_ref((uv_handle_t *)&l->timer);
    write_now(l);
}
