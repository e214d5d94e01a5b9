// The formats of patterns out of a codebook, and those of few values, as quant.cuh has the others.
// The layouts are ggml's, as crates/kernels/src/quant/{iq,ternary,sixteens}.rs tell.
#pragma once
#include "grids.cuh"
#include "quant.cuh"

// The bytes of `values` at eight places of two bits.
__device__ __forceinline__ void eight(uint32_t places, uint32_t values, uint32_t &low, uint32_t &high) {
    uint32_t found[2];
    for (int i = 0; i < 2; i++) {
        const uint32_t four = places >> (8 * i) & 255;
        const uint32_t apart = (four & 3) | (four & 0xcu) << 2 | (four & 0x30u) << 4 | (four & 0xc0u) << 6;
        found[i] = __byte_perm(values, 0, apart);
    }
    low = found[0];
    high = found[1];
}

// Four magnitudes, each of at least 1, with a bit each of `signs`: set means below zero.
__device__ __forceinline__ int with_signs(uint32_t magnitudes, uint32_t signs) {
    const uint32_t below = (signs & 1) * 0xffu | (signs & 2) * 0x7f80u | (signs & 4) * 0x3fc000u | (signs & 8) * 0x1fe00000u;
    return (int)((magnitudes ^ below) + (below & 0x01010101u));
}

// Seven signs, and an eighth by which their number is even.
__device__ __forceinline__ uint32_t even_signs(uint32_t signs) {
    const uint32_t seven = signs & 127;
    uint32_t odd = seven ^ seven >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return seven | (odd & 1) << 7;
}

// Eight numbers of IQ2: a pattern of magnitudes 8, 25 and 43.
__device__ __forceinline__ void signed_eight(uint32_t pattern, uint32_t signs, int *quants) {
    uint32_t low, high;
    eight(pattern, 0x002b1908u, low, high);
    quants[0] = with_signs(low, signs);
    quants[1] = with_signs(high, signs >> 4);
}

__device__ __forceinline__ float odd(float scale, uint32_t bits) { return scale * (float)(2 * bits + 1); }

struct IQ2_XXS : Blocks<8, 66> {
    __device__ static void unpack(const Bytes &w, uint64_t block, int at, SubBlock &sub_block) {
        uint32_t words[2];
        w.words<2>(block + 2 + 8 * at, words);
        even(sub_block, odd(0.125f * w.half_at(block), words[1] >> 28), 0.0f);
        for (int i = 0; i < 4; i++)
            signed_eight(IQ2_XXS_GRID[words[0] >> (8 * i) & 255], even_signs(words[1] >> (7 * i)), sub_block.quants + 2 * i);
    }
};

// The scales of two sixteens, of four bits each in a byte.
__device__ __forceinline__ void nibble_scales(const Bytes &w, uint64_t block, uint64_t first, int at, SubBlock &sub_block) {
    const uint32_t both = w[first + at];
    const float scale = 0.125f * w.half_at(block);
    sub_block.scale[0] = odd(scale, both & 15);
    sub_block.scale[1] = odd(scale, both >> 4);
    sub_block.offset[0] = sub_block.offset[1] = 0.0f;
}

struct IQ2_XS : Blocks<8, 74> {
    __device__ static void unpack(const Bytes &w, uint64_t block, int at, SubBlock &sub_block) {
        nibble_scales(w, block, block + 66, at, sub_block);
        uint32_t words[2];
        w.words<2>(block + 2 + 8 * at, words);
        for (int i = 0; i < 4; i++) {
            const uint32_t both = words[i / 2] >> (16 * (i % 2)) & 0xffffu;
            signed_eight(IQ2_XS_GRID[both & 511], even_signs(both >> 9), sub_block.quants + 2 * i);
        }
    }
};

struct IQ2_S : Blocks<8, 82> {
    __device__ static void unpack(const Bytes &w, uint64_t block, int at, SubBlock &sub_block) {
        nibble_scales(w, block, block + 74, at, sub_block);
        const uint32_t lower = w.word(block + 2 + 4 * at), signs = w.word(block + 34 + 4 * at), upper = w[block + 66 + at];
        for (int i = 0; i < 4; i++) {
            const uint32_t pattern = (lower >> (8 * i) & 255) | (upper >> (2 * i) & 3) << 8;
            signed_eight(IQ2_S_GRID[pattern], signs >> (8 * i), sub_block.quants + 2 * i);
        }
    }
};

struct IQ3_XXS : Blocks<8, 98> {
    __device__ static void unpack(const Bytes &w, uint64_t block, int at, SubBlock &sub_block) {
        const uint32_t word = w.word(block + 66 + 4 * at);
        even(sub_block, odd(0.25f * w.half_at(block), word >> 28), 0.0f);
        for (int i = 0; i < 8; i++) {
            const uint32_t pattern = IQ3_XXS_GRID[w[block + 2 + 8 * at + i]];
            const uint32_t signs = even_signs(word >> (7 * (i / 2))) >> (4 * (i % 2));
            sub_block.quants[i] = with_signs(__byte_perm(0x1c140c04u, 0x3e342c24u, pattern), signs);
        }
    }
};

struct IQ3_S : Blocks<8, 110> {
    __device__ static void unpack(const Bytes &w, uint64_t block, int at, SubBlock &sub_block) {
        even(sub_block, odd(w.half_at(block), w[block + 106 + at / 2] >> (4 * (at % 2)) & 15), 0.0f);
        const uint32_t signs = w.word(block + 74 + 4 * at), ninth = w[block + 66 + at];
        for (int i = 0; i < 8; i++) {
            const uint32_t pattern = IQ3_S_GRID[w[block + 2 + 8 * at + i] | (ninth >> i & 1) << 8];
            sub_block.quants[i] = with_signs(__byte_perm(0x07050301u, 0x0f0d0b09u, pattern), signs >> (4 * i));
        }
    }
};

// Eight numbers of IQ1: eight times -1, 0 and 1, and one more or less.
__device__ __forceinline__ void moved_eight(uint32_t pattern, bool down, int *quants) {
    uint32_t low, high;
    eight(IQ1_GRID[pattern], down ? 0x0007fff7u : 0x000901f9u, low, high);
    quants[0] = (int)low;
    quants[1] = (int)high;
}

struct IQ1_S : Blocks<8, 50> {
    __device__ static void unpack(const Bytes &w, uint64_t block, int at, SubBlock &sub_block) {
        const uint32_t upper = w[block + 34 + 2 * at] | w[block + 35 + 2 * at] << 8;
        even(sub_block, odd(0.125f * w.half_at(block), upper >> 12 & 7), 0.0f);
        for (int i = 0; i < 4; i++) {
            const uint32_t pattern = w[block + 2 + 4 * at + i] | (upper >> (3 * i) & 7) << 8;
            moved_eight(pattern, (upper & 0x8000u) != 0, sub_block.quants + 2 * i);
        }
    }
};

struct IQ1_M : Blocks<8, 56> {
    __device__ static void unpack(const Bytes &w, uint64_t block, int at, SubBlock &sub_block) {
        uint16_t bits = 0;
        for (int i = 0; i < 4; i++) bits |= (uint16_t)(w[block + 49 + 2 * i] >> 4 << (4 * i));
        const float scale = 0.125f * Bytes::bits_to_float(bits);
        const uint32_t four = w[block + 48 + at / 2 * 2] | w[block + 49 + at / 2 * 2] << 8, two = four >> (6 * (at % 2));
        sub_block.scale[0] = odd(scale, two & 7);
        sub_block.scale[1] = odd(scale, two >> 3 & 7);
        sub_block.offset[0] = sub_block.offset[1] = 0.0f;
        for (int i = 0; i < 4; i++) {
            const uint32_t upper = w[block + 32 + 2 * at + i / 2] >> (4 * (i % 2));
            moved_eight(w[block + 4 * at + i] | (upper & 7) << 8, (upper & 8) != 0, sub_block.quants + 2 * i);
        }
    }
};

struct TQ1_0 : Blocks<8, 54> {
    __device__ static void unpack(const Bytes &w, uint64_t block, int at, SubBlock &sub_block) {
        even(sub_block, w.half_at(block + 52), 0.0f);
        for (int i = 0; i < 8; i++) {
            // The first digits of 32 bytes, then the next; the same of 16 and of 4 bytes.
            const int n = 32 * at + 4 * i, first = n < 160 ? 0 : n < 240 ? 160 : 240;
            const int wide = n < 160 ? 32 : n < 240 ? 16 : 4, from = n < 160 ? 0 : n < 240 ? 32 : 48;
            uint32_t power = 1, quant = 0;
            for (int digit = (n - first) / wide; digit > 0; digit--) power *= 3;
            for (int j = 0; j < 4; j++) {
                const uint32_t rest = w[block + from + (n - first) % wide + j] * power & 255;
                quant |= (rest * 3 >> 8) << (8 * j);
            }
            sub_block.quants[i] = add_bytes(quant, 0xffffffffu);
        }
    }
};

struct TQ2_0 : Blocks<8, 66> {
    __device__ static void unpack(const Bytes &w, uint64_t block, int at, SubBlock &sub_block) {
        even(sub_block, w.half_at(block + 64), 0.0f);
        uint32_t quants[8];
        two_bits(w, block, at, quants);
        for (int i = 0; i < 8; i++) sub_block.quants[i] = add_bytes(quants[i], 0xffffffffu);
    }
};

struct NVFP4 : Blocks<2, 36> {
    __device__ static void unpack(const Bytes &w, uint64_t block, int at, SubBlock &sub_block) {
        for (int half = 0; half < 2; half++) {
            const uint32_t scale = w[block + 2 * at + half], exponent = scale >> 3 & 15, mantissa = scale & 7;
            // Half of an E4M3 float, for the quants are doubled.
            sub_block.scale[half] = scale == 0x7fu    ? 0.0f
                              : exponent == 0 ? (float)mantissa / 1024.0f
                                              : __uint_as_float((exponent + 119) << 23 | mantissa << 20);
            sub_block.offset[half] = 0.0f;
            uint32_t words[2];
            w.words<2>(block + 4 + 16 * at + 8 * half, words);
            for (int i = 0; i < 2; i++) {
                uint32_t low, high;
                look_up(e2m1(), words[i], low, high);
                sub_block.quants[4 * half + i] = (int)low;
                sub_block.quants[4 * half + i + 2] = (int)high;
            }
        }
    }
};

struct Q1_0 : Blocks<4, 18> {
    __device__ static void unpack(const Bytes &w, uint64_t block, int at, SubBlock &sub_block) {
        even(sub_block, w.half_at(block), 0.0f);
        const uint32_t bits = w.word(block + 2 + 4 * at);
        for (int i = 0; i < 8; i++) sub_block.quants[i] = with_signs(0x01010101u, ~bits >> (4 * i));
    }
};
