// Rows of keys or values as the cache keeps them: f32, f16, or q8_0 (a byte, 128 for zero, and an
// f16 scale for 32).
#pragma once
#include "common.cuh"

enum Kind { F32 = 0, F16 = 1, Q8_0 = 2 };

// Slots of `heads * width` numbers in one of the kinds.
struct KvRows {
    Array<uint8_t> quants;
    // One for 32 numbers; Q8_0 only.
    Array<half> scales;
};

struct alignas(4) Halves2 {
    half x[2];
};

template <Kind KIND> __device__ __forceinline__ float kv_number(const KvRows &rows, uint64_t i) {
    if (KIND == F32) {
        CHECK(4 * i + 4 <= rows.quants.len);
        return ((const float *)rows.quants.at)[i];
    }
    if (KIND == F16) {
        CHECK(2 * i + 2 <= rows.quants.len);
        return __half2float(((const half *)rows.quants.at)[i]);
    }
    return __half2float(rows.scales[i / 32]) * (float)((int)rows.quants[i] - 128);
}

// Numbers i and i + 1, the second only if it is there.
template <Kind KIND>
__device__ __forceinline__ void kv_pair(const KvRows &rows, uint64_t i, bool second, float &a, float &b) {
    if (KIND == F16 && second && i % 2 == 0) {
        CHECK(2 * i + 4 <= rows.quants.len);
        const Halves2 two = *(const Halves2 *)(rows.quants.at + 2 * i);
        a = __half2float(two.x[0]);
        b = __half2float(two.x[1]);
        return;
    }
    a = kv_number<KIND>(rows, i);
    b = second ? kv_number<KIND>(rows, i + 1) : 0.0f;
}

// Numbers i..i + n, n at most 4; zeros after them.
template <Kind KIND> __device__ __forceinline__ void kv_load(const KvRows &rows, uint64_t i, unsigned n, float (&out)[4]) {
    if (n == 4 && i % 4 == 0) {
        if (KIND == F32) {
            CHECK(4 * i + 16 <= rows.quants.len);
            const Floats4 four = *(const Floats4 *)(rows.quants.at + 4 * i);
            for (int j = 0; j < 4; j++) out[j] = four.x[j];
        } else if (KIND == F16) {
            CHECK(2 * i + 8 <= rows.quants.len);
            const Halves4 four = *(const Halves4 *)(rows.quants.at + 2 * i);
            for (int j = 0; j < 4; j++) out[j] = __half2float(four.x[j]);
        } else {
            CHECK(i + 4 <= rows.quants.len);
            const uint32_t four = *(const uint32_t *)(rows.quants.at + i);
            const float scale = __half2float(rows.scales[i / 32]);
            for (int j = 0; j < 4; j++) out[j] = scale * (float)((int)(four >> (8 * j) & 255) - 128);
        }
        return;
    }
    for (unsigned j = 0; j < 4; j++) out[j] = j < n ? kv_number<KIND>(rows, i + j) : 0.0f;
}

static const float MAX_HALF = 65504.0f;

// Writes numbers, one a lane; some of the 32 are there.
// All lanes of the warp come here.
template <Kind KIND> __device__ __forceinline__ void kv_store(const KvRows &rows, uint64_t i, bool there, float x) {
    if (KIND == F32) {
        if (there) {
            CHECK(4 * i + 4 <= rows.quants.len);
            ((float *)rows.quants.at)[i] = x;
        }
    } else if (KIND == F16) {
        if (there) {
            CHECK(2 * i + 2 <= rows.quants.len);
            ((half *)rows.quants.at)[i] = __float2half_rn(within(x, -MAX_HALF, MAX_HALF));
        }
    } else {
        // The quants are the multiples of the scale, as it is stored, that are nearest.
        const float most = warp_max(there ? fabsf(x) : 0.0f);
        const half scale = __float2half_rn(fminf(most / 127.0f, MAX_HALF));
        const float stored = __half2float(scale);
        if (!there) return;
        const float quant = stored == 0.0f ? 0.0f : fminf(fmaxf(x * (1.0f / stored), -127.0f), 127.0f);
        rows.quants[i] = (uint8_t)(__float2int_rn(quant) + 128);
        if (i % 32 == 0) rows.scales[i / 32] = scale;
    }
}
