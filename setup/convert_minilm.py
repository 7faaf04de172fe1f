#!/usr/bin/env python3
"""Turns the all-MiniLM-L6-v2 safetensors into a GGUF that llama-server --embeddings loads.

Why our own: the upstream converter needs torch and transformers (gigabytes) to rename the tensors of
a six-layer BERT. The facts used here are those of llama.cpp's BERT converter: tensor names, the
"phantom space" spelling of WordPiece tokens, mean pooling, and which layers are not needed (the
pooler and the table of position ids). Matrices are stored as F16, vectors as F32.

usage: convert_minilm.py MODEL_FOLDER OUT.gguf
"""

import json
import os
import struct
import sys

import gguf
import numpy as np

DTYPES = {"F32": np.float32, "F16": np.float16}
POOLING_MEAN = gguf.PoolingType.MEAN
CONTROL_TOKENS = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}

# Position in the model → name in the GGUF. {i} is the layer.
OUTER = {
    "embeddings.word_embeddings.weight": "token_embd.weight",
    "embeddings.position_embeddings.weight": "position_embd.weight",
    "embeddings.token_type_embeddings.weight": "token_types.weight",
    "embeddings.LayerNorm.weight": "token_embd_norm.weight",
    "embeddings.LayerNorm.bias": "token_embd_norm.bias",
}
LAYER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
NOT_NEEDED = ("embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias")


def read_safetensors(path):
    """Yields (name, array) for every tensor: 8 bytes of header length, JSON, then the data."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = memoryview(file.read())
    header.pop("__metadata__", None)
    for name, entry in sorted(header.items()):
        if name in NOT_NEEDED:
            continue
        begin, end = entry["data_offsets"]
        yield name, np.frombuffer(data[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])


def gguf_name(name):
    """The GGUF name of a tensor of the model; an unknown one is an error, never left out."""
    if name in OUTER:
        return OUTER[name]
    parts = name.split(".")
    if parts[:2] == ["encoder", "layer"]:
        inner, kind = ".".join(parts[3:-1]), parts[-1]
        if inner in LAYER and kind in ("weight", "bias"):
            return f"blk.{int(parts[2])}.{LAYER[inner]}.{kind}"
    raise SystemExit(f"convert_minilm: tensor '{name}' is not one of a BERT encoder")


def add_vocabulary(writer, folder):
    """WordPiece: '##ing' becomes 'ing', a word start gets U+2581, control tokens stay as they are."""
    with open(os.path.join(folder, "vocab.txt"), encoding="utf-8") as file:
        vocabulary = [line.rstrip("\n") for line in file]
    tokens, types = [], []
    for token in vocabulary:
        if token in CONTROL_TOKENS:
            tokens.append(token)
            types.append(gguf.TokenType.CONTROL)
        else:
            tokens.append(token[2:] if token.startswith("##") else "\u2581" + token)
            types.append(gguf.TokenType.NORMAL)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_type_count(2)
    writer.add_unk_token_id(vocabulary.index("[UNK]"))
    writer.add_sep_token_id(vocabulary.index("[SEP]"))
    writer.add_pad_token_id(vocabulary.index("[PAD]"))
    writer.add_bos_token_id(vocabulary.index("[CLS]"))
    writer.add_mask_token_id(vocabulary.index("[MASK]"))
    return len(tokens)


def convert(folder, out):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    writer = gguf.GGUFWriter(out, "bert")
    writer.add_name("all-MiniLM-L6-v2")
    writer.add_license("apache-2.0")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_causal_attention(False)
    writer.add_pooling_type(POOLING_MEAN)
    size = add_vocabulary(writer, folder)
    if size != config["vocab_size"]:
        raise SystemExit(f"convert_minilm: {size} tokens, the model has {config['vocab_size']}")
    for name, array in read_safetensors(os.path.join(folder, "model.safetensors")):
        target = gguf_name(name)
        keep = array.ndim == 1 or target in ("position_embd.weight", "token_types.weight")
        writer.add_tensor(target, np.ascontiguousarray(array.astype(
            np.float32 if keep else np.float16)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__.strip().splitlines()[-1])
    convert(sys.argv[1], sys.argv[2])
