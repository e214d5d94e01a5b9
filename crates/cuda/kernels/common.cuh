// What all kernels share.
// Compiled by nvcc for GPUs, and by a C++ compiler with twin/emulate.h for tests.
#pragma once

#ifdef __CUDACC__
#include <cuda_fp16.h>
#include <stdint.h>
#define CHECK(condition)
extern __shared__ __align__(128) unsigned char dynamic_shared[];
#define DYNAMIC_SHARED(name) unsigned char *name = dynamic_shared
#define SHARED __shared__
// A kernel of at most `threads` threads a block, whose one parameter is a struct that the Rust side
// lays out alike.
#define KERNEL(name, Params, threads)                                                                                 \
    extern "C" __global__ void __launch_bounds__(threads) name(const Params p)
#else
#include "../twin/emulate.h"
#include <cmath>
#define DYNAMIC_SHARED(name) unsigned char *name = twin::shared_memory()
// Blocks run one after another on their thread of the CPU.
#define SHARED static thread_local
#define KERNEL(name, Params, threads)                                                                                 \
    static void name(const Params p);                                                                                 \
    static const twin::Register register_##name(#name, sizeof(Params), threads,                                       \
                                                [](const void *p) { name(*(const Params *)p); });                     \
    static void name(const Params p)
#endif

// Read or written at once.
struct alignas(8) Halves4 {
    half x[4];
};
struct alignas(16) Floats4 {
    float x[4];
};

// `len` numbers in the device's memory.
// The twin checks every index.
template <class T> struct Array {
    T *at;
    uint64_t len;

    __device__ __forceinline__ T &operator[](uint64_t i) const {
        CHECK(i < len);
        return at[i];
    }
};

// Bytes, read as words at any address.
// The memory reaches up to the next multiple of four.
struct Bytes {
    const uint8_t *at;
    uint64_t len;

    __device__ __forceinline__ uint8_t operator[](uint64_t i) const {
        CHECK(i < len);
        return at[i];
    }

    // N words from byte `first` on; aligned loads only.
    template <int N> __device__ __forceinline__ void words(uint64_t first, uint32_t (&out)[N]) const {
        CHECK(first + 4 * N <= len);
        const uintptr_t address = (uintptr_t)at + first;
        const uint32_t *aligned = (const uint32_t *)(address & ~(uintptr_t)3);
        const unsigned shift = 8 * (unsigned)(address & 3);
        uint32_t low = aligned[0];
        if (shift == 0) {
            out[0] = low;
            for (int i = 1; i < N; i++) out[i] = aligned[i];
            return;
        }
        for (int i = 0; i < N; i++) {
            const uint32_t high = aligned[i + 1];
            out[i] = __funnelshift_r(low, high, shift);
            low = high;
        }
    }

    __device__ __forceinline__ uint32_t word(uint64_t first) const {
        uint32_t out[1];
        words<1>(first, out);
        return out[0];
    }

    __device__ __forceinline__ float half_at(uint64_t i) const {
        return bits_to_float((uint16_t)((*this)[i] | (*this)[i + 1] << 8));
    }

    __device__ static __forceinline__ float bits_to_float(uint16_t bits) {
#ifdef __CUDACC__
        return __half2float(__ushort_as_half(bits));
#else
        return __half2float(half{bits});
#endif
    }
};

static const unsigned ALL_LANES = 0xffffffffu;

// Sum over a warp, in all lanes, in one fixed order.
__device__ __forceinline__ float warp_sum(float x) {
    for (int mask = 16; mask > 0; mask /= 2) x += __shfl_xor_sync(ALL_LANES, x, mask);
    return x;
}

__device__ __forceinline__ float warp_max(float x) {
    for (int mask = 16; mask > 0; mask /= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, mask));
    return x;
}

// The greatest magnitude over a warp.
// As integers magnitudes have the same order, and what is no number is the greatest.
__device__ __forceinline__ float warp_magnitude(float x) {
    unsigned bits = __float_as_uint(x) & 0x7fffffffu;
    for (int mask = 16; mask > 0; mask /= 2) {
        const unsigned other = __shfl_xor_sync(ALL_LANES, bits, mask);
        if (other > bits) bits = other;
    }
    return __uint_as_float(bits);
}

// Sum over a block of whole warps, at most 32, in all threads.
// `scratch`: 32 floats of shared memory.
__device__ __forceinline__ float block_sum(float x, float *scratch) {
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    x = warp_sum(x);
    __syncthreads();
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    return warp_sum(lane < warps ? scratch[lane] : 0.0f);
}

// 32 activations as candle's small-batch kernels take them (Q8_1): `scale * quant`, and their sum.
struct Q8_1 {
    half scale, sum;
    int8_t quants[32];
};

// Quantizes 32 numbers, one a lane.
// The scale is the greatest magnitude / 127; so numbers with what is none among them show it.
__device__ __forceinline__ void quantize(float x, Q8_1 &to) {
    const unsigned lane = threadIdx.x % 32;
    const float scale = warp_magnitude(x) / 127.0f, sum = warp_sum(x);
    to.quants[lane] = scale == 0.0f ? (int8_t)0 : (int8_t)__float2int_rn(x / scale);
    if (lane == 0) {
        to.scale = __float2half_rn(scale);
        to.sum = __float2half_rn(sum);
    }
}

// exp(x - most), and zero where nothing was seen yet.
__device__ __forceinline__ float share(float x, float most) { return x == -INFINITY ? 0.0f : expf(x - most); }

// x within two limits; what is no number stays so.
__device__ __forceinline__ float within(float x, float least, float most) {
    return x > most ? most : x < least ? least : x;
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Larger for what comes first: a greater float (in the order of bits, so that there is always a
// first), then a lower number.
__device__ __forceinline__ uint64_t rank_of(float x, uint32_t number) {
    const uint32_t bits = __float_as_uint(x);
    const uint32_t ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)ordered << 32 | (0xffffffffu - number);
}

__device__ __forceinline__ uint64_t warp_first(uint64_t rank) {
    for (int mask = 16; mask > 0; mask /= 2) {
        const uint64_t other = __shfl_xor_sync(ALL_LANES, rank, mask);
        if (other > rank) rank = other;
    }
    return rank;
}
