/* Writes the metrics page of the sample snapshot to stdout, for a parser that nobody here wrote. */
#include "admin/pages.h"
#include "sample.h"

#include <stdio.h>

int main(void)
{
    struct gateway_snapshot s = sample_snapshot();
    struct buf b;
    int r;

    buf_init(&b, 1 << 20);
    r = admin_write_metrics(&s, &b);
    if (r == 0)
        fwrite(b.data, 1, b.len, stdout);
    buf_free(&b);
    return r == 0 ? 0 : 1;
}
