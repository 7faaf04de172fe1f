"""The pages about failsoft itself, read by parsers that nobody here wrote."""

import json
import math
import signal
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rig_gateway import binary

WEIRD = 'we"ird\\na\nme\ufffd'


def families_of(text):
    families = {}
    for family in text_string_to_metric_families(text):
        assert family.name not in families, f"{family.name} stands in two places"
        families[family.name] = family
    return families


def check_families(families):
    """What promtool's linter asks for, and that histograms add up."""
    for name, family in families.items():
        assert name.startswith("failsoft_"), name
        assert family.documentation, name
        assert not name.endswith(("_ms", "_bytes_total_ms")), name
        for sample in family.samples:
            assert not math.isnan(sample.value), sample
            if family.type == "counter":
                assert sample.name == name + "_total", sample
        if family.type == "histogram":
            check_histogram(family)


def check_histogram(family):
    series = {}
    for sample in family.samples:
        labels = dict(sample.labels)
        bound = labels.pop("le", None)
        one = series.setdefault(tuple(sorted(labels.items())), {"buckets": []})
        if sample.name.endswith("_bucket"):
            one["buckets"].append((float(bound), sample.value))
        else:
            one[sample.name.rsplit("_", 1)[1]] = sample.value
    for one in series.values():
        assert [b for b, _ in one["buckets"]] == sorted(b for b, _ in one["buckets"])
        values = [v for _, v in one["buckets"]]
        assert values == sorted(values), "buckets are cumulative"
        assert one["buckets"][-1] == (math.inf, one["count"])
        assert "sum" in one


def value_of(families, name, **labels):
    for family in families.values():
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return sample.value
    raise AssertionError(f"no {name} {labels}")


def test_sample_page():
    program = binary().parent.parent / "tests/unit/admin/admin_sample_metrics"
    if not program.exists():
        pytest.skip("built without the unit tests")
    text = subprocess.run([program], capture_output=True, check=True, timeout=10).stdout.decode()
    families = families_of(text)
    check_families(families)
    assert value_of(families, "failsoft_requests_total", service="chat") == 90
    assert value_of(families, "failsoft_requests_total", service=WEIRD) == 0
    assert value_of(families, "failsoft_tier_usable", service=WEIRD, tier="cpu") == 1
    assert value_of(families, "failsoft_first_event_seconds_sum", service="chat", tier="gpu") == 12.25
    assert value_of(families, "failsoft_first_event_seconds_bucket",
                    service="chat", tier="gpu", le="2.5") == 5


def test_live_metrics(gateway):
    gateway.chat()
    answer = gateway.call("GET", "/metrics")
    assert answer.status == 200
    families = families_of(answer.body.decode())
    check_families(families)
    assert value_of(families, "failsoft_requests_ended_total", service="chat", outcome="done") == 1
    assert value_of(families, "failsoft_request_duration_seconds_count", service="chat") == 1
    assert value_of(families, "failsoft_first_event_seconds_count", service="chat", tier="gpu") == 1


def test_status_command(gateway):
    """The command shows what the page says, as a table and as JSON."""
    gateway.chat()
    table = subprocess.run([binary(), "status", "--url", gateway.url], capture_output=True,
                           text=True, timeout=10)
    assert table.returncode == 0, table
    for word in ("chat (chat): ready", "gpu", "cpu", "external", "llama-server"):
        assert word in table.stdout, table.stdout
    raw = subprocess.run([binary(), "status", "--json", "--url", gateway.url], capture_output=True,
                         text=True, timeout=10)
    page = json.loads(raw.stdout)
    assert page["state"] == "ready"
    assert [t["name"] for t in page["services"][0]["tiers"]] == ["gpu", "cpu"]


def test_ready_and_health(gateway):
    health = gateway.call("GET", "/healthz")
    assert (health.status, json.loads(health.body)["status"]) == (200, "ok")
    ready = gateway.call("GET", "/readyz")
    assert (ready.status, json.loads(ready.body)["status"]) == (200, "ready")


def test_status_watch_ends_with_an_interrupt(gateway):
    with subprocess.Popen([binary(), "status", "--watch", "--url", gateway.url],
                          stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout.readline().startswith("failsoft ")
        watch.send_signal(signal.SIGINT)
        assert watch.wait(timeout=10) == 0
        # A pipe is no terminal: no control sequences.
        assert "\x1b" not in watch.stdout.read()
