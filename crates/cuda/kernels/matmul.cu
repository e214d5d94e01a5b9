// Products of quantized weights with rows of activations: a few rows (decode) by integer dot
// products, many (prefill) by tiles of halves.
// Dense, or each row by the expert that is meant for it.
#include "iq.cuh"
#ifdef __CUDACC__
#include <mma.h>
#endif
using namespace nvcuda;

// 32 activations: `scale * quant`, and the sums of sixteen quants each.
struct Activations {
    float scale;
    int16_t sums[2];
    int quants[8];
};

struct QuantizeParams {
    Array<const float> x;   // [rows, 32 sub-blocks]
    Array<Activations> out; // [rows, sub-blocks]
    uint32_t sub_blocks, reserved;
};

// What is less counts as nothing: its inverse is none.
static const float LEAST = 1e-30f;

// Grid: rows, ceil(sub-blocks / warps).
// The scale is the greatest magnitude / 127; so a sub-block with what is no number shows it.
KERNEL(alara_quantize, QuantizeParams, 256) {
    const unsigned lane = threadIdx.x % 32, sub_block = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32;
    if (sub_block >= p.sub_blocks) return;
    const uint64_t at = (uint64_t)blockIdx.x * p.sub_blocks + sub_block;
    const float x = p.x[at * 32 + lane], most = warp_magnitude(x);
    const int quant = most < LEAST ? 0 : __float2int_rn(x * (127.0f / most));
    int sum = quant;
    for (int mask = 8; mask > 0; mask /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, mask);
    Activations &out = p.out[at];
    ((int8_t *)out.quants)[lane] = (int8_t)quant;
    if (lane % 16 == 0) out.sums[lane / 16] = (int16_t)sum;
    if (lane == 0) out.scale = most < LEAST ? 0.0f : most / 127.0f;
}

// Which rows meet which weights.
// A place is a row of outputs; row `place / shared` of activations makes it.
struct Places {
    // The expert of every place; empty = one matrix for all.
    Array<const uint32_t> experts;
    // Rows of weights of an expert, and the first that is meant.
    uint32_t stack, first;
    // Rows of outputs, and how many share a row of activations.
    uint32_t count, shared;
};

struct SmallBatchParams {
    Bytes w;                     // [out, sub-blocks] or [experts, stack, sub-blocks]
    Array<const Activations> x;  // [rows, sub-blocks]
    Array<const float> bias;     // [out] or [experts, out], or empty
    Array<float> y;              // [places, out]
    Places places;
    uint32_t out, sub_blocks;
};

static const int SMALL_BATCH_WARPS = 4;

// A warp makes one number of ROWS rows of outputs; its lanes take the sub-blocks in turn.
// With experts ROWS is 1.
// Grid: ceil(out / SMALL_BATCH_WARPS), ceil(places / ROWS).
template <class Format, int ROWS> __device__ void small_batch(const SmallBatchParams &p) {
    const unsigned lane = threadIdx.x % 32, o = blockIdx.x * SMALL_BATCH_WARPS + threadIdx.x / 32;
    if (o >= p.out) return;
    const unsigned first = blockIdx.y * ROWS;
    uint32_t expert = 0;
    if (p.places.experts.len) expert = p.places.experts[first];
    const uint64_t row_bytes = p.sub_blocks / Format::BLOCK_SUB_BLOCKS * Format::BLOCK_BYTES;
    const uint64_t start = ((uint64_t)expert * p.places.stack + p.places.first + o) * row_bytes;
    float sums[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) sums[r] = 0.0f;
    for (unsigned at = lane; at < p.sub_blocks; at += 32) {
        SubBlock sub_block;
        Format::unpack(p.w, start + at / Format::BLOCK_SUB_BLOCKS * Format::BLOCK_BYTES, (int)(at % Format::BLOCK_SUB_BLOCKS), sub_block);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const unsigned place = first + r;
            if (place >= p.places.count) break;
            const Activations &x = p.x[(uint64_t)(place / p.places.shared) * p.sub_blocks + at];
            int low = 0, high = 0;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                low = __dp4a(sub_block.quants[i], x.quants[i], low);
                high = __dp4a(sub_block.quants[i + 4], x.quants[i + 4], high);
            }
            const float sum = sub_block.scale[0] * (float)low + sub_block.scale[1] * (float)high +
                              sub_block.offset[0] * (float)x.sums[0] + sub_block.offset[1] * (float)x.sums[1];
            sums[r] += x.scale * sum;
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const float sum = warp_sum(sums[r]);
        const unsigned place = first + r;
        if (lane != 0 || place >= p.places.count) continue;
        const float bias = p.bias.len ? p.bias[(uint64_t)expert * p.out + o] : 0.0f;
        p.y[(uint64_t)place * p.out + o] = sum + bias;
    }
}

struct RowScaleParams {
    Array<const float> x; // [rows, width]
    Array<float> scales;  // [rows]
    uint32_t width, reserved;
};

// The power of two by which a row's numbers become at most 1, so that halves don't overflow.
// Grid: rows.
KERNEL(alara_row_scales, RowScaleParams, 256) {
    SHARED float found[32];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float most = 0.0f;
    for (unsigned i = threadIdx.x; i < p.width; i += blockDim.x)
        most = fmaxf(most, fabsf(p.x[(uint64_t)blockIdx.x * p.width + i]));
    most = warp_max(most);
    if (lane == 0) found[warp] = most;
    __syncthreads();
    if (threadIdx.x) return;
    for (unsigned w = 1; w < blockDim.x / 32; w++) most = fmaxf(most, found[w]);
    int exponent = 0;
    if (most >= LEAST && most < INFINITY) frexpf(most, &exponent);
    p.scales[blockIdx.x] = ldexpf(1.0f, exponent);
}

// Rows of one expert: `count` of `order`, from `first` on.
struct Tile {
    uint32_t expert, first, count, reserved;
};

struct GemmParams {
    Bytes w;
    Array<const float> x;        // [rows, 32 sub-blocks]
    Array<const float> scales;   // [rows]
    Array<const float> bias;
    Array<const uint32_t> order; // [places]: the places, expert by expert; empty = as they come
    Array<const Tile> tiles;     // empty = every 64 places
    Array<float> y;
    Places places;
    uint32_t out, sub_blocks;
};

static const int SIDE = 64;
// Runs that are multiplied at a time.
static const int DEEP = 2;
// Halves from row to row in shared memory, 8 apart from a power of two so that rows lie in
// different banks.
static const int STRIDE = 32 * DEEP + 8;
static const int SUM_STRIDE = SIDE + 4;
static const int GEMM_THREADS = SIDE * DEEP;
static_assert(GEMM_THREADS == 4 * 32, "a quarter of a tile for each of four warps");
// Threads that read a row of activations together, four numbers each, and the rows that a thread
// reads of.
static const int ACROSS = 8 * DEEP, READS = SIDE * ACROSS / GEMM_THREADS;

// Four numbers of a sub-block as halves.
__device__ __forceinline__ Halves4 widened(const SubBlock &sub_block, int word) {
    // A byte under the exponent of 2^23 is 2^23 and the byte; the quants have a sign, which is
    // turned to an offset of 128.
    const uint32_t quants = (uint32_t)sub_block.quants[word] ^ 0x80808080u;
    Halves4 four;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float quant = __uint_as_float(__byte_perm(quants, 0x4b000000u, 0x7440u + (unsigned)i)) - 8388736.0f;
        four.x[i] = __float2half_rn(sub_block.scale[word / 4] * quant + sub_block.offset[word / 4]);
    }
    return four;
}

// SIDE numbers of SIDE rows of outputs: DEEP sub-blocks after the others are widened to halves, and
// multiplied by four warps, each a quarter.
// What comes next is read while that is done.
// Sums are in f32.
// Grid: ceil(out / SIDE), tiles.
template <class Format> __device__ void gemm(const GemmParams &p) {
    DYNAMIC_SHARED(memory);
    SHARED float inverse[SIDE];
    // Of each row of the tile: its row of outputs, and of activations.
    SHARED uint32_t places[SIDE], sources[SIDE];
    half *w = (half *)memory, *x = w + SIDE * STRIDE;
    float *sums = (float *)memory;
    Tile tile = {0, blockIdx.y * SIDE, 0, 0};
    if (p.tiles.len) {
        tile = p.tiles[blockIdx.y];
    } else {
        tile.count = p.places.count - tile.first < SIDE ? p.places.count - tile.first : SIDE;
    }
    if (tile.count == 0) return;
    const unsigned thread = threadIdx.x, warp = thread / 32, first = blockIdx.x * SIDE;
    const unsigned out_at = warp % 2 * 32, row_at = warp / 2 * 32;
    const uint64_t row_bytes = p.sub_blocks / Format::BLOCK_SUB_BLOCKS * Format::BLOCK_BYTES;
    if (thread < SIDE && thread < tile.count) {
        const uint32_t place = p.order.len ? p.order[tile.first + thread] : tile.first + thread;
        places[thread] = place;
        sources[thread] = place / p.places.shared;
        inverse[thread] = 1.0f / p.scales[sources[thread]];
    }
    __syncthreads();

    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2][2];
    for (int i = 0; i < 4; i++) wmma::fill_fragment(sum[i / 2][i % 2], 0.0f);

    // A thread widens one of the sub-blocks of a row of weights, and reads four numbers of some
    // rows of activations.
    const unsigned mine = thread / DEEP, nth = thread % DEEP, across = thread % ACROSS;
    const bool there = first + mine < p.out;
    const uint64_t from = ((uint64_t)tile.expert * p.places.stack + p.places.first + first + mine) * row_bytes;
    SubBlock sub_block;
    Floats4 numbers[READS];
    const auto read = [&](unsigned at) {
        const unsigned own = at + nth;
        if (there && own < p.sub_blocks) {
            Format::unpack(p.w, from + own / Format::BLOCK_SUB_BLOCKS * Format::BLOCK_BYTES, (int)(own % Format::BLOCK_SUB_BLOCKS), sub_block);
        } else {
            sub_block = SubBlock{};
        }
        const unsigned e = 32 * at + 4 * across;
#pragma unroll
        for (int i = 0; i < READS; i++) {
            const unsigned row = thread / ACROSS + i * (GEMM_THREADS / ACROSS);
            numbers[i] = Floats4{};
            if (row >= tile.count || e >= 32 * p.sub_blocks) continue;
            const uint64_t number = (uint64_t)sources[row] * p.sub_blocks * 32 + e;
            CHECK(number + 4 <= p.x.len && (uintptr_t)(p.x.at + number) % sizeof(Floats4) == 0);
            numbers[i] = *(const Floats4 *)(p.x.at + number);
        }
    };
    read(0);
    for (unsigned at = 0; at < p.sub_blocks; at += DEEP) {
#pragma unroll
        for (int word = 0; word < 8; word++)
            *(Halves4 *)(w + mine * STRIDE + 32 * nth + 4 * word) = widened(sub_block, word);
#pragma unroll
        for (int i = 0; i < READS; i++) {
            const unsigned row = thread / ACROSS + i * (GEMM_THREADS / ACROSS);
            const float factor = row < tile.count ? inverse[row] : 0.0f;
            Halves4 four;
            for (int j = 0; j < 4; j++) four.x[j] = __float2half_rn(numbers[i].x[j] * factor);
            *(Halves4 *)(x + row * STRIDE + 4 * across) = four;
        }
        __syncthreads();
        if (at + DEEP < p.sub_blocks) read(at + DEEP);
        for (int k = 0; k < 32 * DEEP; k += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a[2];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b[2];
            for (int i = 0; i < 2; i++) {
                wmma::load_matrix_sync(a[i], w + (out_at + 16 * i) * STRIDE + k, STRIDE);
                wmma::load_matrix_sync(b[i], x + (row_at + 16 * i) * STRIDE + k, STRIDE);
            }
            for (int i = 0; i < 4; i++) wmma::mma_sync(sum[i / 2][i % 2], a[i / 2], b[i % 2], sum[i / 2][i % 2]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; i++) {
        float *to = sums + (row_at + i % 2 * 16) * SUM_STRIDE + out_at + i / 2 * 16;
        wmma::store_matrix_sync(to, sum[i / 2][i % 2], SUM_STRIDE, wmma::mem_col_major);
    }
    __syncthreads();
    for (unsigned i = thread; i < SIDE * SIDE; i += blockDim.x) {
        const unsigned row = i / SIDE, o = i % SIDE;
        if (row >= tile.count || first + o >= p.out) continue;
        const uint32_t place = places[row];
        const float bias = p.bias.len ? p.bias[(uint64_t)tile.expert * p.out + first + o] : 0.0f;
        p.y[(uint64_t)place * p.out + first + o] =
            sums[row * SUM_STRIDE + o] * p.scales[sources[row]] + bias;
    }
}

struct WidenParams {
    Bytes w;
    Array<const uint32_t> rows; // which rows
    Array<float> y;             // [rows, 32 sub-blocks]
    uint32_t sub_blocks, reserved;
};

// The numbers of some rows: an embedding.
// Grid: rows.
template <class Format> __device__ void widen(const WidenParams &p) {
    const uint64_t row_bytes = p.sub_blocks / Format::BLOCK_SUB_BLOCKS * Format::BLOCK_BYTES;
    const uint64_t start = p.rows[blockIdx.x] * row_bytes;
    for (unsigned at = threadIdx.x; at < p.sub_blocks; at += blockDim.x) {
        SubBlock sub_block;
        Format::unpack(p.w, start + at / Format::BLOCK_SUB_BLOCKS * Format::BLOCK_BYTES, (int)(at % Format::BLOCK_SUB_BLOCKS), sub_block);
        for (int i = 0; i < 32; i++) {
            const float quant = (float)(int8_t)(sub_block.quants[i / 4] >> (8 * (i % 4)));
            p.y[((uint64_t)blockIdx.x * p.sub_blocks + at) * 32 + i] = sub_block.scale[i / 16] * quant + sub_block.offset[i / 16];
        }
    }
}

#define MATMUL(name, Format)                                                                                          \
    KERNEL(alara_small_batch_##name##_1, SmallBatchParams, 32 * SMALL_BATCH_WARPS) { small_batch<Format, 1>(p); }                                    \
    KERNEL(alara_small_batch_##name##_4, SmallBatchParams, 32 * SMALL_BATCH_WARPS) { small_batch<Format, 4>(p); }                                    \
    KERNEL(alara_small_batch_##name##_8, SmallBatchParams, 32 * SMALL_BATCH_WARPS) { small_batch<Format, 8>(p); }                                    \
    KERNEL(alara_gemm_##name, GemmParams, GEMM_THREADS) { gemm<Format>(p); }                                          \
    KERNEL(alara_widen_##name, WidenParams, 128) { widen<Format>(p); }
MATMUL(Q4_0, Q4_0)
MATMUL(Q4_1, Q4_1)
MATMUL(Q5_0, Q5_0)
MATMUL(Q5_1, Q5_1)
MATMUL(Q8_0, Q8_0Weights)
MATMUL(Q2_K, Q2_K)
MATMUL(Q3_K, Q3_K)
MATMUL(Q4_K, Q4_K)
MATMUL(Q5_K, Q5_K)
MATMUL(Q6_K, Q6_K)
MATMUL(MXFP4, MXFP4)
MATMUL(IQ4_NL, IQ4_NL)
MATMUL(IQ4_XS, IQ4_XS)
MATMUL(IQ1_S, IQ1_S)
MATMUL(IQ1_M, IQ1_M)
MATMUL(IQ2_XXS, IQ2_XXS)
MATMUL(IQ2_XS, IQ2_XS)
MATMUL(IQ2_S, IQ2_S)
MATMUL(IQ3_XXS, IQ3_XXS)
MATMUL(IQ3_S, IQ3_S)
MATMUL(TQ1_0, TQ1_0)
MATMUL(TQ2_0, TQ2_0)
MATMUL(NVFP4, NVFP4)
MATMUL(Q1_0, Q1_0)
