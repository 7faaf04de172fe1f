"""Turns the numbers of a run into bars (met or missed) and tables.

Every figure of the speed tables is the median over the rounds, with the smallest and the largest.
Times on the way are as measured; the direct column is what the host takes without a proxy.
"""

import statistics

NAMES = {"direct": "direct", "nginx": "nginx", "haproxy": "HAProxy", "failsoft": "failsoft",
         "failsoft-llama": "failsoft, llama-server tiers"}
UNITS = {"small": "small request, 32 connections", "one": "small request, 1 connection",
         "stream1": "event, 1 stream", "stream50": "event, 50 streams",
         "stream1000": "event, 1,000 streams"}
BODY_MIB = 8
MARK_BEGIN, MARK_END = "<!-- results -->", "<!-- end of results -->"


def cpu(results, scenario, name):
    return [r["cpu_us"] for r in results["speed"].get(scenario, {}).get(name, []) if "cpu_us" in r]


def on_the_way(results, scenario, name, kind, quantile):
    """Per round: a quantile as measured at the client, in µs."""
    return [r[kind][quantile] for r in results["speed"].get(scenario, {}).get(name, [])
            if r[kind]["count"]]


def middle(values):
    return statistics.median(values) if values else None


def span(values, digits=1):
    if not values:
        return "–"
    text = f"{middle(values):.{digits}f}"
    if len(values) > 1:
        text += f" ({min(values):.{digits}f}–{max(values):.{digits}f})"
    return text


def _bar(what, value, limit, unit, note=""):
    return {"what": what, "value": value, "limit": limit, "unit": unit, "note": note,
            "met": value <= limit}


def _against(bars, what, ours, theirs, unit):
    """A bar that the better of the others sets."""
    known = {name: middle(values) for name, values in theirs.items() if values}
    if not ours or not known:
        return
    best = min(known, key=known.get)
    least = f"{NAMES[best]}; least of the rounds {min(ours):.1f} to {min(theirs[best]):.1f}"
    bars.append(_bar(what, middle(ours), known[best], unit, least))


def bars(results):
    found = []
    for scenario in ("small", "stream1", "stream50", "stream1000"):
        _against(found, f"CPU per {UNITS[scenario]}", cpu(results, scenario, "failsoft"),
                 {"nginx": cpu(results, scenario, "nginx")}, "µs")
    tails = [("stream50", "first_us", "p50"), ("stream50", "first_us", "p99"),
             ("stream50", "event_us", "p50"), ("stream50", "event_us", "p99"),
             ("stream1000", "event_us", "p99"), ("stream1000", "event_us", "p999")]
    for scenario, kind, quantile in tails:
        word = "to the first event" if kind == "first_us" else "per event"
        streams = "50" if scenario == "stream50" else "1,000"
        _against(found, f"time {word}, {streams} streams, {quantile.replace('p999', 'p99.9')}",
                 on_the_way(results, scenario, "failsoft", kind, quantile),
                 {n: on_the_way(results, scenario, n, kind, quantile) for n in ("nginx", "haproxy")},
                 "µs")
    ours = results["memory"].get("failsoft")
    if ours:
        found.append(_bar("memory per idle stream", ours["idle_kib_per_stream"], 8, "KiB"))
        found.append(_bar("memory per active stream", ours["active_kib_per_stream"], 12, "KiB"))
        found.append(_bar("idle memory (RSS)", ours["rss_kib"] / 1024, 10, "MiB"))
    ours = results["body"].get("failsoft")
    if ours:
        found.append(_bar("peak memory for an 8 MiB body", ours["peak_growth_mib"],
                          1.5 * BODY_MIB, "MiB", "one copy and half of one"))
    ours = results["start"].get("failsoft")
    if ours:
        found.append(_bar("start to first answer", middle(ours["first_answer_ms"]), 15, "ms"))
    ours = results["kill"].get("failsoft")
    if ours:
        found.append(_bar(f"failed requests, {ours['kills']} kills under 20/s", ours["failed"], 0, ""))
        found.append(_bar("slowest answer under kills", ours["latency_us"]["max"] / 1000,
                          25 + ours["own_ms"], "ms", "25 ms and the other tier's own time"))
    return found


def _table(head, rows):
    lines = ["| " + " | ".join(head) + " |",
             "|" + "|".join(["---"] + ["---:"] * (len(head) - 1)) + "|"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows] + [""]


def _speed_tables(results):
    speed = results["speed"]
    names = [n for n in NAMES if any(n in row for row in speed.values())]
    rows = []
    for scenario in (s for s in UNITS if s in speed):
        rows.append([UNITS[scenario]] + [span(cpu(results, scenario, n)) for n in names[1:]])
    lines = ["### CPU time of the proxy, µs", ""]
    lines += _table(["per"] + [NAMES[n] for n in names[1:]], rows)
    rows = []
    for scenario, kind, word in (("one", "latency_us", "small request, 1 connection"),
                                 ("stream1", "first_us", "first event, 1 stream"),
                                 ("stream1", "event_us", "event, 1 stream"),
                                 ("stream50", "first_us", "first event, 50 streams"),
                                 ("stream50", "event_us", "event, 50 streams"),
                                 ("stream1000", "first_us", "first event, 1,000 streams"),
                                 ("stream1000", "event_us", "event, 1,000 streams")):
        for quantile in ("p50", "p99", "p999"):
            if scenario not in speed or (quantile == "p999" and scenario != "stream1000"):
                continue
            rows.append([f"{word}, {quantile.replace('p999', 'p99.9')}"]
                        + [span(on_the_way(results, scenario, n, kind, quantile), 0)
                           for n in names])
    lines += ["### Time on the way, µs", ""]
    return lines + _table(["what"] + [NAMES[n] for n in names], rows)


def _other_tables(results):
    lines = []
    if results["memory"]:
        lines += ["### Memory", ""]
        lines += _table(
            ["", "resident when idle, MiB", "per idle stream, KiB", "per active stream, KiB"],
            [[NAMES[n], f"{m['rss_kib'] / 1024:.1f}", f"{m['idle_kib_per_stream']:.1f}",
              f"{m['active_kib_per_stream']:.1f}"] for n, m in results["memory"].items()])
    if results["body"]:
        lines += ["### One 8 MiB body", ""]
        lines += _table(["", "growth of peak memory, MiB", "CPU, ms", "answered after, ms"],
                        [[NAMES[n], f"{b['peak_growth_mib']:.1f}", f"{b['cpu_ms']:.1f}",
                          f"{b['latency_ms']:.1f}"] for n, b in results["body"].items()])
    if results["start"]:
        lines += ["### Start and stop, ms", ""]
        lines += _table(["", "start to first right answer", "SIGTERM to exit"],
                        [[NAMES[n], span(s["first_answer_ms"]), span(s["stop_ms"])]
                         for n, s in results["start"].items()])
    kill = results["kill"].get("failsoft")
    if kill:
        lines += ["### A worker killed under 20 requests/s", "",
                  f"{kill['kills']} kills, each with a request in flight; {kill['requests']} requests"
                  f" (half of them streams), {kill['failed']} failed; each worker takes"
                  f" {kill['own_ms']} ms of its own. p50 {kill['latency_us']['p50'] / 1000:.1f} ms,"
                  f" p99 {kill['latency_us']['p99'] / 1000:.1f} ms, slowest"
                  f" {kill['latency_us']['max'] / 1000:.1f} ms. Answered by: "
                  + ", ".join(f"{t} {n}" for t, n in kill["tiers"].items()) + ".", ""]
    return lines


def _number(value):
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"


def markdown(results, found):
    env = results["environment"]
    lines = [f"Measured on {env['cores']} cores ({env['cpu']}), Linux {env['kernel']}, "
             + "; ".join(env["versions"].values())
             + f"; load average at the start {env['load_average'][0]:.1f}.", ""]
    if found:
        lines += ["### Bars", ""]
        lines += _table(["bar", "failsoft", "limit", "set by", ""],
                        [[b["what"], f"{_number(b['value'])} {b['unit']}".strip(),
                          f"{_number(b['limit'])} {b['unit']}".strip(), b["note"] or "fixed",
                          "met" if b["met"] else "**missed**"] for b in found])
    if results["speed"]:
        lines += _speed_tables(results)
    lines += _other_tables(results)
    if results["wrong"]:
        lines += ["### Wrong answers", ""]
        lines += [f"- {w['what']}: {w['failed']}, {w['errors']}" for w in results["wrong"]] + [""]
    return "\n".join(lines)


def replace_in(path, text):
    """Puts the results between the two marks of a page."""
    page = path.read_text()
    head, rest = page.split(MARK_BEGIN, 1)
    _, tail = rest.split(MARK_END, 1)
    path.write_text(head + MARK_BEGIN + "\n\n" + text.rstrip() + "\n\n" + MARK_END + tail)
