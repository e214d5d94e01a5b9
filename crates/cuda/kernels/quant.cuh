// What the bytes of each weight format mean: 32 numbers at a time, as quants with two scales and
// two offsets.
// Number i is `scale[i / 16] * quant[i] + offset[i / 16]`.
// The layouts are ggml's, as crates/kernels/src/quant has them.
#pragma once
#include "common.cuh"

struct SubBlock {
    // Signed bytes, four a word.
    int quants[8];
    float scale[2], offset[2];
};

// Numbers and bytes of a block, and how a sub-block of it is read.
template <int SUB_BLOCKS, int BYTES_> struct Blocks {
    static const int BLOCK_SUB_BLOCKS = SUB_BLOCKS, BLOCK_BYTES = BYTES_;
};

__device__ __forceinline__ void even(SubBlock &sub_block, float scale, float offset) {
    sub_block.scale[0] = sub_block.scale[1] = scale;
    sub_block.offset[0] = sub_block.offset[1] = offset;
}

// Adds `by` to each byte; sums stay within a signed byte.
__device__ __forceinline__ int add_bytes(uint32_t word, uint32_t by) {
    const uint32_t low = 0x7f7f7f7fu;
    return (int)(((word & low) + (by & low)) ^ ((word ^ by) & ~low));
}

// Nibbles of sixteen bytes: the lower ones first, then the upper ones.
__device__ __forceinline__ void nibbles(const Bytes &bytes, uint64_t at, uint32_t (&out)[8]) {
    uint32_t words[4];
    bytes.words<4>(at, words);
    for (int i = 0; i < 4; i++) {
        out[i] = words[i] & 0x0f0f0f0fu;
        out[i + 4] = words[i] >> 4 & 0x0f0f0f0fu;
    }
}

// Bits 4i..4i+3 of `bits`, each as the fifth bit of a byte.
__device__ __forceinline__ uint32_t fifth(uint32_t bits, int i) {
    const uint32_t four = bits >> (4 * i) & 15;
    return (four & 1) << 4 | (four & 2) << 11 | (four & 4) << 18 | (four & 8) << 25;
}

// Sixteen signed bytes by nibble, as four words.
struct Codebook {
    uint32_t words[4];
};

// The codebook's bytes for the eight nibbles of `places`: of the lower ones in `low`, of the upper
// ones in `high`.
__device__ __forceinline__ void look_up(const Codebook &book, uint32_t places, uint32_t &low, uint32_t &high) {
    uint32_t found[2];
    for (int side = 0; side < 2; side++) {
        const uint32_t four = places >> (16 * side) & 0xffffu, within = four & 0x7777u;
        const uint32_t first = __byte_perm(book.words[0], book.words[1], within);
        const uint32_t last = __byte_perm(book.words[2], book.words[3], within);
        found[side] = __byte_perm(first, last, 0x3210u | (four & 0x8888u) >> 1);
    }
    low = __byte_perm(found[0], found[1], 0x6420u);
    high = __byte_perm(found[0], found[1], 0x7531u);
}

__device__ __forceinline__ void by_codebook(const Codebook &book, const Bytes &bytes, uint64_t at, SubBlock &sub_block) {
    uint32_t words[4];
    bytes.words<4>(at, words);
    for (int i = 0; i < 4; i++) {
        uint32_t low, high;
        look_up(book, words[i], low, high);
        sub_block.quants[i] = (int)low;
        sub_block.quants[i + 4] = (int)high;
    }
}

// Doubled E2M1 floats: 0 1 2 3 4 6 8 12, and the same below zero.
__device__ __forceinline__ Codebook e2m1() {
    return {{0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu}};
}
// ggml's uneven values: -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113.
__device__ __forceinline__ Codebook uneven() {
    return {{0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u}};
}

struct MXFP4 : Blocks<1, 17> {
    __device__ static void unpack(const Bytes &w, uint64_t block, int, SubBlock &sub_block) {
        const uint32_t exponent = w[block];
        // Half of the power, for the quants are doubled; 0 and 1 are subnormal.
        const uint32_t bits = exponent == 0 ? 0x200000u : exponent == 1 ? 0x400000u : (exponent - 1) << 23;
        even(sub_block, __uint_as_float(bits), 0.0f);
        by_codebook(e2m1(), w, block + 1, sub_block);
    }
};

struct IQ4_NL : Blocks<1, 18> {
    __device__ static void unpack(const Bytes &w, uint64_t block, int, SubBlock &sub_block) {
        even(sub_block, w.half_at(block), 0.0f);
        by_codebook(uneven(), w, block + 2, sub_block);
    }
};

struct IQ4_XS : Blocks<8, 136> {
    __device__ static void unpack(const Bytes &w, uint64_t block, int at, SubBlock &sub_block) {
        const uint32_t upper = w[block + 2] | w[block + 3] << 8;
        const uint32_t lower = w[block + 4 + at / 2] >> (4 * (at % 2)) & 15;
        const int scale = (int)(lower | (upper >> (2 * at) & 3) << 4) - 32;
        even(sub_block, w.half_at(block) * (float)scale, 0.0f);
        by_codebook(uneven(), w, block + 8 + 16 * at, sub_block);
    }
};

struct Q4_0 : Blocks<1, 18> {
    __device__ static void unpack(const Bytes &w, uint64_t block, int, SubBlock &sub_block) {
        even(sub_block, w.half_at(block), 0.0f);
        uint32_t quants[8];
        nibbles(w, block + 2, quants);
        for (int i = 0; i < 8; i++) sub_block.quants[i] = add_bytes(quants[i], 0xf8f8f8f8u);
    }
};

struct Q4_1 : Blocks<1, 20> {
    __device__ static void unpack(const Bytes &w, uint64_t block, int, SubBlock &sub_block) {
        even(sub_block, w.half_at(block), w.half_at(block + 2));
        uint32_t quants[8];
        nibbles(w, block + 4, quants);
        for (int i = 0; i < 8; i++) sub_block.quants[i] = (int)quants[i];
    }
};

struct Q5_0 : Blocks<1, 22> {
    __device__ static void unpack(const Bytes &w, uint64_t block, int, SubBlock &sub_block) {
        even(sub_block, w.half_at(block), 0.0f);
        const uint32_t upper = w.word(block + 2);
        uint32_t quants[8];
        nibbles(w, block + 6, quants);
        for (int i = 0; i < 8; i++) sub_block.quants[i] = add_bytes(quants[i] | fifth(upper, i), 0xf0f0f0f0u);
    }
};

struct Q5_1 : Blocks<1, 24> {
    __device__ static void unpack(const Bytes &w, uint64_t block, int, SubBlock &sub_block) {
        even(sub_block, w.half_at(block), w.half_at(block + 2));
        const uint32_t upper = w.word(block + 4);
        uint32_t quants[8];
        nibbles(w, block + 8, quants);
        for (int i = 0; i < 8; i++) sub_block.quants[i] = (int)(quants[i] | fifth(upper, i));
    }
};

struct Q8_0Weights : Blocks<1, 34> {
    __device__ static void unpack(const Bytes &w, uint64_t block, int, SubBlock &sub_block) {
        even(sub_block, w.half_at(block), 0.0f);
        uint32_t quants[8];
        w.words<8>(block + 2, quants);
        for (int i = 0; i < 8; i++) sub_block.quants[i] = (int)quants[i];
    }
};

// 2-bit fields of sub-block `at` of 256: bits 2 (at % 4) of 32 bytes.
__device__ __forceinline__ void two_bits(const Bytes &w, uint64_t first, int at, uint32_t (&out)[8]) {
    w.words<8>(first + at / 4 * 32, out);
    for (int i = 0; i < 8; i++) out[i] = out[i] >> (2 * (at % 4)) & 0x03030303u;
}

struct Q2_K : Blocks<8, 84> {
    __device__ static void unpack(const Bytes &w, uint64_t block, int at, SubBlock &sub_block) {
        const float scale = w.half_at(block + 80), minimum = w.half_at(block + 82);
        for (int i = 0; i < 2; i++) {
            const uint32_t both = w[block + 2 * at + i];
            sub_block.scale[i] = scale * (float)(both & 15);
            sub_block.offset[i] = -minimum * (float)(both >> 4);
        }
        uint32_t quants[8];
        two_bits(w, block + 16, at, quants);
        for (int i = 0; i < 8; i++) sub_block.quants[i] = (int)quants[i];
    }
};

struct Q3_K : Blocks<8, 110> {
    __device__ static void unpack(const Bytes &w, uint64_t block, int at, SubBlock &sub_block) {
        const float scale = w.half_at(block + 108);
        for (int i = 0; i < 2; i++) {
            const int nth = 2 * at + i;
            const uint32_t lower = w[block + 96 + nth % 8] >> (nth / 8 * 4) & 15;
            const uint32_t upper = w[block + 104 + nth % 4] >> (nth / 4 * 2) & 3;
            sub_block.scale[i] = scale * (float)((int)(lower | upper << 4) - 32);
            sub_block.offset[i] = 0.0f;
        }
        uint32_t quants[8], third[8];
        two_bits(w, block + 32, at, quants);
        w.words<8>(block, third);
        for (int i = 0; i < 8; i++)
            sub_block.quants[i] = add_bytes(quants[i] | (third[i] >> at & 0x01010101u) << 2, 0xfcfcfcfcu);
    }
};

// Scale and minimum number `at` of Q4_K's and Q5_K's twelve bytes.
__device__ __forceinline__ void six_bits(const Bytes &w, uint64_t first, int at, uint32_t &scale, uint32_t &minimum) {
    if (at < 4) {
        scale = w[first + at] & 63;
        minimum = w[first + 4 + at] & 63;
        return;
    }
    const uint32_t low = w[first + 4 + at];
    scale = (low & 15) | w[first + at - 4] >> 6 << 4;
    minimum = low >> 4 | w[first + at] >> 6 << 4;
}

__device__ __forceinline__ void scale_and_minimum(const Bytes &w, uint64_t block, int at, SubBlock &sub_block) {
    uint32_t scale, minimum;
    six_bits(w, block + 4, at, scale, minimum);
    even(sub_block, w.half_at(block) * (float)scale, -w.half_at(block + 2) * (float)minimum);
}

// Nibbles of sub-block `at` of 256: of 32 bytes the lower ones, or the upper ones.
__device__ __forceinline__ void four_bits(const Bytes &w, uint64_t first, int at, uint32_t (&out)[8]) {
    w.words<8>(first + at / 2 * 32, out);
    for (int i = 0; i < 8; i++) out[i] = out[i] >> (4 * (at % 2)) & 0x0f0f0f0fu;
}

struct Q4_K : Blocks<8, 144> {
    __device__ static void unpack(const Bytes &w, uint64_t block, int at, SubBlock &sub_block) {
        scale_and_minimum(w, block, at, sub_block);
        uint32_t quants[8];
        four_bits(w, block + 16, at, quants);
        for (int i = 0; i < 8; i++) sub_block.quants[i] = (int)quants[i];
    }
};

struct Q5_K : Blocks<8, 176> {
    __device__ static void unpack(const Bytes &w, uint64_t block, int at, SubBlock &sub_block) {
        scale_and_minimum(w, block, at, sub_block);
        uint32_t quants[8], upper[8];
        four_bits(w, block + 48, at, quants);
        w.words<8>(block + 16, upper);
        for (int i = 0; i < 8; i++) sub_block.quants[i] = (int)(quants[i] | (upper[i] >> at & 0x01010101u) << 4);
    }
};

struct Q6_K : Blocks<8, 210> {
    __device__ static void unpack(const Bytes &w, uint64_t block, int at, SubBlock &sub_block) {
        const float scale = w.half_at(block + 208);
        for (int i = 0; i < 2; i++) {
            sub_block.scale[i] = scale * (float)(int8_t)w[block + 192 + 2 * at + i];
            sub_block.offset[i] = 0.0f;
        }
        // Of each 64 bytes the lower nibbles are sub-blocks 0 and 1 of four, the upper ones
        // sub-blocks 2 and 3.
        uint32_t low[8], high[8];
        w.words<8>(block + at / 4 * 64 + at % 2 * 32, low);
        two_bits(w, block + 128, at, high);
        for (int i = 0; i < 8; i++) {
            const uint32_t quant = (low[i] >> (at % 4 / 2 * 4) & 0x0f0f0f0fu) | high[i] << 4;
            sub_block.quants[i] = add_bytes(quant, 0xe0e0e0e0u);
        }
    }
};
