"""Writes a checkpoint as GGUF and checks the file.

    python scripts/model/export.py build/model models/alara-tiny.gguf

Matrices become Q8_0, norms stay f32; the chat template and the tokenizer go into the metadata. The check reads the file
back, evaluates it with an independent forward pass in NumPy and compares the logits with PyTorch's.
"""

import argparse
import json
import pathlib

import gguf
import numpy as np
import torch
from gguf.quants import dequantize, quantize
from tokenizers import Tokenizer

import generate
import model
import prompt

CONTEXT = 4096


def tensors(weights, s):
    """GGUF name -> f32 array, rows first."""
    out = {"token_embd.weight": weights["embedding.weight"], "output_norm.weight": weights["norm"]}
    for i in range(s.L):
        w = {key.split(".", 2)[2]: value for key, value in weights.items() if key.startswith(f"blocks.{i}.")}
        q, k, v = w["qkv.weight"].split([s.H * s.E, s.K * s.E, s.K * s.E])
        gate, up = w["gate_up.weight"].chunk(2)
        named = {
            "attn_norm": w["attn_norm"], "attn_q": q, "attn_k": k, "attn_v": v, "attn_q_norm": w["q_norm"], "attn_k_norm": w["k_norm"],
            "attn_output": w["output.weight"], "ffn_norm": w["ffn_norm"], "ffn_gate": gate, "ffn_up": up, "ffn_down": w["down.weight"],
        }
        out |= {f"blk.{i}.{name}.weight": value for name, value in named.items()}
    return {name: value.float().contiguous().numpy() for name, value in out.items()}


def write(path, weights, s, tokenizer_file):
    spec = json.loads(pathlib.Path(tokenizer_file).read_text())
    vocabulary = sorted(spec["model"]["vocab"].items(), key=lambda item: item[1])
    added = {item["id"]: item for item in spec["added_tokens"]}
    merges = [m if isinstance(m, str) else " ".join(m) for m in spec["model"]["merges"]]
    ids = dict(vocabulary)
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_name("alara-tiny")
    writer.add_description("A few million parameters that call alara's stock tools, so that a fresh clone works; no useful assistant")
    writer.add_license("MIT OR Apache-2.0")
    writer.add_string("general.training_data", "synthetic tool-use conversations made by scripts/model/generate.py; no other text")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(2)
    writer.add_vocab_size(s.V)
    writer.add_block_count(s.L)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(s.D)
    writer.add_feed_forward_length(s.F)
    writer.add_head_count(s.H)
    writer.add_head_count_kv(s.K)
    writer.add_key_length(s.E)
    writer.add_value_length(s.E)
    writer.add_layer_norm_rms_eps(s.epsilon)
    writer.add_rope_freq_base(s.rope_base)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([text for text, _ in vocabulary])
    kinds = [gguf.TokenType.NORMAL if i not in added else gguf.TokenType.CONTROL if added[i]["special"] else gguf.TokenType.USER_DEFINED for _, i in vocabulary]
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(ids["<|im_end|>"])
    writer.add_bos_token_id(ids["<|endoftext|>"])
    writer.add_pad_token_id(ids["<|endoftext|>"])
    writer.add_add_bos_token(False)
    writer.add_chat_template(prompt.TEMPLATE.read_text())
    for name, array in tensors(weights, s).items():
        if array.ndim == 1:
            writer.add_tensor(name, array)
        else:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read(path, s):
    """The weights of a file that `write` made, as a state of model.Decoder."""
    t = {x.name: torch.from_numpy(dequantize(x.data, x.tensor_type).astype(np.float32)) for x in gguf.GGUFReader(path).tensors}
    out = {"embedding.weight": t["token_embd.weight"], "norm": t["output_norm.weight"]}
    for i in range(s.L):
        w = {name: t[f"blk.{i}.{name}.weight"] for name in ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_q_norm", "attn_k_norm", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")}
        named = {
            "attn_norm": w["attn_norm"], "q_norm": w["attn_q_norm"], "k_norm": w["attn_k_norm"], "ffn_norm": w["ffn_norm"], "output.weight": w["attn_output"], "down.weight": w["ffn_down"],
            "qkv.weight": torch.cat([w["attn_q"], w["attn_k"], w["attn_v"]]), "gate_up.weight": torch.cat([w["ffn_gate"], w["ffn_up"]]),
        }
        out |= {f"blocks.{i}.{name}": value for name, value in named.items()}
    return out


def numpy_logits(path, ids):
    """Logits [T, V] of a `qwen3` GGUF, computed from the file alone."""
    reader = gguf.GGUFReader(path)
    field = lambda key: reader.fields[key].contents()  # noqa: E731
    t = {x.name: dequantize(x.data, x.tensor_type).astype(np.float32) for x in reader.tensors}
    L, H, K, E = (field(f"qwen3.{k}") for k in ("block_count", "attention.head_count", "attention.head_count_kv", "attention.key_length"))
    epsilon, base = field("qwen3.attention.layer_norm_rms_epsilon"), field("qwen3.rope.freq_base")
    norm = lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * w  # noqa: E731
    T = len(ids)
    angle = np.arange(T)[:, None] * base ** (-np.arange(0, E, 2) / E)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]

    def rope(x):
        a, b = x[..., : E // 2], x[..., E // 2 :]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    x, future = t["token_embd.weight"][ids], np.triu(np.full((T, T), -np.inf), 1)
    for i in range(L):
        w = lambda name: t[f"blk.{i}.{name}.weight"]  # noqa: B023,E731
        h = norm(x, w("attn_norm"))
        q = rope(norm((h @ w("attn_q").T).reshape(T, H, E), w("attn_q_norm")))
        k = rope(norm((h @ w("attn_k").T).reshape(T, K, E), w("attn_k_norm")))
        v = (h @ w("attn_v").T).reshape(T, K, E)
        heads = []
        for head in range(H):
            score = q[:, head] @ k[:, head * K // H].T / np.sqrt(E) + future
            share = np.exp(score - score.max(-1, keepdims=True))
            heads.append(share / share.sum(-1, keepdims=True) @ v[:, head * K // H])
        x = x + np.concatenate(heads, -1) @ w("attn_output").T
        h = norm(x, w("ffn_norm"))
        gate = h @ w("ffn_gate").T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w("ffn_up").T)) @ w("ffn_down").T
    return norm(x, t["output_norm.weight"]) @ t["token_embd.weight"].T


def check(path, network, tokenizer_file):
    """The greatest difference of any logit between the file (NumPy) and PyTorch, with rounded and with original weights."""
    words = Tokenizer.from_file(tokenizer_file)
    text = prompt.prefix(0, generate.SETS[0]) + "".join(t for t, _ in generate.body(generate.conversation(1, "heldout", 0, generate.ALL)))
    ids = words.encode(text, add_special_tokens=False).ids
    theirs = numpy_logits(path, ids)
    one = torch.tensor(ids)[None]
    with torch.no_grad():
        original = network(torch.zeros(0, dtype=torch.long), one).numpy()
        for parameter in network.parameters():
            if parameter.ndim == 2:
                kind = gguf.GGMLQuantizationType.Q8_0
                parameter.copy_(torch.from_numpy(dequantize(quantize(parameter.numpy(), kind), kind)))
        rounded = network(torch.zeros(0, dtype=torch.long), one).numpy()
    agree = (theirs.argmax(-1) == original.argmax(-1)).mean()
    print(f"{len(ids)} tokens: NumPy - PyTorch {np.abs(theirs - rounded).max():.2e} with the same Q8_0 weights, {np.abs(theirs - original).max():.2e} with f32 weights; same best token at {agree:.1%}")
    return np.abs(theirs - rounded).max()


def load(folder):
    """The checkpoint of a training folder: state, sizes and the network in f32."""
    state = torch.load(pathlib.Path(folder) / "checkpoint.pt", map_location="cpu")
    sizes = model.Sizes(**state["sizes"])
    network = model.Decoder(sizes)
    network.load_state_dict(state["weights"])
    return state, sizes, network.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("out")
    arguments = parser.parse_args()
    tokenizer_file = str(pathlib.Path(arguments.folder) / "tokenizer.json")
    state, sizes, network = load(arguments.folder)
    write(arguments.out, state["weights"], sizes, tokenizer_file)
    size = pathlib.Path(arguments.out).stat().st_size
    print(f"{arguments.out}: {size} bytes, {sum(p.numel() for p in network.parameters())} parameters, step {state['step']}, {state['tokens']} tokens")
    if check(arguments.out, network, tokenizer_file) > 1e-2:
        raise SystemExit("the file does not compute what the checkpoint does")


if __name__ == "__main__":
    main()
