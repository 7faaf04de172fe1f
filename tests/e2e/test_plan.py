"""`failsoft plan`: what it predicts, for a model file and for a configuration."""

import json
import os
import struct
import subprocess

import pytest

BIN = os.environ.get("FAILSOFT_BIN", "")

pytestmark = pytest.mark.skipif(not BIN, reason="FAILSOFT_BIN is not set")


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def write_model(path, layers=2, architecture="llama", cut=0):
    """A model of holes: 512 wide, 8 heads of 64, 2 with keys."""
    numbers = {"block_count": layers, "embedding_length": 512, "attention.head_count": 8,
               "attention.head_count_kv": 2, "feed_forward_length": 1024, "context_length": 4096}
    entries = [text("general.architecture") + struct.pack("<I", 8) + text(architecture)]
    entries += [text(f"{architecture}.{key}") + struct.pack("<II", 4, value)
                for key, value in numbers.items()]
    tensors, offset = [], 0
    shapes = [("token_embd.weight", 512, 1000), ("output_norm.weight", 512, 1)]
    for i in range(layers):
        shapes += [(f"blk.{i}.attn_q.weight", 512, 512), (f"blk.{i}.attn_k.weight", 512, 128),
                   (f"blk.{i}.attn_v.weight", 512, 128), (f"blk.{i}.attn_output.weight", 512, 512),
                   (f"blk.{i}.ffn_up.weight", 512, 1024), (f"blk.{i}.ffn_gate.weight", 512, 1024),
                   (f"blk.{i}.ffn_down.weight", 1024, 512)]
    for name, columns, rows in shapes:
        tensors.append(text(name) + struct.pack("<IQQIQ", 2, columns, rows, 1, offset))
        offset += columns * rows * 2
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries))
    head += b"".join(entries) + b"".join(tensors)
    head += b"\0" * (-len(head) % 32)
    path.write_bytes(head)
    os.truncate(path, len(head) + offset - cut)
    return path


def plan(*args):
    done = subprocess.run([BIN, "plan", *map(str, args)], capture_output=True, text=True,
                          timeout=20, check=False)
    return done


def test_a_model_file(tmp_path):
    model = write_model(tmp_path / "m.gguf")
    done = plan("--model", model, "--context", 1024, "--slots", 2, "--device", "sim", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["plans"][0]
    assert found["confidence"] == "high" and found["reasons"] == []
    assert found["device"]["kv"]["bytes"] == 2 * 1024 * 2 * 2 * 128 * 2
    assert found["kv_tokens"] == 2048 and found["slot_tokens"] == 1024
    assert found["device_layers"] == found["layers"] == 3
    shown = plan("--model", model, "--context", 1024, "--gpu-layers", 1)
    assert "1 of 3 layers on the device" in shown.stdout
    assert "weights" in shown.stdout and "confidence high" in shown.stdout


def test_a_model_that_is_cut_off(tmp_path):
    model = write_model(tmp_path / "m.gguf", cut=100)
    done = plan("--model", model)
    assert done.returncode == 1
    assert "is cut off in its weights: needs" in done.stdout and "confidence low" in done.stdout


@pytest.mark.parametrize("args, said", [
    (["--cache-type-k", "q9"], "does not take `q9`"),
    (["--context", "-4"], "--context does not take `-4`"),
    (["--context", "131072.5"], "does not take `131072.5`"),
    (["--slots", "99999999999"], "--slots does not take"),
    (["--device", "tpu"], "sim, gpu or none"),
    (["--flash-attention", "maybe"], "on, off or auto"),
])
def test_wrong_usage(tmp_path, args, said):
    model = write_model(tmp_path / "m.gguf")
    done = plan("--model", model, *args)
    assert done.returncode == 2 and said in done.stderr


def test_no_such_file(tmp_path):
    done = plan("--model", tmp_path / "none.gguf")
    assert done.returncode == 3 and "No such file" in done.stderr


def test_a_configuration(tmp_path):
    model = write_model(tmp_path / "m.gguf")
    projector = write_model(tmp_path / "p.gguf", architecture="clip")
    config = tmp_path / "failsoft.yaml"
    config.write_text(f"""
devices:
  gpu0: {{ kind: sim }}
services:
  chat:
    kind: chat
    model: {model}
    context: 1024
    cache_type_k: q8_0
    cache_type_v: q8_0
    tiers:
      - {{ name: gpu, device: gpu0, slots: 4, args: ["--kv-unified", "--mmproj", "{projector}"] }}
      - {{ name: cpu, slots: 1, args: ["--override-tensor", "a=CPU"] }}
      - {{ name: remote, url: "http://127.0.0.1:1" }}
""")
    done = plan("--config", config, "--json")
    gpu, cpu, remote = json.loads(done.stdout)["plans"]
    # There is no such card: that is not known to fit.
    assert done.returncode == 1 and gpu["fits"] == "unknown" and cpu["fits"] == "yes", done.stderr
    assert (gpu["service"], gpu["tier"], gpu["on"]) == ("chat", "gpu", "gpu0")
    # 34 bytes for 32 numbers; 4 slots of 1024 tokens in one cache.
    assert gpu["device"]["kv"]["bytes"] == 2 * 4096 * 2 * (128 // 32 * 34)
    assert gpu["device"]["projector"]["bytes"] > 0
    assert cpu["device"]["total"]["upper_bytes"] == 0 and cpu["host"]["kv"]["bytes"] > 0
    assert cpu["confidence"] == "low" and "--override-tensor" in cpu["reasons"][0]
    assert "can only be observed" in remote["problem"]
