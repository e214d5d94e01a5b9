// What CUDA C++ gives to a kernel, for a plain C++ compiler.
// The kernels' own source runs on the CPU, block after block, each thread of a block as a fiber.
// Not fast; it is there so that indices and arithmetic can be tested without a GPU.
//
// Stricter than a GPU: a thread that ends or shuffles while others of its block wait at a barrier
// is an error.
// So is an index beyond its array (`Array` in common.cuh).
// Fibers run in ascending or descending order, as the caller says, so that a missing barrier shows
// as different results.
#pragma once

#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <vector>

#include <ucontext.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

namespace twin {

struct Dim {
    unsigned x, y, z;
};

// Where a fiber goes on.
enum class State { Running, AtBarrier, AtShuffle, Done };

struct Fiber {
    Dim thread;
    unsigned lane, warp;
    State state;
    bool started;
    ucontext_t context;
    jmp_buf jump;
    std::vector<char> stack;
    // What the lane offered in its latest exchange, and in the one before: others may still be
    // reading that.
    uint64_t offered[2];
    unsigned exchanges;
};

// The one block that runs on this thread of the CPU.
struct Block {
    std::vector<Fiber> fibers;
    Fiber *now = nullptr;
    Dim grid{}, block{}, index{};
    std::vector<unsigned char> shared;
    const std::function<void()> *kernel = nullptr;
    jmp_buf home_jump;
    char failure[256] = "";
};

extern thread_local Block running;

[[noreturn]] void fail(const char *file, int line, const char *what);
void wait(State state);
// The block's dynamic shared memory; all bits are set when it starts.
unsigned char *shared_memory();
uint64_t exchange(uint64_t offered, unsigned from);

// A kernel's call, by name.
// Null if all is well, else what went wrong; the text lives until the next call.
struct Entry {
    const char *name;
    std::function<void(const void *)> call;
    size_t bytes, threads;
};
std::vector<Entry> &entries();
struct Register {
    Register(const char *name, size_t bytes, size_t threads, std::function<void(const void *)> call) {
        entries().push_back({name, std::move(call), bytes, threads});
    }
};

template <class T> T shuffle(T value, unsigned from) {
    static_assert(sizeof(T) <= 8, "a word or two");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    bits = exchange(bits, from);
    memcpy(&value, &bits, sizeof(T));
    return value;
}

} // namespace twin

#define threadIdx (twin::running.now->thread)
#define blockIdx (twin::running.index)
#define blockDim (twin::running.block)
#define gridDim (twin::running.grid)
#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) twin::fail(__FILE__, __LINE__, #condition);                                                 \
    } while (0)

inline void __syncthreads() { twin::wait(twin::State::AtBarrier); }
inline void __syncwarp(unsigned = 0xffffffffu) { twin::exchange(0, 0); }
template <class T> T __shfl_xor_sync(unsigned, T value, int mask) {
    return twin::shuffle(value, twin::running.now->lane ^ unsigned(mask));
}
template <class T> T __shfl_sync(unsigned, T value, int from) { return twin::shuffle(value, unsigned(from) & 31); }

inline int __dp4a(int a, int b, int sum) {
    for (int i = 0; i < 4; i++) sum += int(int8_t(a >> (8 * i))) * int(int8_t(b >> (8 * i)));
    return sum;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    uint64_t both = uint64_t(b) << 32 | a;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) out |= unsigned(both >> (8 * (selector >> (4 * i) & 7)) & 255) << (8 * i);
    return out;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return unsigned((uint64_t(high) << 32 | low) >> (by & 31));
}
inline float __uint_as_float(unsigned bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
inline unsigned __float_as_uint(float x) {
    unsigned bits;
    memcpy(&bits, &x, 4);
    return bits;
}
// Of what is no number it is 0, and what is beyond has its limit.
inline int __float2int_rn(float x) {
    if (x != x) return 0;
    if (x >= 0x1p31f) return INT32_MAX;
    return x <= -0x1p31f ? INT32_MIN : int(__builtin_rintf(x));
}

// IEEE half precision.
struct half {
    uint16_t bits;
};
inline float __half2float(half h) {
    unsigned sign = (h.bits & 0x8000u) << 16, exponent = h.bits >> 10 & 31, fraction = h.bits & 1023;
    if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | fraction << 13);
    if (exponent == 0) {
        float x = float(fraction) * 0x1p-24f;
        return sign ? -x : x;
    }
    return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
}
inline half __float2half_rn(float x) {
    unsigned bits = __float_as_uint(x);
    uint16_t sign = uint16_t(bits >> 16 & 0x8000u);
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u) return {uint16_t(sign | 0x7e00u)};
    if (bits >= 0x477ff000u) return {uint16_t(sign | 0x7c00u)};
    if (bits < 0x38800000u) {
        // Adding this rounds to a multiple of the least number, half to even.
        float y = __uint_as_float(bits) + 0.5f;
        return {uint16_t(sign | (__float_as_uint(y) - 0x3f000000u))};
    }
    bits += 0xc8000fffu + (bits >> 13 & 1);
    return {uint16_t(sign | bits >> 13)};
}

// Matrices of 16 x 16 that a warp holds together: its first lane has all of it.
// Nothing here waits for the other lanes.
namespace nvcuda::wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K, class T, class Layout = void> struct fragment {
    static_assert(M == 16 && N == 16 && K == 16, "one shape is emulated");
    float at[16][16];
};

inline bool first_lane() { return twin::running.now->lane == 0; }
inline void fill_fragment(fragment<accumulator, 16, 16, 16, float> &f, float x) {
    for (auto &row : f.at)
        for (float &to : row) to = x;
}
template <class F> void load(F &f, const half *from, unsigned stride, bool across) {
    if (uintptr_t(from) % 32 || stride % 8) twin::fail(__FILE__, __LINE__, "a matrix that is not aligned");
    if (!first_lane()) return;
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) f.at[i][j] = __half2float(from[across ? j * int(stride) + i : i * int(stride) + j]);
}
template <class Use>
void load_matrix_sync(fragment<Use, 16, 16, 16, half, row_major> &f, const half *from, unsigned stride) {
    load(f, from, stride, false);
}
template <class Use>
void load_matrix_sync(fragment<Use, 16, 16, 16, half, col_major> &f, const half *from, unsigned stride) {
    load(f, from, stride, true);
}
template <class A, class B, class C> void mma_sync(C &d, const A &a, const B &b, const C &c) {
    if (!first_lane()) return;
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) {
            float sum = c.at[i][j];
            for (int k = 0; k < 16; k++) sum += a.at[i][k] * b.at[k][j];
            d.at[i][j] = sum;
        }
}
inline void store_matrix_sync(float *to, const fragment<accumulator, 16, 16, 16, float> &f, unsigned stride,
                              layout_t layout) {
    if (!first_lane()) return;
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) to[layout == mem_row_major ? i * int(stride) + j : j * int(stride) + i] = f.at[i][j];
}

} // namespace nvcuda::wmma
