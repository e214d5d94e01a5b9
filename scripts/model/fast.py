"""Loss and gradients of model.Decoder by fast.c, many times as fast as PyTorch on an x86 CPU with AMX."""

import ctypes
import pathlib
import subprocess

import numpy as np
import torch

SOURCE = pathlib.Path(__file__).with_name("fast.c")


def available():
    """Whether this machine can run fast.c."""
    try:
        return "amx_bf16" in pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def padded(n):
    return -(-n // 32) * 32


class Fast:
    """Takes over the network's parameters: they become views of one array, and so do their gradients."""

    def __init__(self, network, folder, rows, length, prefix, threads):
        s = network.s
        library = pathlib.Path(folder).resolve() / "fast.so"
        sizes = {"V": s.V, "D": s.D, "L": s.L, "H": s.H, "K": s.K, "E": s.E, "F": s.F}
        flags = "-O3 -march=sapphirerapids -ffast-math -fopenmp -shared -fPIC".split()
        subprocess.run(["gcc", *flags, *(f"-D{k}={v}" for k, v in sizes.items()), str(SOURCE), "-o", str(library), "-lm"], check=True)
        self.c = ctypes.CDLL(str(library))
        self.c.fast_step.restype = ctypes.c_double
        if self.c.fast_start():
            raise RuntimeError("the system does not permit AMX")
        self.c.fast_room(padded(rows) + padded(prefix) + 64, padded(length), padded(prefix), threads)
        self.weights = self.flat(network)
        self.gradients = torch.zeros_like(self.weights)
        at = 0
        for p in self.order(network):
            p.grad = self.gradients[at : at + p.numel()].view(p.shape)
            at += p.numel()

    @staticmethod
    def order(network):
        yield network.embedding.weight
        for b in network.blocks:
            yield from (b.attn_norm, b.q_norm, b.k_norm, b.ffn_norm, b.qkv.weight, b.output.weight, b.gate_up.weight, b.down.weight)
        yield network.norm

    def flat(self, network):
        """One array with all parameters, of which they become views."""
        array, at = torch.cat([p.detach().reshape(-1).float() for p in self.order(network)]).contiguous(), 0
        for p in self.order(network):
            p.data = array[at : at + p.numel()].view(p.shape)
            at += p.numel()
        return array

    def __call__(self, prefix, ids, mask, weights=None):
        """Mean loss and share of right tokens of a batch; fills the gradients, unless other weights are given."""
        B, S = ids.shape
        P, PP, SS = len(prefix), padded(len(prefix)), padded(S)
        tokens, target = np.zeros(PP + B * SS, np.int32), np.full(PP + B * SS, -1, np.int32)
        tokens[:P] = prefix
        rows, goals = np.zeros((B, SS), np.int32), np.full((B, SS), -1, np.int32)
        rows[:, :S] = ids
        goals[:, : S - 1][mask[:, 1:]] = ids[:, 1:][mask[:, 1:]]
        tokens[PP:], target[PP:] = rows.reshape(-1), goals.reshape(-1)
        point = lambda a: ctypes.c_void_p(a.ctypes.data if isinstance(a, np.ndarray) else a.data_ptr())  # noqa: E731
        right = ctypes.c_double()
        loss = self.c.fast_step(point(self.weights if weights is None else weights), point(self.gradients) if weights is None else None, point(tokens), point(target), P, PP, B, SS, ctypes.byref(right))
        return loss, right.value
