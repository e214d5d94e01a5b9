// The likeliest tokens that are allowed, so that not all logits travel to the host.
#include "common.cuh"

struct CandidatesParams {
    Array<const float> logits;    // [count]
    Array<const uint32_t> ids;    // of each; empty = 0, 1, ...
    Array<const uint32_t> mask;   // bit i % 32 of word i / 32: whether i is allowed; empty = all. Only without ids.
    Array<float> values;          // [blocks, wanted], descending; minus infinity where there are no more
    Array<uint32_t> chosen;       // [blocks, wanted]
    uint32_t slice, wanted;
};

// Only finite ones.
// Ties go to the lower number.
// Each thread keeps the first of its own numbers; who loses it looks for the next.
// Grid: ceil(count / slice).
KERNEL(alara_candidates, CandidatesParams, 256) {
    SHARED unsigned long long firsts[8];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const uint64_t begin = (uint64_t)blockIdx.x * p.slice;
    const uint64_t end = begin + p.slice < p.logits.len ? begin + p.slice : p.logits.len;
    // What lies behind `bound` was taken already.
    const auto next = [&](uint64_t bound) {
        uint64_t best = 0;
        for (uint64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
            if (p.mask.len && !(p.mask[i / 32] >> (i % 32) & 1)) continue;
            const float x = p.logits[i];
            if (!(fabsf(x) < INFINITY)) continue;
            const uint64_t rank = rank_of(x, (uint32_t)(p.ids.len ? p.ids[i] : i));
            if (rank < bound && rank > best) best = rank;
        }
        return best;
    };
    uint64_t mine = next(~(uint64_t)0);
    for (unsigned nth = 0; nth < p.wanted; nth++) {
        uint64_t best = warp_first(mine);
        __syncthreads();
        if (lane == 0) firsts[warp] = best;
        __syncthreads();
        best = warp_first(lane < warps ? firsts[lane] : 0);
        const uint64_t to = (uint64_t)blockIdx.x * p.wanted + nth;
        if (threadIdx.x == 0) {
            const uint32_t ordered = (uint32_t)(best >> 32);
            p.values[to] = best ? __uint_as_float(ordered >> 31 ? ordered & 0x7fffffffu : ~ordered) : -INFINITY;
            p.chosen[to] = best ? 0xffffffffu - (uint32_t)best : 0xffffffffu;
        }
        if (best && mine == best) mine = next(best);
    }
}
