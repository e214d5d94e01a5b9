// The gated delta rule after a causal convolution: attention whose memory of a sequence is one
// matrix a head.
// Source: Yang et al. 2024, https://arxiv.org/abs/2412.06464.
// As crates/kernels/src/delta.rs has it.
#include "common.cuh"

// Rows of one sequence; they follow the rows of the span before.
struct DeltaSpan {
    // What the sequence left; empty at its beginning.
    Array<const float> state;   // [value_heads, key_width, value_width]
    Array<const float> history; // [kernel - 1, channels], oldest first
    uint32_t row, rows;
    uint32_t first_save, saves;
};

// Where what is known after `rows` rows of a span goes.
// A span's last is its end.
struct DeltaSave {
    Array<float> state, history;
    uint32_t rows, reserved;
};

struct DeltaShape {
    uint32_t key_heads, value_heads, grouped, key_width, value_width, kernel;
    float epsilon;
};

// The key head that goes with a value head: those of one key head lie side by side where they are
// grouped.
__device__ __forceinline__ uint32_t key_head_of(const DeltaShape &s, uint32_t head) {
    return s.grouped ? head / (s.value_heads / s.key_heads) : head % s.key_heads;
}

struct ConvolveParams {
    Array<const float> x;           // [T, channels]
    Array<const float> weights;     // [channels, kernel]
    Array<float> y;                 // [T, channels]
    Array<const DeltaSpan> spans;
    Array<const uint32_t> span_of;  // [T]
    DeltaShape shape;
};

// Channel `c` of a span's row `at`; of a row before its first where `at` is negative.
__device__ __forceinline__ float before(const Array<const float> &x, const DeltaSpan &span, uint32_t kernel,
                                        uint32_t channels, int at, uint32_t c) {
    if (at >= 0) return x[((uint64_t)span.row + at) * channels + c];
    if (span.history.len == 0) return 0.0f;
    return span.history[(uint64_t)((int)kernel - 1 + at) * channels + c];
}

// Convolves and applies SiLU; queries and keys become unit vectors, and queries are divided by the
// root of their width.
// Grid: T, 2 key_heads + value_heads.
KERNEL(alara_delta_convolve, ConvolveParams, 128) {
    SHARED float found[32];
    const DeltaShape &s = p.shape;
    const uint32_t keys = s.key_heads * s.key_width, head = blockIdx.y, unit = 2 * s.key_heads;
    const uint32_t channels = 2 * keys + s.value_heads * s.value_width;
    const uint32_t width = head < unit ? s.key_width : s.value_width;
    const uint32_t first = head < unit ? head * s.key_width : 2 * keys + (head - unit) * s.value_width;
    const DeltaSpan span = p.spans[p.span_of[blockIdx.x]];
    const int row = (int)(blockIdx.x - span.row);
    const uint64_t to = (uint64_t)blockIdx.x * channels;
    float squares = 0.0f;
    for (uint32_t e = threadIdx.x; e < width; e += blockDim.x) {
        const uint32_t c = first + e;
        float sum = 0.0f;
        for (int tap = 0; tap < (int)s.kernel; tap++) {
            const float u = before(p.x, span, s.kernel, channels, row + tap - (int)s.kernel + 1, c);
            sum += p.weights[(uint64_t)c * s.kernel + tap] * u;
        }
        const float y = sum * sigmoid(sum);
        squares += y * y;
        p.y[to + c] = y;
    }
    if (head >= unit) return;
    squares = block_sum(squares, found);
    float scale = 1.0f / sqrtf(squares + s.epsilon);
    if (head < s.key_heads) scale /= sqrtf((float)s.key_width);
    for (uint32_t e = threadIdx.x; e < width; e += blockDim.x) p.y[to + first + e] *= scale;
}

struct HistoryParams {
    Array<const float> x;
    Array<const DeltaSpan> spans;
    Array<const DeltaSave> saves;
    uint32_t kernel, channels;
};

// The last rows before each save.
// Grid: spans, ceil(channels / 256).
KERNEL(alara_delta_history, HistoryParams, 256) {
    const uint32_t c = blockIdx.y * blockDim.x + threadIdx.x;
    if (c >= p.channels) return;
    const DeltaSpan span = p.spans[blockIdx.x];
    for (uint32_t i = 0; i < span.saves; i++) {
        const DeltaSave save = p.saves[span.first_save + i];
        for (int tap = 0; tap + 1 < (int)p.kernel; tap++) {
            const int at = (int)save.rows + tap - ((int)p.kernel - 1);
            save.history[(uint64_t)tap * p.channels + c] = before(p.x, span, p.kernel, p.channels, at, c);
        }
    }
}

struct DeltaParams {
    Array<const float> qkv;         // [T, channels], convolved
    Array<const float> beta, alpha; // [T, value_heads], raw
    Array<const float> a, dt;       // [value_heads]
    Array<float> y;                 // [T, value_heads * value_width]
    Array<const DeltaSpan> spans;
    Array<const DeltaSave> saves;
    DeltaShape shape;
};

static const unsigned DELTA_THREADS = 128;
// Lanes that share a column of a state, and columns of a block.
static const unsigned SHARERS = 4, COLUMNS = DELTA_THREADS / SHARERS;
// Rows whose keys and queries are fetched together.
static const unsigned AHEAD = 8;

__device__ __forceinline__ float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

// What a lane holds of a column, every SHARERS-th number from `part` on, of the state whose column
// begins at `first`.
template <int HELD>
__device__ __forceinline__ void read_state(float (&held)[HELD], const Array<const float> &state, const DeltaShape &s,
                                           uint64_t first, uint32_t part, bool there) {
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        const uint32_t row = part + SHARERS * i;
        const bool known = there && row < s.key_width && state.len;
        held[i] = known ? state[first + (uint64_t)row * s.value_width] : 0.0f;
    }
}

template <int HELD>
__device__ __forceinline__ void write_state(const Array<float> &state, const float (&held)[HELD], const DeltaShape &s,
                                            uint64_t first, uint32_t part, bool there) {
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        const uint32_t row = part + SHARERS * i;
        if (there && row < s.key_width) state[first + (uint64_t)row * s.value_width] = held[i];
    }
}

// Row by row, with the state in registers: four lanes share a column, HELD numbers each.
// Shared: AHEAD keys and queries.
// Grid: spans, value heads, ceil(value_width / COLUMNS).
template <int HELD> __device__ void delta(const DeltaParams &p) {
    DYNAMIC_SHARED(memory);
    const DeltaShape &s = p.shape;
    const uint32_t head = blockIdx.y, key_head = key_head_of(s, head);
    const uint32_t keys = s.key_heads * s.key_width, channels = 2 * keys + s.value_heads * s.value_width;
    const uint32_t part = threadIdx.x % SHARERS, e = blockIdx.z * COLUMNS + threadIdx.x / SHARERS;
    const bool there = e < s.value_width;
    float *k = (float *)memory, *q = k + AHEAD * s.key_width;
    const DeltaSpan span = p.spans[blockIdx.x];
    const uint64_t matrix = (uint64_t)head * s.key_width * s.value_width + e;
    float known[HELD];
    read_state(known, span.state, s, matrix, part, there);
    const float a = p.a[head], dt = p.dt[head];
    uint32_t done = 0;
    for (uint32_t nth = 0; nth < span.saves; nth++) {
        const DeltaSave save = p.saves[span.first_save + nth];
        while (done < save.rows) {
            const uint32_t count = save.rows - done < AHEAD ? save.rows - done : AHEAD;
            __syncthreads();
            for (uint32_t i = threadIdx.x; i < count * s.key_width; i += DELTA_THREADS) {
                const uint32_t c = i % s.key_width;
                const uint64_t from = (uint64_t)(span.row + done + i / s.key_width) * channels + key_head * s.key_width + c;
                q[i] = p.qkv[from];
                k[i] = p.qkv[from + keys];
            }
            __syncthreads();
            for (uint32_t t = 0; t < count; t++) {
                const uint64_t row = span.row + done + t;
                const float decay = expf(a * softplus(p.alpha[row * s.value_heads + head] + dt));
                const float rate = sigmoid(p.beta[row * s.value_heads + head]);
                const float *kt = k + t * s.key_width, *qt = q + t * s.key_width;
                float told = 0.0f;
#pragma unroll
                for (int i = 0; i < HELD; i++) {
                    const uint32_t at = part + SHARERS * i;
                    known[i] *= decay;
                    if (at < s.key_width) told += known[i] * kt[at];
                }
                told += __shfl_xor_sync(ALL_LANES, told, 1);
                told += __shfl_xor_sync(ALL_LANES, told, 2);
                const float v = there ? p.qkv[row * channels + 2 * keys + head * s.value_width + e] : 0.0f;
                const float fresh = rate * (v - told);
                float read = 0.0f;
#pragma unroll
                for (int i = 0; i < HELD; i++) {
                    const uint32_t at = part + SHARERS * i;
                    if (at >= s.key_width) break;
                    known[i] += kt[at] * fresh;
                    read += known[i] * qt[at];
                }
                read += __shfl_xor_sync(ALL_LANES, read, 1);
                read += __shfl_xor_sync(ALL_LANES, read, 2);
                if (there && part == 0) p.y[(row * s.value_heads + head) * s.value_width + e] = read;
            }
            done += count;
        }
        write_state(save.state, known, s, matrix, part, there);
    }
}

// Rows of a chunk.
static const unsigned CHUNK = 16;

// The same up to rounding, in chunks of rows that wait for each other only where they must.
// With G_ij the decay from row j to row i, and D_i what the state takes of row i:
//
//   D_i = rate_i (v_i - G_i S'k_i - sum over j < i of G_ij (k_i k_j) D_j)
//   y_i = G_i S'q_i + sum over j <= i of G_ij (q_i k_j) D_j
//   S   = G_n S + sum over j of G_nj k_j D_j'
//
// Shared: keys and queries of a chunk, two triangles of products, rates and decays, and what the
// columns take.
// Rows of keys and queries are a number apart, so that they lie in different banks.
// Decays are of each row, from before the chunk, and to its end.
// Grid: spans, value heads, ceil(value_width / COLUMNS).
template <int HELD> __device__ void delta_chunks(const DeltaParams &p) {
    DYNAMIC_SHARED(memory);
    const DeltaShape &s = p.shape;
    const uint32_t head = blockIdx.y, key_head = key_head_of(s, head);
    const uint32_t keys = s.key_heads * s.key_width, channels = 2 * keys + s.value_heads * s.value_width;
    const uint32_t column = threadIdx.x / SHARERS, part = threadIdx.x % SHARERS, e = blockIdx.z * COLUMNS + column;
    const bool there = e < s.value_width;
    const uint32_t stride = s.key_width + 1;
    float *k = (float *)memory, *q = k + CHUNK * stride, *of_k = q + CHUNK * stride, *of_q = of_k + CHUNK * CHUNK;
    float *rates = of_q + CHUNK * CHUNK, *decays = rates + CHUNK, *since = decays + CHUNK, *until = since + CHUNK;
    float *taken = until + CHUNK;
    const DeltaSpan span = p.spans[blockIdx.x];
    const uint64_t matrix = (uint64_t)head * s.key_width * s.value_width + e;
    float known[HELD];
    read_state(known, span.state, s, matrix, part, there);
    uint32_t done = 0;
    for (uint32_t nth = 0; nth < span.saves; nth++) {
        const DeltaSave save = p.saves[span.first_save + nth];
        while (done < save.rows) {
            const uint32_t n = save.rows - done < CHUNK ? save.rows - done : CHUNK;
            const uint64_t first = (uint64_t)span.row + done;
            __syncthreads();
            for (uint32_t i = threadIdx.x; i < n * s.key_width; i += DELTA_THREADS) {
                const uint32_t t = i / s.key_width, c = i % s.key_width;
                const uint64_t from = (first + t) * channels + key_head * s.key_width + c;
                q[t * stride + c] = p.qkv[from];
                k[t * stride + c] = p.qkv[from + keys];
            }
            if (threadIdx.x < n) {
                const uint64_t at = (first + threadIdx.x) * s.value_heads + head;
                rates[threadIdx.x] = sigmoid(p.beta[at]);
                decays[threadIdx.x] = expf(p.a[head] * softplus(p.alpha[at] + p.dt[head]));
            }
            __syncthreads();
            for (uint32_t at = threadIdx.x; at < n * n; at += DELTA_THREADS) {
                const uint32_t i = at / n, j = at % n;
                if (j > i) continue;
                float decayed = 1.0f, with_k = 0.0f, with_q = 0.0f;
                for (uint32_t t = j + 1; t <= i; t++) decayed *= decays[t];
                for (uint32_t c = 0; c < s.key_width; c++) {
                    with_k += k[i * stride + c] * k[j * stride + c];
                    with_q += q[i * stride + c] * k[j * stride + c];
                }
                of_k[i * CHUNK + j] = -rates[i] * decayed * with_k;
                of_q[i * CHUNK + j] = decayed * with_q;
            }
            if (threadIdx.x < n) {
                float from = 1.0f, to = 1.0f;
                for (uint32_t t = 0; t <= threadIdx.x; t++) from *= decays[t];
                for (uint32_t t = threadIdx.x + 1; t < n; t++) to *= decays[t];
                since[threadIdx.x] = from;
                until[threadIdx.x] = to;
            }
            __syncthreads();
            for (uint32_t t = 0; t < n; t++) {
                const float *kt = k + t * stride, *qt = q + t * stride;
                float told = 0.0f, read = 0.0f;
#pragma unroll
                for (int i = 0; i < HELD; i++) {
                    const uint32_t at = part + SHARERS * i;
                    if (at >= s.key_width) break;
                    told += known[i] * kt[at];
                    read += known[i] * qt[at];
                }
                told *= -rates[t] * since[t];
                read *= since[t];
                for (uint32_t j = part; j < t; j += SHARERS) {
                    const float x = taken[j * COLUMNS + column];
                    told += of_k[t * CHUNK + j] * x;
                    read += of_q[t * CHUNK + j] * x;
                }
                told += __shfl_xor_sync(ALL_LANES, told, 1);
                told += __shfl_xor_sync(ALL_LANES, told, 2);
                read += __shfl_xor_sync(ALL_LANES, read, 1);
                read += __shfl_xor_sync(ALL_LANES, read, 2);
                const uint64_t row = first + t;
                const float v = there ? p.qkv[row * channels + 2 * keys + head * s.value_width + e] : 0.0f;
                const float fresh = rates[t] * v + told;
                if (part == 0) {
                    taken[t * COLUMNS + column] = fresh;
                    if (there)
                        p.y[(row * s.value_heads + head) * s.value_width + e] = read + of_q[t * CHUNK + t] * fresh;
                }
                // A column's lanes are of one warp.
                __syncwarp();
            }
#pragma unroll
            for (int i = 0; i < HELD; i++) known[i] *= since[n - 1];
            for (uint32_t t = 0; t < n; t++) {
                const float fresh = until[t] * taken[t * COLUMNS + column];
#pragma unroll
                for (int i = 0; i < HELD; i++) {
                    const uint32_t at = part + SHARERS * i;
                    if (at >= s.key_width) break;
                    known[i] += k[t * stride + at] * fresh;
                }
            }
            done += n;
        }
        write_state(save.state, known, s, matrix, part, there);
    }
}
KERNEL(alara_delta_chunks_8, DeltaParams, DELTA_THREADS) { delta_chunks<8>(p); }
KERNEL(alara_delta_chunks_16, DeltaParams, DELTA_THREADS) { delta_chunks<16>(p); }
KERNEL(alara_delta_chunks_32, DeltaParams, DELTA_THREADS) { delta_chunks<32>(p); }
KERNEL(alara_delta_chunks_64, DeltaParams, DELTA_THREADS) { delta_chunks<64>(p); }
KERNEL(alara_delta_8, DeltaParams, DELTA_THREADS) { delta<8>(p); }
KERNEL(alara_delta_16, DeltaParams, DELTA_THREADS) { delta<16>(p); }
KERNEL(alara_delta_32, DeltaParams, DELTA_THREADS) { delta<32>(p); }
KERNEL(alara_delta_64, DeltaParams, DELTA_THREADS) { delta<64>(p); }
