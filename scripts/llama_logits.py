"""Logits by llama.cpp, through its Python package: on a CPU, with one thread, keys and values in f32, no flash attention."""
import ctypes

import llama_cpp
import numpy

CONTEXT = 256


@llama_cpp.llama_log_callback
def quiet(*_):
    pass


llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
llama_cpp.llama_backend_init()


class Model:
    """A model file."""

    def __init__(self, path):
        settings = llama_cpp.llama_model_default_params()
        # Weights are used as they lie.
        settings.use_extra_bufts = False
        settings.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), settings)
        if not self.model:
            raise SystemExit(f"llama.cpp can't load {path}")
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def logits(self, tokens, chunk=None, kv="f32"):
        """[tokens, vocabulary], of a sequence that is fed in pieces of `chunk` tokens, or whole."""
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = settings.n_batch = settings.n_ubatch = CONTEXT
        settings.n_threads = settings.n_threads_batch = 1
        settings.flash_attn_type = 0
        settings.type_k = settings.type_v = {"f32": llama_cpp.GGML_TYPE_F32, "f16": llama_cpp.GGML_TYPE_F16}[kv]
        settings.swa_full = True
        context = llama_cpp.llama_init_from_model(self.model, settings)
        if not context:
            raise SystemExit("llama.cpp can't make a context")
        chunk = chunk or len(tokens)
        batch = llama_cpp.llama_batch_init(chunk, 0, 1)
        rows = []
        for start in range(0, len(tokens), chunk):
            piece = tokens[start:start + chunk]
            batch.n_tokens = len(piece)
            for at, token in enumerate(piece):
                batch.token[at], batch.pos[at], batch.n_seq_id[at] = token, start + at, 1
                batch.seq_id[at][0], batch.logits[at] = 0, True
            if llama_cpp.llama_decode(context, batch):
                raise SystemExit("llama.cpp can't compute it")
            for at in range(len(piece)):
                row = llama_cpp.llama_get_logits_ith(context, at)
                rows.append(numpy.ctypeslib.as_array(row, (self.vocabulary,)).copy())
        llama_cpp.llama_batch_free(batch)
        llama_cpp.llama_free(context)
        return numpy.stack(rows)

    def greedy(self, tokens, count):
        """The `count` tokens that most likely follow, one after the other, and how far each was ahead of the next best."""
        answer, margins = [], []
        for _ in range(count):
            row = self.logits([*tokens, *answer], 1)[-1]
            second, best = numpy.argsort(row)[-2:]
            answer.append(int(best))
            margins.append(float(row[best] - row[second]))
        return answer, margins
