"""GGUF files of the tests: written here from the specification (ggml docs/gguf.md), not with the
product's tables, so that both can be compared. Data sections are holes: a file of 40 GB costs nothing.

Every field's place is remembered by name (`kv0.key_length`, `tensor1.type`, `kv2.count`, …), so that a
case can say which number to damage.
"""

import fnmatch
import os
import resource
import struct
import subprocess

import yaml

from rig_gateway import binary

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B",
           U64: "Q", I64: "q", F64: "d"}

# Elements and bytes of a block, from the structs of ggml-common.h: q4_0 is a half and 16 bytes for 32
# numbers, q8_0 a half and 32 bytes, mxfp4 one exponent and 16 bytes, q4_K two halves, 12 bytes of scales
# and 128 bytes for 256, q6_K 128 + 64 + 16 bytes and a half.
TYPES = {"f32": (0, 1, 4), "f16": (1, 1, 2), "q4_0": (2, 32, 2 + 16), "q8_0": (8, 32, 2 + 32),
         "q4_k": (12, 256, 2 + 2 + 12 + 128), "q6_k": (14, 256, 128 + 64 + 16 + 2),
         "bf16": (30, 1, 2), "mxfp4": (39, 32, 1 + 16)}


def pad(number, to):
    return -(-number // to) * to


def type_bytes(kind, shape):
    """Bytes of a tensor: whole blocks in each row."""
    _, block, size = TYPES[kind]
    rows = 1
    for n in shape[1:]:
        rows *= n
    return pad(shape[0], block) // block * size * rows


class Gguf:
    """One file. Values are Python's: text, bool, int (u32), float, lists; (type, value) for others."""

    def __init__(self, version=3, order="<", alignment=32):
        self.order, self.version, self.alignment = order, version, alignment
        self.entries, self.tensors = [], []
        self.marks = {}  # name: (offset, struct format)

    def key(self, name, value):
        self.entries.append((name, value))
        return self

    def tensor(self, name, shape, kind="f16", bytes=None, offset=None, dimensions=None):
        """`kind` may be a number nobody knows; then `bytes` says what it takes."""
        size = bytes if bytes is not None else type_bytes(kind, shape)
        if offset is None:
            last = self.tensors[-1] if self.tensors else None
            offset = pad(last["offset"] + last["bytes"], self.alignment) if last else 0
        self.tensors.append({"name": name, "shape": list(shape), "kind": kind, "bytes": size,
                             "offset": offset, "dimensions": dimensions})
        return self

    # --- writing

    def _put(self, out, form, value, mark=None):
        if mark:
            self.marks[mark] = (len(out), form)
        out += struct.pack(self.order + form, value)

    def _text(self, out, text, mark):
        raw = text if isinstance(text, bytes) else text.encode()
        self._put(out, "Q", len(raw), mark + "_length")
        self.marks[mark] = (len(out), f"{len(raw)}s")
        out += raw

    def _scalar(self, out, kind, value, mark=None):
        if kind == STRING:
            self._text(out, value, mark or "text")
        else:
            self._put(out, FORMATS[kind], value, mark)

    @staticmethod
    def _kind(value):
        if isinstance(value, tuple):
            return value
        kinds = {bool: BOOL, int: U32, float: F32, str: STRING, bytes: STRING}
        return kinds[type(value)], value

    def _entry(self, out, i, name, value):
        self._text(out, name, f"kv{i}.key")
        if isinstance(value, list):
            kind = self._kind(value[0])[0] if value else U32
            self._put(out, "I", ARRAY, f"kv{i}.type")
            self._put(out, "I", kind, f"kv{i}.element_type")
            self._put(out, "Q", len(value), f"kv{i}.count")
            for j, item in enumerate(value):
                self._scalar(out, kind, self._kind(item)[1], f"kv{i}.item{j}")
            return
        kind, value = self._kind(value)
        self._put(out, "I", kind, f"kv{i}.type")
        self._scalar(out, kind, value, f"kv{i}.value")

    def head(self):
        out = bytearray()
        self.marks = {"magic": (0, "4s")}
        out += b"GGUF" if self.order == "<" else b"FUGG"
        self._put(out, "I", self.version, "version")
        self._put(out, "Q", len(self.tensors), "tensors")
        self._put(out, "Q", len(self.entries), "entries")
        for i, (name, value) in enumerate(self.entries):
            self._entry(out, i, name, value)
        for i, t in enumerate(self.tensors):
            self._text(out, t["name"], f"tensor{i}.name")
            self._put(out, "I", t["dimensions"] if t["dimensions"] is not None else len(t["shape"]),
                      f"tensor{i}.dimensions")
            for j, n in enumerate(t["shape"]):
                self._put(out, "Q", n, f"tensor{i}.shape{j}")
            kind = t["kind"]
            self._put(out, "I", TYPES[kind][0] if kind in TYPES else kind, f"tensor{i}.type")
            self._put(out, "Q", t["offset"], f"tensor{i}.offset")
        return bytes(out)

    @property
    def data_offset(self):
        return pad(len(self.head()), self.alignment)

    @property
    def size(self):
        """To the end of the last tensor."""
        return self.data_offset + max((t["offset"] + t["bytes"] for t in self.tensors), default=0)

    def write(self, path, put=None, cut=None, add=0):
        """`put` damages fields by name; `cut`: so many bytes remain; `add`: so many follow."""
        head = bytearray(self.head())
        for mark, value in (put or {}).items():
            at, form = self.marks[mark]
            if form.endswith("s"):
                raw = value if isinstance(value, bytes) else value.encode("latin-1")
                head[at:at + len(raw)] = raw
            else:
                mask = (1 << 8 * struct.calcsize(form)) - 1
                head[at:at + struct.calcsize(form)] = struct.pack(
                    self.order + form.upper(), value & mask)
        size = self.size + add if cut is None else cut
        with open(path, "wb") as f:
            f.write(head[:size])
            f.truncate(size)
        return path

    def bytes_of(self, pattern, padding=1):
        return sum(pad(t["bytes"], padding) for t in self.tensors
                   if any(fnmatch.fnmatchcase(t["name"], p) for p in pattern.split()))


def small_model():
    """A valid file of under a kilobyte with every kind of value in it."""
    g = Gguf()
    g.key("general.architecture", "llama").key("general.alignment", 32)
    g.key("llama.block_count", 1).key("llama.embedding_length", 32)
    g.key("llama.attention.head_count", 1).key("llama.context_length", (U64, 256))
    g.key("a.list", [1, 2, 3]).key("tokenizer.ggml.tokens", ["<s>", "a", "bc"])
    g.key("a.half", 0.5).key("a.flag", True).key("a.byte", (I8, -1))
    g.tensor("token_embd.weight", (32, 3)).tensor("blk.0.attn_q.weight", (32, 32), "q8_0")
    g.tensor("output_norm.weight", (32,), "f32")
    return g


def language_model(arch="llama", layers=2, width=512, heads=8, kv_heads=None, ff=1024, vocab=1000,
                   kind="f16", context=4096, head=None, tied=True, experts=0, expert_kind=None,
                   keys=None, size=None, projector=False):
    """A decoder with the usual tensors. `size`: one more matrix in the last layer fills up to so many
    bytes of tensors. None among `keys` leaves a key out."""
    g = Gguf()
    g.key("general.architecture", arch)
    per_layer = kv_heads if isinstance(kv_heads, list) else [kv_heads or heads] * layers
    said = {"block_count": layers, "embedding_length": width, "attention.head_count": heads,
            "attention.head_count_kv": kv_heads or heads, "feed_forward_length": ff,
            "context_length": context}
    if head:
        said |= {"attention.key_length": head, "attention.value_length": head}
    if experts:
        said |= {"expert_count": experts, "expert_used_count": 2}
    said |= keys or {}
    for name, value in said.items():
        if value is not None:
            g.key(name if name.startswith("general.") else f"{arch}.{name}", value)
    head = head or width // heads
    g.tensor("token_embd.weight", (width, vocab), kind).tensor("output_norm.weight", (width,), "f32")
    if not tied:
        g.tensor("output.weight", (width, vocab), kind)
    for i in range(layers):
        b = f"blk.{i}."
        g.tensor(b + "attn_q.weight", (width, heads * head), kind)
        if per_layer[i]:
            g.tensor(b + "attn_k.weight", (width, per_layer[i] * head), kind)
            g.tensor(b + "attn_v.weight", (width, per_layer[i] * head), kind)
        g.tensor(b + "attn_output.weight", (heads * head, width), kind)
        more = (experts,) if experts else ()
        end, ff_kind = ("_exps", expert_kind or kind) if experts else ("", kind)
        if experts:
            g.tensor(b + "ffn_gate_inp.weight", (width, experts), "f32")
        g.tensor(b + f"ffn_up{end}.weight", (width, ff) + more, ff_kind)
        g.tensor(b + f"ffn_gate{end}.weight", (width, ff) + more, ff_kind)
        g.tensor(b + f"ffn_down{end}.weight", (ff, width) + more, ff_kind)
    if size:
        left = size - g.bytes_of("*")
        assert left >= 0, "smaller than its parts"
        # A name of its own: no buffer of the engine's graph depends on it.
        g.tensor(f"blk.{layers - 1}.filler.weight", (left // 2,))
    return g


def projector_model(size):
    """A vision projector: one big matrix."""
    g = Gguf()
    g.key("general.architecture", "clip").key("clip.has_vision_encoder", True)
    return g.tensor("v.patch_embd.weight", (size // 2,))


# --- the program


def run(*args, memory=None, timeout=20):
    """The program's answer. `memory` is a limit on its address space: what is allocated on the word of a
    file would not fit, touched or not."""
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    done = subprocess.run([str(binary()), *map(str, args)], capture_output=True, timeout=timeout,
                          check=False, preexec_fn=limit if memory else None,
                          env={**os.environ, "ASAN_OPTIONS": "detect_leaks=1"})
    done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
    assert done.returncode in (0, 1, 2, 3), f"{args}: ended with {done.returncode}\n{done.stderr}"
    assert "Sanitizer" not in done.stderr and "runtime error" not in done.stderr, done.stderr
    return done


def config_of(path, models, **service):
    """A configuration with one service a model, all on the CPU. Names: s0, s1, …"""
    path.write_text(yaml.safe_dump(
        {"engine": "true", "services": {f"s{i}": {"model": str(m), "tiers": [{"name": "cpu"}],
                                                  **service} for i, m in enumerate(models)}},
        sort_keys=False))
    return path
