// Rows of keys or values as the cache keeps them: f32, f16, or q8_0 (a byte, 128 for zero, and an
// f16 scale for 32).
#pragma once
#include "common.cuh"

enum Kind { F32 = 0, F16 = 1, Q8_0 = 2 };

// Slots of `heads * width` numbers in one of the kinds.
struct KvRows {
    Array<uint8_t> codes;
    // One for 32 numbers; Q8_0 only.
    Array<half> scales;
};

struct alignas(4) Halves2 {
    half x[2];
};

template <Kind KIND> __device__ __forceinline__ float kv_number(const KvRows &rows, uint64_t i) {
    if (KIND == F32) {
        CHECK(4 * i + 4 <= rows.codes.len);
        return ((const float *)rows.codes.at)[i];
    }
    if (KIND == F16) {
        CHECK(2 * i + 2 <= rows.codes.len);
        return __half2float(((const half *)rows.codes.at)[i]);
    }
    return __half2float(rows.scales[i / 32]) * (float)((int)rows.codes[i] - 128);
}

// Numbers i and i + 1, the second only if it is there.
template <Kind KIND>
__device__ __forceinline__ void kv_pair(const KvRows &rows, uint64_t i, bool second, float &a, float &b) {
    if (KIND == F16 && second && i % 2 == 0) {
        CHECK(2 * i + 4 <= rows.codes.len);
        const Halves2 two = *(const Halves2 *)(rows.codes.at + 2 * i);
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
            CHECK(4 * i + 16 <= rows.codes.len);
            const Floats4 four = *(const Floats4 *)(rows.codes.at + 4 * i);
            for (int j = 0; j < 4; j++) out[j] = four.x[j];
        } else if (KIND == F16) {
            CHECK(2 * i + 8 <= rows.codes.len);
            const Halves4 four = *(const Halves4 *)(rows.codes.at + 2 * i);
            for (int j = 0; j < 4; j++) out[j] = __half2float(four.x[j]);
        } else {
            CHECK(i + 4 <= rows.codes.len);
            const uint32_t four = *(const uint32_t *)(rows.codes.at + i);
            const float scale = __half2float(rows.scales[i / 32]);
            for (int j = 0; j < 4; j++) out[j] = scale * (float)((int)(four >> (8 * j) & 255) - 128);
        }
        return;
    }
    for (unsigned j = 0; j < 4; j++) out[j] = j < n ? kv_number<KIND>(rows, i + j) : 0.0f;
}

static const float MOST_HALF = 65504.0f;

// Writes a run of numbers, one a lane; `run` numbers of 32 are there.
// All lanes of the warp come here.
template <Kind KIND> __device__ __forceinline__ void kv_store(const KvRows &rows, uint64_t i, bool there, float x) {
    if (KIND == F32) {
        if (there) {
            CHECK(4 * i + 4 <= rows.codes.len);
            ((float *)rows.codes.at)[i] = x;
        }
    } else if (KIND == F16) {
        if (there) {
            CHECK(2 * i + 2 <= rows.codes.len);
            ((half *)rows.codes.at)[i] = __float2half_rn(within(x, -MOST_HALF, MOST_HALF));
        }
    } else {
        // The codes are the multiples of the scale, as it is kept, that are nearest.
        const float most = warp_max(there ? fabsf(x) : 0.0f);
        const half scale = __float2half_rn(fminf(most / 127.0f, MOST_HALF));
        const float kept = __half2float(scale);
        if (!there) return;
        const float code = kept == 0.0f ? 0.0f : fminf(fmaxf(x * (1.0f / kept), -127.0f), 127.0f);
        rows.codes[i] = (uint8_t)(__float2int_rn(code) + 128);
        if (i % 32 == 0) rows.scales[i / 32] = scale;
    }
}
