#!/usr/bin/env python3
"""llama.cpp's speed on one file, through its Python package: one warm-up, one measurement, one JSON object."""
import argparse
import ctypes
import json
import time

BATCH = 512

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("model")
parser.add_argument("-t", "--threads", type=int, default=2)
parser.add_argument("-p", "--prompt", type=int, default=0)
parser.add_argument("-n", "--generate", type=int, default=0)
parser.add_argument("-d", "--depth", type=int, default=0)
parser.add_argument("--attention", type=int, default=1, help="flash attention: 1 on, 0 off")
parser.add_argument("--kv", choices=["f16", "q8_0"], default="f16")
args = parser.parse_args()

try:
    import llama_cpp
except ImportError:
    raise SystemExit("llama_cpp is missing: see compare-llama --help")


@llama_cpp.llama_log_callback
def quiet(*_):
    pass


llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
llama_cpp.llama_backend_init()
model = llama_cpp.llama_model_load_from_file(args.model.encode(), llama_cpp.llama_model_default_params())
if not model:
    raise SystemExit(f"llama.cpp cannot load {args.model}")
settings = llama_cpp.llama_context_default_params()
settings.n_ctx = args.depth + max(args.prompt, args.generate) + 64
settings.n_batch = settings.n_ubatch = BATCH
settings.n_threads = settings.n_threads_batch = args.threads
settings.flash_attn_type = args.attention
if args.kv == "q8_0":
    settings.type_k = settings.type_v = llama_cpp.GGML_TYPE_Q8_0
context = llama_cpp.llama_init_from_model(model, settings)
if not context:
    raise SystemExit("llama.cpp cannot make a context with these settings")
memory = llama_cpp.llama_get_memory(context)


def feed(tokens):
    for start in range(0, len(tokens), BATCH):
        part = tokens[start:start + BATCH]
        array = (llama_cpp.llama_token * len(part))(*part)  # A batch only points to it.
        batch = llama_cpp.llama_batch_get_one(array, len(part))
        if llama_cpp.llama_decode(context, batch):
            raise SystemExit("llama_decode failed")


def once(depth):
    llama_cpp.llama_memory_clear(memory, True)
    feed([(i * 31 + 7) % 1000 for i in range(depth)])
    start = time.perf_counter()
    feed([(i * 31 + 7) % 1000 for i in range(args.prompt)])
    for i in range(args.generate):
        feed([(i * 31 + 7) % 1000])
    llama_cpp.llama_synchronize(context)
    return time.perf_counter() - start


once(min(args.depth, BATCH))
seconds = once(args.depth)
print(json.dumps({"avg_ts": (args.prompt + args.generate) / seconds}))
