/* The kernel's lines about GPUs: F18, F19, F11. */
#include "device_rig.h"

#include "device/kernel_log.h"

#include <errno.h>
#include <string.h>

static const struct {
    const char *name;
    const char *lines; /* several, by line end */
    int events;        /* that come out of them */
    enum device_event_kind kind;
    enum device_fault fault;
    uint32_t code;
    const char *pci;
} cases[] = {
    {"F19: Xid 79", "NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.", 1,
     DEVICE_EVENT_XID, DEVICE_FAULT_LOST, 79, "0000:06:00.0"},
    {"F19: Xid 79 of another card", "NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.",
     1, DEVICE_EVENT_XID, DEVICE_FAULT_LOST, 79, "0000:41:00.0"},
    {"F19: Xid 79 with process",
     "NVRM: Xid (PCI:0000:06:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
     1, DEVICE_EVENT_XID, DEVICE_FAULT_LOST, 79, "0000:06:00.0"},
    {"F19: over several lines, no Xid",
     "NVRM: The NVIDIA GPU 0000:06:00.0\n"
     "NVRM: (PCI ID: 10de:2204) installed in this system has\n"
     "NVRM: fallen off the bus and is not responding to commands.",
     1, DEVICE_EVENT_FAULT, DEVICE_FAULT_LOST, 0, "0000:06:00.0"},
    {"F19: the words themselves cut",
     "NVRM: The NVIDIA GPU 0000:06:00.0 has fallen\nusb 1-2: new device\nNVRM: off the bus and is",
     1, DEVICE_EVENT_FAULT, DEVICE_FAULT_LOST, 0, "0000:06:00.0"},
    {"F19: one line without Xid", "NVRM: GPU 0000:06:00.0: GPU has fallen off the bus.", 1,
     DEVICE_EVENT_FAULT, DEVICE_FAULT_LOST, 0, "0000:06:00.0"},
    {"F19: nobody knows which", "NVRM: A GPU crash dump has been created. fallen off the bus", 1,
     DEVICE_EVENT_FAULT, DEVICE_FAULT_LOST, 0, ""},
    {"F19: Xid 13 is the application's",
     "NVRM: Xid (PCI:0000:06:00): 13, pid=1234, name=llama-server, Graphics SM Warp Exception", 1,
     DEVICE_EVENT_XID, DEVICE_FAULT_APPLICATION, 13, "0000:06:00.0"},
    {"F19: Xid 31 is the application's",
     "NVRM: Xid (PCI:0000:06:00): 31, pid=1234, name=llama-server, Ch 00000008, MMU Fault", 1,
     DEVICE_EVENT_XID, DEVICE_FAULT_APPLICATION, 31, "0000:06:00.0"},
    {"F18: Xid 62", "NVRM: Xid (PCI:0000:06:00): 62, 2087(2108) 00000000 00000000", 1,
     DEVICE_EVENT_XID, DEVICE_FAULT_RESET, 62, "0000:06:00.0"},
    {"F18: Xid 154 asks for a reset",
     "NVRM: Xid (PCI:0000:06:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU "
     "Reset Required)",
     1, DEVICE_EVENT_XID, DEVICE_FAULT_RESET, 154, "0000:06:00.0"},
    {"Xid 154 takes it back",
     "NVRM: Xid (PCI:0000:06:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) "
     "to "
     "0x0 (None)",
     1, DEVICE_EVENT_XID, DEVICE_FAULT_NONE, 154, "0000:06:00.0"},
    {"an Xid of tomorrow", "NVRM: Xid (PCI:0000:06:00): 777, something new", 1, DEVICE_EVENT_XID,
     DEVICE_FAULT_SUSPECT, 777, "0000:06:00.0"},
    {"domain of eight digits, capitals",
     "NVRM: Xid (PCI:0000000A:C1:00): 79, GPU has fallen off the bus.", 1, DEVICE_EVENT_XID,
     DEVICE_FAULT_LOST, 79, "000a:c1:00.0"},
    {"as a record of /dev/kmsg",
     "4,1234,5678901,-;NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.", 1,
     DEVICE_EVENT_XID, DEVICE_FAULT_LOST, 79, "0000:06:00.0"},
    {"as dmesg prints it", "[ 1234.567890] NVRM: Xid (PCI:0000:06:00): 45, pid=1, Ch 0", 1,
     DEVICE_EVENT_XID, DEVICE_FAULT_APPLICATION, 45, "0000:06:00.0"},
    {"an address that is none", "NVRM: Xid (PCI:zz): 79, GPU has fallen off the bus.", 1,
     DEVICE_EVENT_XID, DEVICE_FAULT_LOST, 79, ""},
    {"amdgpu resets", "amdgpu 0000:03:00.0: amdgpu: GPU reset begin!", 1, DEVICE_EVENT_FAULT,
     DEVICE_FAULT_RESET, 0, "0000:03:00.0"},
    {"amdgpu is gone", "amdgpu 0000:03:00.0: amdgpu: device lost from bus!", 1, DEVICE_EVENT_FAULT,
     DEVICE_FAULT_LOST, 0, "0000:03:00.0"},
    {"xe is wedged", "xe 0000:03:00.0: [drm] device 0000:03:00.0 has been declared wedged.", 1,
     DEVICE_EVENT_FAULT, DEVICE_FAULT_LOST, 0, "0000:03:00.0"},
    /* What is none of it. */
    {"a program that says so", "systemd[1]: NVRM: Xid (PCI:0000:06:00): 79, fallen off the bus", 0,
     0, 0, 0, ""},
    {"driver loads", "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.10", 0, 0, 0, 0, ""},
    {"no number", "NVRM: Xid (PCI:0000:06:00): , text", 0, 0, 0, 0, ""},
    {"a number without end", "NVRM: Xid (PCI:0000:06:00): 99999999999999999999, text", 0, 0, 0, 0,
     ""},
    {"nothing", "", 0, 0, 0, 0, ""},
    {"a head alone", "6,1,2,-;", 0, 0, 0, 0, ""},
    {"half of the sentence", "NVRM: The NVIDIA GPU 0000:06:00.0\nNVRM: has fallen", 0, 0, 0, 0, ""},
};

static void test_lines(void **state)
{
    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct kernel_log log = {0};
        struct device_event event = {0};
        struct span text = span_from_str(cases[i].lines), line;
        int events = 0;

        while (span_split_next(&text, '\n', &line))
            events += kernel_log_line(&log, line, &event) ? 1 : 0;
        if (events != cases[i].events || event.fault != cases[i].fault ||
            event.code != cases[i].code || strcmp(event.pci, cases[i].pci) != 0)
            fail_msg("%s: %d events, fault %s, code %u, pci %s", cases[i].name, events,
                     device_fault_name(event.fault), event.code, event.pci);
        if (events > 0) {
            assert_int_equal(event.kind, cases[i].kind);
            assert_true(event.text[0] != '\0');
        }
    }
}

/* One loss is one event, and the next sentence starts anew. */
static void test_multi_line_is_told_once(void **state)
{
    struct kernel_log log = {0};
    struct device_event event;

    (void)state;
    assert_false(kernel_log_line(&log, SPAN_LIT("NVRM: The NVIDIA GPU 0000:06:00.0"), &event));
    assert_true(kernel_log_line(&log, SPAN_LIT("NVRM: has fallen off the bus and is"), &event));
    assert_false(kernel_log_line(&log, SPAN_LIT("NVRM: not responding to commands."), &event));
    assert_true(kernel_log_line(&log, SPAN_LIT("NVRM: has fallen off the bus"), &event));
    assert_string_equal(event.pci, "");
}

/* F19: only the device that is meant. */
static void test_which_device(void **state)
{
    struct device_event event = {.pci = "0000:06:00.0"};

    (void)state;
    assert_true(kernel_log_is_about(&event, "0000:06:00.0"));
    assert_false(kernel_log_is_about(&event, "0000:07:00.0"));
    assert_false(kernel_log_is_about(&event, ""));
    event.pci[0] = '\0';
    assert_false(kernel_log_is_about(&event, ""));
    assert_false(kernel_log_is_about(&event, "0000:06:00.0"));
}

static void test_pci(void **state)
{
    static const struct {
        const char *text, *pci;
    } addresses[] = {
        {"PCI:0000:06:00", "0000:06:00.0"},
        {"0000:06:00.0", "0000:06:00.0"},
        {"00000000:06:00.0", "0000:06:00.0"},
        {"06:00.1", "0000:06:00.1"},
        {"0000:C1:1f.7", "0000:c1:1f.7"},
        {"12:34", NULL},
        {"12:34:56:78", NULL},
        {"0000:06:20.0", NULL},
        {"0000:06:00.8", NULL},
        {"0000:06:00.0x", NULL},
        {"", NULL},
        {"PCI:", NULL},
        {"123456789:06:00.0", NULL},
        {"0000:106:00.0", NULL},
    };

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(addresses); i++) {
        char out[DEVICE_PCI_MAX] = "untouched";
        int rc = kernel_log_pci(span_from_str(addresses[i].text), out);

        assert_string_equal(out, addresses[i].pci ? addresses[i].pci : "untouched");
        assert_int_equal(rc, addresses[i].pci ? 0 : -EINVAL);
    }
}

/* Whatever a log holds: long lines, all bytes, cuts. For the sanitizers. */
static void test_any_bytes(void **state)
{
    struct kernel_log log = {0};
    struct device_event event;
    uint64_t seed = 88172645463325252ull;
    char line[700];

    (void)state;
    for (int round = 0; round < 20000; round++) {
        size_t len = seed % sizeof(line);
        const char *start = cases[seed % UNIT_COUNT(cases)].lines;
        size_t copied = strlen(start) < len ? strlen(start) : len;

        memcpy(line, start, copied);
        for (size_t i = copied; i < len; i++) {
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            line[i] = (char)seed;
        }
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        if (len > 0)
            line[seed % len] = (char)(seed >> 8);
        (void)kernel_log_line(&log, (struct span){line, len}, &event);
        assert_true(log.tail_len <= sizeof(log.tail));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),        cmocka_unit_test(test_multi_line_is_told_once),
        cmocka_unit_test(test_which_device), cmocka_unit_test(test_pci),
        cmocka_unit_test(test_any_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
