"""The decoder in PyTorch: the `qwen3` architecture, evaluated on one shared prefix and a batch of continuations.

Pre-norm blocks; per-head RMS norm on queries and keys before rotary embedding over the whole head (half-split pairs);
grouped-query attention; SwiGLU; output tied to the token embedding.
Letters: D width, H query heads, K key/value heads, E head width, F feed-forward, V vocabulary, L layers.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Sizes:
    V: int = 2048
    D: int = 256
    L: int = 5
    H: int = 4
    K: int = 2
    E: int = 64
    F: int = 512
    rope_base: float = 1000000.0
    epsilon: float = 1e-6


def rms(x, weight, epsilon):
    return x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + epsilon).to(x.dtype) * weight.to(x.dtype)


def rotate(x, cos, sin):
    """Rotary embedding of [..., T, E]; cos and sin are [T, E/2]."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.attn_norm = nn.Parameter(torch.ones(s.D))
        self.q_norm = nn.Parameter(torch.ones(s.E))
        self.k_norm = nn.Parameter(torch.ones(s.E))
        self.ffn_norm = nn.Parameter(torch.ones(s.D))
        self.qkv = nn.Linear(s.D, (s.H + 2 * s.K) * s.E, bias=False)
        self.output = nn.Linear(s.H * s.E, s.D, bias=False)
        self.gate_up = nn.Linear(s.D, 2 * s.F, bias=False)
        self.down = nn.Linear(s.F, s.D, bias=False)

    def heads(self, qkv, cos, sin):
        """[B, T, (H+2K)E] to q, k, v [B, heads, T, E], normed and rotated."""
        s = self.s
        B, T, _ = qkv.shape
        q, k, v = qkv.view(B, T, s.H + 2 * s.K, s.E).transpose(1, 2).split([s.H, s.K, s.K], 1)
        q = rotate(rms(q, self.q_norm, s.epsilon), cos, sin)
        k = rotate(rms(k, self.k_norm, s.epsilon), cos, sin)
        return q, k, v

    def forward(self, x, P, B, S, cos, sin, future):
        """x is [P + B*S, D]: the prefix's rows, then the batch's."""
        s, group = self.s, self.s.H // self.s.K
        qkv = self.qkv(rms(x, self.attn_norm, s.epsilon))
        q, k, v = self.heads(qkv[P:].view(B, S, -1), cos[P : P + S], sin[P : P + S])
        parts = []
        # Scores for the prefix are one product over the whole batch, since all rows share its keys.
        scale = s.E**-0.5
        q = (q * scale).view(B, s.K, group, S, s.E).transpose(0, 1).reshape(s.K, B, group * S, s.E)
        k, v = k.transpose(0, 1), v.transpose(0, 1)
        scores = (q @ k.transpose(2, 3)).view(s.K, B, group, S, S).add(future).view(s.K, B, group * S, S)
        if P:
            qp, kp, vp = self.heads(qkv[:P].view(1, P, -1), cos[:P], sin[:P])
            a = F.scaled_dot_product_attention(qp, kp.repeat_interleave(group, 1), vp.repeat_interleave(group, 1), is_causal=True)
            parts.append(a.transpose(1, 2).reshape(P, -1))
            before = (q.reshape(s.K, -1, s.E) @ kp[0].transpose(1, 2)).view(s.K, B, group * S, P)
            share = torch.cat([before, scores], -1).softmax(-1).to(v.dtype)
            a = share[..., P:] @ v + (share[..., :P].reshape(s.K, -1, P) @ vp[0]).view(s.K, B, group * S, s.E)
        else:
            a = scores.softmax(-1).to(v.dtype) @ v
        a = a.view(s.K, B, group, S, s.E).transpose(0, 1).reshape(B, s.H, S, s.E)
        parts.append(a.transpose(1, 2).reshape(B * S, -1))
        x = x + self.output(torch.cat(parts))
        gate, up = self.gate_up(rms(x, self.ffn_norm, s.epsilon)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.s = sizes
        self.embedding = nn.Embedding(sizes.V, sizes.D)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.L))
        self.norm = nn.Parameter(torch.ones(sizes.D))
        nn.init.normal_(self.embedding.weight, std=0.04)
        for block in self.blocks:
            for linear in (block.qkv, block.gate_up):
                nn.init.normal_(linear.weight, std=sizes.D**-0.5)
            for linear in (block.output, block.down):
                nn.init.normal_(linear.weight, std=0.3 * linear.in_features**-0.5)

    @torch.no_grad()
    def start_copying(self, seed=0):
        """An initialisation that can copy, so that training need not find it.

        Copying a name never seen takes two cooperating attention layers (an induction head), which a model finds late. Here the
        first layer starts with two heads that look one and two tokens back, and the second with heads that look for an earlier
        place whose previous token (or two) equal the current one and add the token there to the residual stream. Everything
        else is random, and all of it is trained. The directions of the residual stream are the rows of one rotation: 0-127 the
        embedding, 128-191 the previous token, 192-254 the one before, 255 a constant that position-only heads read.
        """
        s, noise = self.s, torch.Generator().manual_seed(seed)
        assert (s.D, s.H, s.K, s.E) == (256, 4, 2, 64)
        basis = torch.linalg.qr(torch.randn(s.D, s.D, generator=noise))[0]
        unit = 0.04
        content = torch.randn(s.V, 128, generator=noise) * unit * 2**0.5
        self.embedding.weight.copy_(content @ basis[:128] + 8 * unit * basis[255])

        frequency = s.rope_base ** (-torch.arange(0, s.E, 2).float() / s.E)
        fast, slow = torch.arange(8), torch.arange(14, s.E // 2)
        first, second = self.blocks[0], self.blocks[1]
        for block in self.blocks:  # the residual stream begins small, so must what is added to it
            block.down.weight.mul_(0.1)
            block.output.weight.mul_(0.1)
        first.qkv.weight.mul_(0.2)
        second.qkv.weight.mul_(0.2)

        def looking_back(distance):
            """A constant vector whose turn by the rotary angle of `distance` tokens is the zero-phase vector."""
            vector = torch.zeros(s.E)
            vector[fast], vector[fast + s.E // 2] = torch.cos(frequency[fast] * distance), torch.sin(frequency[fast] * distance)
            return vector

        q, k, v = first.qkv.weight.split([s.H * s.E, s.K * s.E, s.K * s.E])
        q[: s.E] += torch.outer(looking_back(-1), basis[255])
        q[s.E : 2 * s.E] += torch.outer(looking_back(-2), basis[255])
        k[: s.E] += torch.outer(looking_back(0), basis[255])
        v[: s.E] = basis[: s.E]
        for norm in (first.q_norm, first.k_norm):
            norm[fast], norm[fast + s.E // 2] = 3.0, 3.0
        first.output.weight[:, : 2 * s.E] = 0
        first.output.weight[:, : s.E] = unit * basis[128:192].T
        first.output.weight[:, s.E : 2 * s.E - 1] = unit * basis[192:255].T

        dims = torch.cat([slow, slow + s.E // 2])
        half = len(dims) // 2
        q, k, v = second.qkv.weight.split([s.H * s.E, s.K * s.E, s.K * s.E])
        for head in range(2):
            q[head * s.E + dims] += basis[: len(dims)]
            q[(head + 2) * s.E + dims[::2]] += basis[:half]
            q[(head + 2) * s.E + dims[1::2]] += basis[128 : 128 + half]
        k[dims] += basis[128 : 128 + len(dims)]
        k[s.E + dims[::2]] += basis[128 : 128 + half]
        k[s.E + dims[1::2]] += basis[192 : 192 + half]
        v[: s.E], v[s.E :] = basis[: s.E], basis[s.E : 2 * s.E]
        second.q_norm.fill_(1.7)
        second.k_norm.fill_(1.7)
        for head in range(s.H):
            second.output.weight[:, head * s.E : (head + 1) * s.E] = 2 * unit * basis[(head // 2) * s.E : (head // 2 + 1) * s.E].T

        # Heads that average over the last some dozens of tokens, where the instruction stands: its words are then at hand when
        # a command is chosen. Half of their norm is in pairs that query and key do not share, which flattens the softmax.
        for index, pair in ((0, 8), (2, 7), (3, 8), (4, 9)):
            block, group = self.blocks[index], int(index == 0)
            local = torch.zeros(s.E)
            local[pair : pair + 5] = (0.4 * s.E / 5) ** 0.5
            q_vector, k_vector = local.clone(), local.clone()
            q_vector[16:24], k_vector[24:32] = (0.6 * s.E / 8) ** 0.5, (0.6 * s.E / 8) ** 0.5
            q, k, v = block.qkv.weight.split([s.H * s.E, s.K * s.E, s.K * s.E])
            for head in (2 * group, 2 * group + 1):
                q[head * s.E : (head + 1) * s.E] += torch.outer(q_vector, basis[255])
                block.output.weight[:, head * s.E : (head + 1) * s.E] = torch.randn(s.D, s.E, generator=noise) * unit / 16
            k[group * s.E : (group + 1) * s.E] += torch.outer(k_vector, basis[255])
            if index == 0:
                v[group * s.E :] *= 5

    def angles(self, T, device):
        s = self.s
        frequency = s.rope_base ** (-torch.arange(0, s.E, 2, device=device).float() / s.E)
        angle = torch.arange(T, device=device).float()[:, None] * frequency
        return angle.cos(), angle.sin()

    def forward(self, prefix, ids, select=None):
        """Logits [N, V] in f32 after the tokens of `ids` [B, S] that `select` [B, S] names (all if None); prefix is [P]."""
        P, (B, S) = len(prefix), ids.shape
        device = ids.device
        x = self.embedding(torch.cat([prefix, ids.reshape(-1)]))
        cos, sin = self.angles(P + S, device)
        future = torch.full((S, S), -1e9, device=device).triu(1)
        if torch.is_autocast_enabled(device.type):
            dtype = torch.get_autocast_dtype(device.type)
            x, cos, sin, future = x.to(dtype), cos.to(dtype), sin.to(dtype), future.to(dtype)
        for block in self.blocks:
            x = block(x, P, B, S, cos, sin, future)
        x = x[P:] if select is None else x[P:][select.reshape(-1)]
        return F.linear(rms(x, self.norm, self.s.epsilon), self.embedding.weight).float()
