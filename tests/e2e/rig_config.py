"""Configurations for the gateway under test: external tiers on fakes, with short waits."""

SHORT = {
    "first_event_timeout": "700ms",
    "stall_timeout": "700ms",
    "connect_timeout": "500ms",
    "availability": {
        "failures": 3, "hold": "300ms", "hold_max": "1s",
    },
}


def tier(name, fake, **extra):
    """One external tier. `engine` is said, so that no test depends on probing unless it wants to."""
    out = {"name": name, "url": fake if isinstance(fake, str) else fake.url,
           "engine": "llama-server", **SHORT}
    out["availability"] = SHORT["availability"] | extra.pop("availability", {})
    return out | extra


def service(*tiers, kind="chat", **extra):
    return {"kind": kind, "tiers": list(tiers), **extra}


def gateway_config(services, **top):
    return {"listen": "127.0.0.1:0", "shutdown_grace": "3s", "services": services, **top}


def two_tiers(gpu, cpu, limits=None, **extra):
    """`chat` and `embed`, each with tier gpu and then cpu; extra goes into every tier."""
    config = gateway_config({
        "chat": service(tier("gpu", gpu, **extra), tier("cpu", cpu, **extra)),
        "embed": service(tier("gpu", gpu, **extra), tier("cpu", cpu, **extra), kind="embeddings"),
    })
    if limits:
        config["limits"] = limits
    return config
