/* Small files, bounded and strict. Blocks on files: never on the loop thread. */
#include "device/text.h"

#include "device/sample.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

enum { TEXT_PATH = 1024 };

bool device_text_join(char *out, size_t out_size, const char *a, const char *b)
{
    int n = snprintf(out, out_size, "%s%s%s", a, b[0] == '/' || b[0] == '\0' ? "" : "/", b);

    return n >= 0 && (size_t)n < out_size;
}

int device_text_read(const char *root, const char *path, char *out, size_t out_size,
                     struct span *ret)
{
    char full[TEXT_PATH];
    size_t len = 0;
    int fd, rc = 0;

    if (!device_text_join(full, sizeof(full), root, path))
        return -ENAMETOOLONG;
    /* A FIFO or a device in place of the file must not hold us. */
    fd = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -errno;
    for (;;) {
        ssize_t n = read(fd, out + len, out_size - len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = -errno;
        if (n <= 0)
            break;
        len += (size_t)n;
        if (len == out_size) {
            rc = -EFBIG;
            break;
        }
    }
    close(fd);
    if (rc < 0)
        return rc;
    out[len] = '\0';
    *ret = (struct span){out, len};
    return 0;
}

static struct span trim(struct span text)
{
    while (text.len > 0 && (text.ptr[text.len - 1] == '\n' || text.ptr[text.len - 1] == ' ' ||
                            text.ptr[text.len - 1] == '\t'))
        text.len--;
    return span_trim(text);
}

/* Digits at the front; what follows them is left in *text. */
static int take_digits(struct span *text, uint64_t *ret)
{
    uint64_t value = 0;
    size_t n = 0;

    while (n < text->len && text->ptr[n] >= '0' && text->ptr[n] <= '9') {
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(text->ptr[n] - '0'), &value))
            return -ERANGE;
        n++;
    }
    if (n == 0)
        return -EINVAL;
    *text = (struct span){text->ptr + n, text->len - n};
    *ret = value;
    return 0;
}

int device_text_parse_u64(struct span text, uint64_t *ret)
{
    uint64_t value;
    int rc;

    text = trim(text);
    rc = take_digits(&text, &value);
    if (rc < 0)
        return rc;
    if (text.len != 0)
        return -EINVAL;
    *ret = value;
    return 0;
}

int device_text_read_u64(const char *root, const char *path, uint64_t *ret)
{
    char buffer[64] = "";
    struct span text;
    int rc = device_text_read(root, path, buffer, sizeof(buffer), &text);

    return rc < 0 ? rc : device_text_parse_u64(text, ret);
}

int device_text_parse_size(struct span text, uint64_t *ret_bytes)
{
    static const struct {
        const char *unit;
        uint64_t bytes;
    } units[] = {
        {"", 1}, {"kB", 1024}, {"KiB", 1024}, {"MiB", 1024 * 1024}, {"GiB", 1024 * 1024 * 1024},
    };
    uint64_t value;
    int rc;

    text = trim(text);
    rc = take_digits(&text, &value);
    if (rc < 0)
        return rc;
    text = trim(text);
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (!span_equals_str(text, units[i].unit))
            continue;
        if (__builtin_mul_overflow(value, units[i].bytes, &value))
            return -ERANGE;
        *ret_bytes = value;
        return 0;
    }
    return -EINVAL;
}

bool device_text_line(struct span *rest, struct span *ret_line)
{
    const char *end;

    if (rest->len == 0)
        return false;
    end = memchr(rest->ptr, '\n', rest->len);
    ret_line->ptr = rest->ptr;
    ret_line->len = end ? (size_t)(end - rest->ptr) : rest->len;
    rest->ptr += end ? ret_line->len + 1 : ret_line->len;
    rest->len -= end ? ret_line->len + 1 : ret_line->len;
    return true;
}

bool device_text_field(struct span text, const char *key, char separator, struct span *ret_value)
{
    struct span line, name = span_from_str(key);

    while (device_text_line(&text, &line)) {
        if (span_starts_with(line, name) && line.len > name.len &&
            line.ptr[name.len] == separator) {
            *ret_value = trim((struct span){line.ptr + name.len + 1, line.len - name.len - 1});
            return true;
        }
    }
    return false;
}

int device_text_field_u64(struct span text, const char *key, char separator, uint64_t *ret)
{
    struct span value;

    if (!device_text_field(text, key, separator, &value))
        return -ENOENT;
    return device_text_parse_u64(value, ret);
}

int device_text_field_size(struct span text, const char *key, char separator, uint64_t *ret_bytes)
{
    struct span value;

    if (!device_text_field(text, key, separator, &value))
        return -ENOENT;
    return device_text_parse_size(value, ret_bytes);
}

void device_text_program(const char *proc, int32_t pid, char *out)
{
    char path[64], buffer[64];
    struct span text = SPAN_NONE;

    out[0] = '\0';
    snprintf(path, sizeof(path), "%" PRId32 "/comm", pid);
    if (device_text_read(proc, path, buffer, sizeof(buffer), &text) < 0)
        return;
    text = trim(text);
    if (text.len >= DEVICE_PROGRAM_MAX)
        text.len = DEVICE_PROGRAM_MAX - 1;
    memcpy(out, text.ptr, text.len);
    out[text.len] = '\0';
}
