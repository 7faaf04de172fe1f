/*
 * Telemetry on a loop: a source that hangs, a host that slept, events, and an end at any moment.
 * Clocks are the system's plus an offset that the test moves; nothing sleeps.
 */
#include "device_rig.h"

#include "device/monitor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* --- a source of our own, that hangs at will --- */

static pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t fake_changed = PTHREAD_COND_INITIALIZER;
static bool fake_hangs;
static unsigned fake_inside;
static unsigned fake_opened;
static unsigned fake_closed;
static uint64_t fake_free = 7 * GIB;
static int fake_open_rc;

static int fake_open(const struct device_spec *spec, const struct device_roots *roots,
                     void **ret_state, enum device_state *ret_device, char *why)
{
    int rc;

    (void)spec;
    (void)roots;
    pthread_mutex_lock(&fake_lock);
    rc = fake_open_rc;
    fake_opened += rc == 0 ? 1 : 0;
    pthread_mutex_unlock(&fake_lock);
    if (rc < 0) {
        *ret_device = DEVICE_STATE_NO_DRIVER;
        snprintf(why, DEVICE_WHY_MAX, "no driver here");
        return rc;
    }
    *ret_state = malloc(16); /* a leak of a thread that hangs would be seen */
    return *ret_state != NULL ? 0 : -ENOMEM;
}

static int fake_sample(void *source, struct device_sample *sample)
{
    (void)source;
    pthread_mutex_lock(&fake_lock);
    fake_inside++;
    pthread_cond_broadcast(&fake_changed);
    while (fake_hangs)
        pthread_cond_wait(&fake_changed, &fake_lock);
    fake_inside--;
    sample->free_bytes = fake_free;
    pthread_mutex_unlock(&fake_lock);
    sample->state = DEVICE_STATE_PRESENT;
    sample->has = DEVICE_HAS_TOTAL | DEVICE_HAS_FREE;
    sample->total_bytes = 8 * GIB;
    snprintf(sample->pci, sizeof(sample->pci), "0000:06:00.0");
    return 0;
}

static void fake_close(void *source)
{
    pthread_mutex_lock(&fake_lock);
    fake_closed++;
    pthread_mutex_unlock(&fake_lock);
    free(source);
}

static const struct device_source_ops fake_ops = {"fake", fake_open, fake_sample, fake_close};

static const struct device_source_ops *fake_for(enum device_kind kind)
{
    (void)kind;
    return &fake_ops;
}

static void set_hangs(bool hangs)
{
    pthread_mutex_lock(&fake_lock);
    fake_hangs = hangs;
    pthread_cond_broadcast(&fake_changed);
    pthread_mutex_unlock(&fake_lock);
}

/* --- clocks --- */

static atomic_ullong forward_ms; /* both clocks */
static atomic_ullong slept_ms;   /* boot time alone */

static uint64_t monotonic_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000 + atomic_load(&forward_ms);
}

static uint64_t boottime_ms(void)
{
    return monotonic_ms() + 1000 + atomic_load(&slept_ms);
}

/* --- the rig --- */

struct rig {
    uv_loop_t loop;
    uv_timer_t limit;
    struct device_monitor *monitor;
    struct device_monitor_options options;
    struct device_spec spec;
    unsigned samples, hosts, events, hung, unhung, resumed, xids, losses, stale;
    struct device_sample sample;
    struct host_sample host;
    struct device_event event;
    char event_device[DEVICE_NAME_MAX]; /* "-": none */
    bool over;
};

static struct rig *r;

static void on_sample(void *ctx, const struct device_sample *sample)
{
    (void)ctx;
    r->samples++;
    r->stale += (sample->flags & DEVICE_FLAG_STALE) != 0 ? 1 : 0;
    r->sample = *sample;
}

static void on_host(void *ctx, const struct host_sample *sample)
{
    (void)ctx;
    r->hosts++;
    r->host = *sample;
}

static void on_event(void *ctx, const char *device, const struct device_event *event)
{
    (void)ctx;
    r->events++;
    r->hung += event->kind == DEVICE_EVENT_HUNG ? 1 : 0;
    r->unhung += event->kind == DEVICE_EVENT_UNHUNG ? 1 : 0;
    r->resumed += event->kind == DEVICE_EVENT_RESUMED ? 1 : 0;
    r->xids += event->kind == DEVICE_EVENT_XID || event->kind == DEVICE_EVENT_FAULT ? 1 : 0;
    r->losses += event->fault == DEVICE_FAULT_LOST ? 1 : 0;
    r->event = *event;
    snprintf(r->event_device, sizeof(r->event_device), "%s", device != NULL ? device : "-");
}

static void on_limit(uv_timer_t *timer)
{
    (void)timer;
    r->over = true;
}

static int setup(void **state)
{
    if (rig_setup(state) != 0)
        return -1;
    r = calloc(1, sizeof(*r));
    if (r == NULL)
        return -1;
    atomic_store(&forward_ms, 0);
    atomic_store(&slept_ms, 0);
    fake_hangs = false;
    fake_opened = fake_closed = 0;
    fake_open_rc = 0;
    fake_free = 7 * GIB;
    uv_loop_init(&r->loop);
    uv_timer_init(&r->loop, &r->limit);
    device_monitor_options_init(&r->options);
    snprintf(r->spec.name, sizeof(r->spec.name), "gpu0");
    r->spec.kind = DEVICE_KIND_AMD;
    r->options.devices = &r->spec;
    r->options.n_devices = 1;
    r->options.roots = rig_roots;
    r->options.interval_ms = 10;
    r->options.deadline_ms = 5000;
    r->options.restart_ms = 100000;
    r->options.restart_max_ms = 400000;
    r->options.reopen_ms = 100000;
    r->options.host = r->options.events = r->options.kmsg = false;
    r->options.clock = (struct device_clock){monotonic_ms, boottime_ms};
    r->options.source_for = fake_for;
    return 0;
}

static void start(void)
{
    const struct device_monitor_calls calls = {on_sample, on_host, on_event};

    assert_int_equal(device_monitor_create(&r->loop, &r->options, &calls, NULL, &r->monitor), 0);
}

/* Turns the loop until `done`, for 30 s at most. */
static void turn_until(bool (*done)(void))
{
    r->over = false;
    uv_timer_start(&r->limit, on_limit, 30000, 0);
    while (!done() && !r->over)
        uv_run(&r->loop, UV_RUN_ONCE);
    uv_timer_stop(&r->limit);
    if (r->over)
        fail_msg("nothing came in 30 s");
}

/* Waits until no thread is left: each gives the lock of its sampler last. */
static int teardown(void **state)
{
    const struct timespec moment = {.tv_nsec = 1000000};

    set_hangs(false);
    device_monitor_destroy(r->monitor);
    uv_close((uv_handle_t *)&r->limit, NULL);
    uv_run(&r->loop, UV_RUN_DEFAULT);
    for (int i = 0; i < 30000 && sampler_threads() > 0; i++)
        nanosleep(&moment, NULL);
    if (sampler_threads() > 0 || uv_loop_close(&r->loop) != 0)
        return -1;
    free(r);
    r = NULL;
    return rig_teardown(state);
}

static bool have_sample(void)
{
    return r->samples > 0;
}

static bool have_three(void)
{
    return r->samples >= 3;
}

static bool is_inside(void)
{
    bool inside;

    pthread_mutex_lock(&fake_lock);
    inside = fake_inside > 0;
    pthread_mutex_unlock(&fake_lock);
    return inside;
}

static bool are_two_inside(void)
{
    bool inside;

    pthread_mutex_lock(&fake_lock);
    inside = fake_inside == 2;
    pthread_mutex_unlock(&fake_lock);
    return inside;
}

static bool free_is(uint64_t bytes)
{
    struct device_sample s;
    uint64_t got;

    return device_monitor_latest(r->monitor, "gpu0", &s) &&
           device_sample_free(&s, monotonic_ms(), 2000, &got) && got == bytes;
}

static void test_samples_come(void **state)
{
    struct device_sample s;

    (void)state;
    start();
    assert_true(device_monitor_latest(r->monitor, "gpu0", &s));
    assert_int_equal(s.has, 0); /* before the first one nothing is known */
    assert_true((s.flags & DEVICE_FLAG_STALE) != 0);
    assert_false(device_monitor_latest(r->monitor, "gpu1", &s));
    turn_until(have_three);
    assert_true(free_is(7 * GIB));
    assert_string_equal(r->sample.source, "fake");
    assert_string_equal(r->sample.device, "gpu0");
    assert_int_equal(fake_opened, 1);
}

static bool is_hung(void)
{
    return r->hung > 0;
}

static bool is_stale(void)
{
    return r->stale > 0;
}

static bool is_unhung(void)
{
    return r->unhung > 0;
}

static unsigned turns;

static void on_turn(uv_timer_t *timer)
{
    (void)timer;
    turns++;
}

static bool turned_a_hundred_times(void)
{
    return turns >= 100;
}

static bool turned_a_few_times(void)
{
    return turns >= 20;
}

/* F18: the call blocks. Values get old, then stale; the loop turns; nobody piles up threads. */
static void test_f18_a_call_that_hangs(void **state)
{
    static uv_timer_t timer;
    struct device_sample s;
    uint64_t bytes;

    (void)state;
    start();
    turn_until(have_sample);
    set_hangs(true);
    turn_until(is_inside);
    /* While it hangs, the loop does its work. */
    turns = 0;
    uv_timer_init(&r->loop, &timer);
    uv_timer_start(&timer, on_turn, 1, 1);
    turn_until(turned_a_hundred_times);
    /* Old enough to be stale, not yet late. */
    atomic_fetch_add(&forward_ms, 2500);
    turn_until(is_stale);
    assert_int_equal(r->hung, 0);
    assert_false(device_sample_free(&r->sample, monotonic_ms(), 2000, &bytes));
    assert_false(free_is(7 * GIB));
    /* Over the deadline. */
    atomic_fetch_add(&forward_ms, 5001);
    turn_until(is_hung);
    assert_string_equal(r->event_device, "gpu0");
    /* Nothing is hurried. */
    turns = 0;
    turn_until(turned_a_few_times);
    assert_int_equal(sampler_threads(), 1);
    assert_true(device_monitor_latest(r->monitor, "gpu0", &s));
    assert_true((s.flags & DEVICE_FLAG_HUNG) != 0);
    /* After the pause one more thread tries, and hangs as well. */
    atomic_fetch_add(&forward_ms, 100001);
    turn_until(are_two_inside);
    /* Then no more, however long it lasts. */
    for (int hour = 0; hour < 20; hour++) {
        atomic_fetch_add(&forward_ms, 3600000);
        turns = 0;
        turn_until(turned_a_few_times);
        assert_int_equal(sampler_threads(), SAMPLER_THREADS_MAX);
    }
    assert_int_equal(fake_opened, 2);
    assert_int_equal(r->hung, 2); /* each thread is told once */
    /* The driver wakes up: sampling goes on by itself, and all that was opened gets closed. */
    pthread_mutex_lock(&fake_lock);
    fake_free = 6 * GIB;
    pthread_mutex_unlock(&fake_lock);
    set_hangs(false);
    turn_until(is_unhung);
    r->samples = 0;
    turn_until(have_sample);
    assert_true(free_is(6 * GIB));
    assert_true(device_monitor_latest(r->monitor, "gpu0", &s));
    assert_int_equal(s.flags & (DEVICE_FLAG_STALE | DEVICE_FLAG_HUNG), 0);
    turns = 0;
    turn_until(turned_a_few_times);
    assert_int_equal(r->unhung, 1);
    uv_close((uv_handle_t *)&timer, NULL);
}

/* What an abandoned thread brings home late does not count. */
static void test_a_late_result_is_dropped(void **state)
{
    (void)state;
    set_hangs(true);
    start();
    turn_until(is_inside);
    atomic_fetch_add(&forward_ms, 5001);
    turn_until(is_hung);
    set_hangs(false);
    turn_until(is_unhung);
    assert_int_equal(fake_opened, 2);
    assert_true(free_is(7 * GIB));
}

static void test_end_while_it_hangs(void **state)
{
    (void)state;
    set_hangs(true);
    start();
    turn_until(is_inside);
    device_monitor_destroy(r->monitor);
    r->monitor = NULL;
    uv_run(&r->loop, UV_RUN_NOWAIT); /* closes without waiting for the thread */
    assert_int_equal(sampler_threads(), 1);
    assert_int_equal(r->samples, 0);
}

static bool is_resumed(void)
{
    return r->resumed > 0;
}

/* F15: after a sleep nothing from before counts, not even what was measured while it began. */
static void test_f15_resume(void **state)
{
    struct device_sample s;

    (void)state;
    rig_meminfo(64 * GIB, 32 * GIB);
    r->options.host = true;
    start();
    turn_until(have_sample);
    set_hangs(true); /* a pass is under way when the host goes to sleep */
    turn_until(is_inside);
    r->samples = 0;
    atomic_store(&slept_ms, 7200000);
    set_hangs(false); /* it comes back with figures from before */
    turn_until(is_resumed);
    assert_in_range(r->event.slept_ms, 7200000, 7200000);
    assert_string_equal(r->event_device, "-");
    assert_true(r->samples > 0);
    assert_true((r->sample.flags & DEVICE_FLAG_RESUMED) != 0);
    assert_int_equal(r->sample.has, 0);
    assert_true(device_monitor_latest(r->monitor, "gpu0", &s));
    assert_false(free_is(7 * GIB));
    assert_int_equal(r->host.has, 0);
    /* And new ones come. */
    r->samples = 0;
    turn_until(have_sample);
    assert_true(free_is(7 * GIB));
    assert_int_equal(r->resumed, 1);
}

static void test_a_source_that_is_not_there(void **state)
{
    (void)state;
    fake_open_rc = -ENOENT;
    start();
    turn_until(have_sample);
    assert_int_equal(r->sample.state, DEVICE_STATE_NO_DRIVER);
    assert_string_equal(r->sample.why, "no driver here");
    assert_false(free_is(7 * GIB));
    pthread_mutex_lock(&fake_lock);
    fake_open_rc = 0;
    pthread_mutex_unlock(&fake_lock);
    r->samples = 0;
    turn_until(have_three);
    assert_int_equal(r->sample.state, DEVICE_STATE_NO_DRIVER); /* not tried at every sample */
    atomic_fetch_add(&forward_ms, 100001);
    device_monitor_poke(r->monitor, NULL);
    for (r->over = false; !free_is(7 * GIB) && !r->over;)
        turn_until(have_sample), r->samples = 0;
}

/* --- events --- */

static bool have_xid(void)
{
    return r->xids > 0;
}

/* F18: Xid 154 says so without any request and while samples look well. */
static void test_f18_xid_from_nvml(void **state)
{
    (void)state;
    rig_meminfo(64 * GIB, 32 * GIB);
    r->spec.kind = DEVICE_KIND_NVIDIA;
    r->options.events = true;
    r->options.source_for = device_source_for;
    start();
    turn_until(have_sample);
    assert_int_equal(r->sample.free_bytes, 23500 * MIB);
    pthread_mutex_lock(&rig_nvml->lock);
    rig_nvml->recovery = 1;
    rig_nvml->xid = 154;
    pthread_cond_broadcast(&rig_nvml->changed);
    pthread_mutex_unlock(&rig_nvml->lock);
    turn_until(have_xid);
    assert_int_equal(r->event.code, 154);
    assert_int_equal(r->event.fault, DEVICE_FAULT_RESET);
    assert_string_equal(r->event_device, "gpu0");
}

static bool stub_is_inside(void)
{
    bool inside;

    pthread_mutex_lock(&rig_nvml->lock);
    inside = rig_nvml->in_blocked > 0;
    pthread_mutex_unlock(&rig_nvml->lock);
    return inside;
}

/* The library itself blocks; Xid events come all the same. */
static void test_nvml_blocks(void **state)
{
    (void)state;
    r->spec.kind = DEVICE_KIND_NVIDIA;
    r->options.events = true;
    r->options.source_for = device_source_for;
    rig_nvml->blocked = true;
    start();
    turn_until(stub_is_inside);
    pthread_mutex_lock(&rig_nvml->lock);
    rig_nvml->xid = 79;
    pthread_cond_broadcast(&rig_nvml->changed);
    pthread_mutex_unlock(&rig_nvml->lock);
    turn_until(have_xid);
    assert_int_equal(r->event.fault, DEVICE_FAULT_LOST);
    atomic_fetch_add(&forward_ms, 5100);
    turn_until(is_hung);
    pthread_mutex_lock(&rig_nvml->lock);
    rig_nvml->blocked = false;
    pthread_cond_broadcast(&rig_nvml->changed);
    pthread_mutex_unlock(&rig_nvml->lock);
    turn_until(is_unhung);
}

/* F19: the kernel's log names a card by its address; only that one is meant. */
static void test_f19_kernel_log(void **state)
{
    static const struct {
        const char *record, *device;
        enum device_fault fault;
    } cases[] = {
        {"4,1,1,-;NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.\n", "gpu0",
         DEVICE_FAULT_LOST},
        {"4,2,2,-;NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.\n", "-",
         DEVICE_FAULT_LOST},
        {"4,3,3,-;NVRM: Xid (PCI:0000:06:00): 31, pid=7, MMU Fault\n SUBSYSTEM=pci\n", "gpu0",
         DEVICE_FAULT_APPLICATION},
    };
    int fd;

    (void)state;
    assert_int_equal(mkfifo(rig_roots.kmsg, 0600), 0);
    fd = open(rig_roots.kmsg, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    r->options.kmsg = true;
    start();
    turn_until(have_sample);
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        ssize_t n = (ssize_t)strlen(cases[i].record);

        r->xids = 0;
        assert_int_equal(write(fd, cases[i].record, (size_t)n), n);
        turn_until(have_xid);
        assert_string_equal(r->event_device, cases[i].device);
        assert_int_equal(r->event.fault, cases[i].fault);
        assert_null(strstr(r->event.text, "SUBSYSTEM")); /* the record's first line alone */
    }
    close(fd);
}

static bool have_lost(void)
{
    return r->losses > 0;
}

/* A storm of lesser lines, while the loop is busy, does not crowd out the one that matters. */
static void test_a_storm_of_events(void **state)
{
    static const char lesser[] = "4,1,1,-;NVRM: Xid (PCI:0000:06:00): 13, pid=7, Graphics\n";
    static const char lost[] = "4,2,2,-;NVRM: Xid (PCI:0000:06:00): 79, off the bus\n";
    const struct timespec moment = {.tv_nsec = 1000000};
    int fd, left = 1;

    (void)state;
    assert_int_equal(mkfifo(rig_roots.kmsg, 0600), 0);
    fd = open(rig_roots.kmsg, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    r->options.kmsg = true;
    start();
    turn_until(have_sample);
    /* A pipe, unlike the log, does not keep records apart: one at a time. */
    for (int i = 0; i <= 3 * (int)SAMPLER_EVENTS_MAX; i++) {
        const char *record = i < 3 * (int)SAMPLER_EVENTS_MAX ? lesser : lost;

        assert_int_equal(write(fd, record, strlen(record)), strlen(record));
        for (left = 1; left > 0; nanosleep(&moment, NULL))
            assert_int_equal(ioctl(fd, FIONREAD, &left), 0);
    }
    turn_until(have_lost);
    assert_in_range(r->events, 1, SAMPLER_EVENTS_MAX + 1);
    close(fd);
}

/* --- the host --- */

static bool have_host_with_process(void)
{
    return r->host.n_processes == 1 && r->host.processes[0].known;
}

static void test_host(void **state)
{
    const int32_t pids[] = {100};
    struct host_sample s;
    uint64_t bytes;

    (void)state;
    rig_meminfo(64 * GIB, 32 * GIB);
    rig_put("proc/100/status", "VmRSS:\t 1024 kB\n");
    r->options.host = true;
    start();
    device_monitor_watch(r->monitor, pids, 1);
    turn_until(have_host_with_process);
    assert_int_equal(r->host.processes[0].rss_bytes, MIB);
    assert_true(device_monitor_host(r->monitor, &s));
    assert_true(host_sample_available(&s, monotonic_ms(), 2000, &bytes));
    assert_int_equal(bytes, 32 * GIB);
}

static void test_options(void **state)
{
    struct device_spec twice[] = {{.name = "a"}, {.name = "a"}};
    struct device_spec none[] = {{.name = ""}};
    const struct device_monitor_calls calls = {0};
    struct device_monitor *m = NULL;

    (void)state;
    r->options.devices = twice;
    r->options.n_devices = 2;
    assert_int_equal(device_monitor_create(&r->loop, &r->options, &calls, NULL, &m), -EINVAL);
    r->options.devices = none;
    r->options.n_devices = 1;
    assert_int_equal(device_monitor_create(&r->loop, &r->options, &calls, NULL, &m), -EINVAL);
    assert_null(m);
    device_monitor_destroy(NULL);
}

#define ON_LOOP(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_LOOP(test_samples_come),
        ON_LOOP(test_f18_a_call_that_hangs),
        ON_LOOP(test_a_late_result_is_dropped),
        ON_LOOP(test_end_while_it_hangs),
        ON_LOOP(test_f15_resume),
        ON_LOOP(test_a_source_that_is_not_there),
        ON_LOOP(test_f18_xid_from_nvml),
        ON_LOOP(test_nvml_blocks),
        ON_LOOP(test_f19_kernel_log),
        ON_LOOP(test_a_storm_of_events),
        ON_LOOP(test_host),
        ON_LOOP(test_options),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
