// What lies between products, in as few launches as there can be.
#include "kv.cuh"

struct NormParams {
    Array<const float> x, more; // [rows, width]; `more` is added, or is empty
    Array<const float> weight;  // [width]
    Array<float> sum;           // x + more, or empty
    Array<float> y;             // [rows, width]
    Array<Q8_1> quants;         // y quantized, or empty
    uint32_t width;
    float epsilon;
};

static const int NORM_THREADS = 1024;
// Numbers that a thread keeps.
static const int NORM_EACH = 8;

// `y = weight (x + more) / sqrt(mean((x + more)²) + epsilon)`.
// All is read before anything is written, so that nobody waits for one number after the other.
// Grid: rows.
KERNEL(alara_norm, NormParams, NORM_THREADS) {
    SHARED float found[32];
    const uint64_t row = (uint64_t)blockIdx.x * p.width;
    float kept[NORM_EACH], weights[NORM_EACH], squares = 0.0f;
#pragma unroll
    for (int i = 0; i < NORM_EACH; i++) {
        const unsigned e = threadIdx.x + i * blockDim.x;
        const bool there = e < p.width;
        kept[i] = there ? p.x[row + e] : 0.0f;
        weights[i] = there ? p.weight[e] : 0.0f;
        if (there && p.more.len) kept[i] += p.more[row + e];
        squares += kept[i] * kept[i];
    }
    for (unsigned e = threadIdx.x + NORM_EACH * blockDim.x; e < p.width; e += blockDim.x) {
        const float x = p.x[row + e] + (p.more.len ? p.more[row + e] : 0.0f);
        squares += x * x;
    }
    const float scale = 1.0f / sqrtf(block_sum(squares, found) / (float)p.width + p.epsilon);
    for (unsigned i = 0, e = threadIdx.x; e < p.width; i++, e += blockDim.x) {
        float x = 0.0f, weight = 0.0f;
        if (i < NORM_EACH) {
#pragma unroll
            for (int j = 0; j < NORM_EACH; j++) {
                if (j == i) x = kept[j], weight = weights[j];
            }
        } else {
            x = p.x[row + e] + (p.more.len ? p.more[row + e] : 0.0f);
            weight = p.weight[e];
        }
        if (p.sum.len) p.sum[row + e] = x;
        const float y = x * scale * weight;
        p.y[row + e] = y;
        if (p.quants.len) quantize(y, p.quants[(row + e) / 32]);
    }
}

enum Activation { SILU = 0, GELU_TANH = 1, SIGMOID_GATE = 2, CLAMPED_SWIGLU = 3 };

struct GatedParams {
    Array<const float> gate;     // [rows, width / repeat]
    Array<const float> up;       // [rows, width]
    Array<float> y;              // [rows, width]
    Array<Q8_1> quants;          // y quantized, or empty
    uint32_t gate_step, up_step; // numbers from row to row
    uint32_t width, repeat;
    uint32_t activation, zero;
};

// `y = act(gate) up`; `repeat` numbers share one of the gate.
// Grid: ceil(numbers / 256).
KERNEL(alara_gated, GatedParams, 256) {
    const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= p.y.len) return;
    const uint64_t row = i / p.width;
    const unsigned at = (unsigned)(i - row * p.width);
    const float g = p.gate[row * p.gate_step + at / p.repeat], u = p.up[row * p.up_step + at];
    float y;
    if (p.activation == SILU) {
        y = g * sigmoid(g) * u;
    } else if (p.activation == GELU_TANH) {
        y = g * sigmoid(2.0f * 0.7978846f * g * (0.044715f * g * g + 1.0f)) * u;
    } else if (p.activation == SIGMOID_GATE) {
        y = sigmoid(g) * u;
    } else {
        const float bounded = within(g, -INFINITY, 7.0f);
        y = bounded * sigmoid(1.702f * bounded) * (within(u, -7.0f, 7.0f) + 1.0f);
    }
    p.y[i] = y;
    if (p.quants.len) quantize(y, p.quants[i / 32]);
}

struct CodesParams {
    Array<const float> x;
    Array<Q8_1> quants; // as many as there are blocks of 32
};

// Quantizes activations.
// Grid: ceil(numbers / 256).
KERNEL(alara_quantize_q8_1, CodesParams, 256) {
    const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < p.x.len) quantize(p.x[i], p.quants[i / 32]);
}

struct PrepareParams {
    Array<const float> q, k, v;         // [T, heads * width]; v is empty where values are in keys
    Array<const float> q_norm, k_norm;  // [key_width], or empty
    Array<const float> cos, sin;        // [T, half], or empty
    Array<const uint32_t> slots;        // [T]
    KvRows keys, values;
    Array<float> y;                     // queries, ready. [T, heads * key_width]
    uint32_t heads, kv_heads, key_width, value_width;
    // Pairs that turn; (2j, 2j + 1) if adjacent, else (j, j + half).
    uint32_t half, adjacent;
    float epsilon;
    uint32_t reserved;
};

// Norms and turns the heads of queries and keys, and writes keys and values to their slots.
// A warp a head.
// Shared: a head a warp.
// Grid: T, ceil((heads + 2 kv_heads) / warps).
template <Kind KIND> __device__ void prepare(const PrepareParams &p) {
    DYNAMIC_SHARED(memory);
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned nth = blockIdx.y * (blockDim.x / 32) + warp;
    const uint64_t row = blockIdx.x;
    if (nth >= p.heads + p.kv_heads) {
        const unsigned head = nth - p.heads - p.kv_heads;
        if (head >= p.kv_heads || p.v.len == 0) return;
        const uint64_t width = (uint64_t)p.kv_heads * p.value_width, first = (uint64_t)head * p.value_width;
        for (unsigned chunk = 0; chunk < p.value_width; chunk += 32) {
            const unsigned e = chunk + lane;
            const bool there = e < p.value_width;
            const float x = there ? p.v[row * width + first + e] : 0.0f;
            kv_store<KIND>(p.values, p.slots[row] * width + first + e, there, x);
        }
        return;
    }
    float *x = (float *)memory + (uint64_t)warp * p.key_width;
    const bool query = nth < p.heads;
    const unsigned head = query ? nth : nth - p.heads;
    const uint64_t width = (uint64_t)(query ? p.heads : p.kv_heads) * p.key_width, first = (uint64_t)head * p.key_width;
    const Array<const float> &norm = query ? p.q_norm : p.k_norm;
    float squares = 0.0f;
    for (unsigned e = lane; e < p.key_width; e += 32) {
        const float number = query ? p.q[row * width + first + e] : p.k[row * width + first + e];
        x[e] = number;
        squares += number * number;
    }
    if (norm.len) {
        const float scale = 1.0f / sqrtf(warp_sum(squares) / (float)p.key_width + p.epsilon);
        for (unsigned e = lane; e < p.key_width; e += 32) x[e] *= scale * norm[e];
    }
    __syncwarp();
    for (unsigned j = lane; j < p.half; j += 32) {
        const unsigned at = p.adjacent ? 2 * j : j, with = p.adjacent ? 2 * j + 1 : j + p.half;
        const float cos = p.cos[row * p.half + j], sin = p.sin[row * p.half + j], a = x[at], b = x[with];
        x[at] = a * cos - b * sin;
        x[with] = a * sin + b * cos;
    }
    __syncwarp();
    for (unsigned chunk = 0; chunk < p.key_width; chunk += 32) {
        const unsigned e = chunk + lane;
        const bool there = e < p.key_width;
        if (query) {
            if (there) p.y[row * width + first + e] = x[e];
        } else {
            kv_store<KIND>(p.keys, p.slots[row] * width + first + e, there, there ? x[e] : 0.0f);
        }
    }
}
KERNEL(alara_prepare_f32, PrepareParams, 128) { prepare<F32>(p); }
KERNEL(alara_prepare_f16, PrepareParams, 128) { prepare<F16>(p); }
KERNEL(alara_prepare_q8_0, PrepareParams, 128) { prepare<Q8_0>(p); }
