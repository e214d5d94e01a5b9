// Causal attention over keys and values in blocks: groups of heads, windows, sinks, values within
// keys.
#include "kv.cuh"

// Rows of one sequence, and the positions that a block of threads takes of those they see.
struct AttendUnit {
    // First row in the step, how many, and the position of the first.
    uint32_t row, rows, position;
    // Where the sequence's block table begins.
    uint32_t table;
    // Positions first..end of the sequence.
    uint32_t first, end;
    // Number of the first row's partial result; NONE if this is all there is.
    uint32_t partial, reserved;
};
static const uint32_t NONE = 0xffffffffu;

struct AttendParams {
    Array<const float> q;     // [T, H * key_width]
    Array<const float> sinks; // [H], or empty
    KvRows keys, values;
    Array<const AttendUnit> units;
    Array<const uint32_t> tables;
    Array<float> y;        // [T, H * value_width]
    Array<float> partials; // [partials, H, value_width + 2]: weighted sum, greatest score, sum of shares
    uint32_t heads, kv_heads, key_width, value_width;
    // Numbers in a row of keys, and of values.
    uint32_t key_row, value_row;
    uint32_t block_tokens;
    // Positions that a row sees; 0 = all.
    uint32_t window;
    float scale;
    // What scores don't exceed; 0 = they may.
    float softcap;
    // Whether a row sees, of every `window` positions, those that it is among.
    uint32_t chunked, reserved;
};

static const int ATTEND_WARPS = 4;

// Queries of one key head: QUERIES of a unit's rows times the heads of the group.
// A warp takes four positions at a time.
// Eight lanes share a key, all lanes a value, of which each has PAIRS pairs of numbers.
// Grid: units, key heads, ceil(rows * group / QUERIES).
template <Kind KIND, int QUERIES, int PAIRS> __device__ void attend(const AttendParams &p) {
    DYNAMIC_SHARED(memory);
    float *shared = (float *)memory;
    const AttendUnit unit = p.units[blockIdx.x];
    const unsigned kv_head = blockIdx.y, group = p.heads / p.kv_heads, first_query = blockIdx.z * QUERIES;
    const unsigned queries = unit.rows * group;
    if (first_query >= queries) return;
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, sub = lane / 8, part = lane % 8;
    const unsigned width = p.key_width, padded = (width + 3) / 4 * 4;

    for (unsigned i = threadIdx.x; i < QUERIES * padded; i += blockDim.x) {
        const unsigned query = first_query + i / padded, e = i % padded;
        float x = 0.0f;
        if (query < queries && e < width) {
            const uint64_t row = unit.row + query / group, head = kv_head * group + query % group;
            x = p.q[(row * p.heads + head) * width + e] * p.scale;
        }
        shared[i] = x;
    }
    __syncthreads();

    float most[QUERIES], sum[QUERIES], mixed[QUERIES][2 * PAIRS];
#pragma unroll
    for (int q = 0; q < QUERIES; q++) {
        most[q] = -INFINITY;
        sum[q] = 0.0f;
#pragma unroll
        for (int e = 0; e < 2 * PAIRS; e++) mixed[q][e] = 0.0f;
    }

    for (unsigned base = unit.first + 4 * warp; base < unit.end; base += 4 * ATTEND_WARPS) {
        const unsigned at = base + sub;
        const bool there = at < unit.end;
        float score[QUERIES];
#pragma unroll
        for (int q = 0; q < QUERIES; q++) score[q] = 0.0f;
        uint64_t slot = 0;
        if (there) {
            slot = (uint64_t)p.tables[unit.table + at / p.block_tokens] * p.block_tokens + at % p.block_tokens;
            const uint64_t key = slot * p.key_row + (uint64_t)kv_head * width;
            for (unsigned e = 4 * part; e < width; e += 32) {
                float k[4];
                kv_load<KIND>(p.keys, key + e, width - e < 4 ? width - e : 4, k);
#pragma unroll
                for (int q = 0; q < QUERIES; q++) {
                    const Floats4 x = *(const Floats4 *)(shared + q * padded + e);
#pragma unroll
                    for (int j = 0; j < 4; j++) score[q] += k[j] * x.x[j];
                }
            }
        }
        // Values are on their way while shares are made.
        float values[4][2 * PAIRS];
#pragma unroll
        for (int t = 0; t < 4; t++) {
            const uint64_t from = __shfl_sync(ALL_LANES, slot, 8 * t);
            const uint64_t value = from * p.value_row + (uint64_t)kv_head * p.value_width;
#pragma unroll
            for (int pair = 0; pair < PAIRS; pair++) {
                const unsigned e = 2 * lane + 64 * pair;
                float a = 0.0f, b = 0.0f;
                if (base + t < unit.end && e < p.value_width)
                    kv_pair<KIND>(p.values, value + e, e + 1 < p.value_width, a, b);
                values[t][2 * pair] = a;
                values[t][2 * pair + 1] = b;
            }
        }
#pragma unroll
        for (int q = 0; q < QUERIES; q++) {
            for (int mask = 4; mask > 0; mask /= 2) score[q] += __shfl_xor_sync(ALL_LANES, score[q], mask);
            const unsigned query = first_query + q, position = unit.position + query / group;
            const unsigned behind = p.chunked ? position % p.window : p.window - 1;
            const bool seen = there && query < queries && at <= position &&
                              (p.window == 0 || position - at <= behind);
            if (p.softcap > 0.0f) score[q] = p.softcap * tanhf(score[q] / p.softcap);
            if (!seen) score[q] = -INFINITY;
            float now = fmaxf(score[q], __shfl_xor_sync(ALL_LANES, score[q], 8));
            now = fmaxf(most[q], fmaxf(now, __shfl_xor_sync(ALL_LANES, now, 16)));
            const float keep = share(most[q], now);
            score[q] = share(score[q], now);
            float added = score[q] + __shfl_xor_sync(ALL_LANES, score[q], 8);
            added += __shfl_xor_sync(ALL_LANES, added, 16);
            most[q] = now;
            sum[q] = sum[q] * keep + added;
#pragma unroll
            for (int e = 0; e < 2 * PAIRS; e++) mixed[q][e] *= keep;
        }
#pragma unroll
        for (int t = 0; t < 4; t++) {
#pragma unroll
            for (int q = 0; q < QUERIES; q++) {
                const float weight = __shfl_sync(ALL_LANES, score[q], 8 * t);
#pragma unroll
                for (int e = 0; e < 2 * PAIRS; e++) mixed[q][e] += weight * values[t][e];
            }
        }
    }

    // What the warps found, one after the other.
    __syncthreads();
    float *mosts = shared, *sums = shared + ATTEND_WARPS * QUERIES, *mixes = sums + ATTEND_WARPS * QUERIES;
#pragma unroll
    for (int q = 0; q < QUERIES; q++) {
        const unsigned at = warp * QUERIES + q;
        if (lane == 0) {
            mosts[at] = most[q];
            sums[at] = sum[q];
        }
#pragma unroll
        for (int pair = 0; pair < PAIRS; pair++) {
            const unsigned e = 2 * lane + 64 * pair;
            if (e < p.value_width) mixes[at * p.value_width + e] = mixed[q][2 * pair];
            if (e + 1 < p.value_width) mixes[at * p.value_width + e + 1] = mixed[q][2 * pair + 1];
        }
    }
    __syncthreads();
    const bool whole = unit.partial == NONE;
    for (unsigned i = threadIdx.x; i < QUERIES * p.value_width; i += blockDim.x) {
        const unsigned q = i / p.value_width, e = i % p.value_width, query = first_query + q;
        if (query >= queries) break;
        const uint64_t row = query / group, head = kv_head * group + query % group;
        float greatest = -INFINITY, total = 0.0f, mix = 0.0f;
        for (int w = 0; w < ATTEND_WARPS; w++) greatest = fmaxf(greatest, mosts[w * QUERIES + q]);
        if (whole && p.sinks.len) greatest = fmaxf(greatest, p.sinks[head]);
        for (int w = 0; w < ATTEND_WARPS; w++) {
            const float factor = share(mosts[w * QUERIES + q], greatest);
            total += factor * sums[w * QUERIES + q];
            mix += factor * mixes[(w * QUERIES + q) * p.value_width + e];
        }
        if (whole) {
            if (p.sinks.len) total += share(p.sinks[head], greatest);
            p.y[((unit.row + row) * p.heads + head) * p.value_width + e] = mix / total;
        } else {
            const uint64_t part_at = ((unit.partial + row) * p.heads + head) * (p.value_width + 2);
            p.partials[part_at + e] = mix;
            if (e == 0) {
                p.partials[part_at + p.value_width] = greatest;
                p.partials[part_at + p.value_width + 1] = total;
            }
        }
    }
}

#define ATTEND(kind, KIND, QUERIES, PAIRS)                                                                            \
    KERNEL(alara_attend_##kind##_##QUERIES##x##PAIRS, AttendParams, 32 * ATTEND_WARPS) {                              \
        attend<KIND, QUERIES, PAIRS>(p);                                                                              \
    }
#define ATTEND_KIND(kind, KIND)                                                                                       \
    ATTEND(kind, KIND, 1, 2)                                                                                          \
    ATTEND(kind, KIND, 4, 2)                                                                                          \
    ATTEND(kind, KIND, 8, 2)                                                                                          \
    ATTEND(kind, KIND, 1, 4)                                                                                          \
    ATTEND(kind, KIND, 4, 4)                                                                                          \
    ATTEND(kind, KIND, 8, 4)                                                                                          \
    ATTEND(kind, KIND, 1, 8)                                                                                          \
    ATTEND(kind, KIND, 4, 8)
ATTEND_KIND(f32, F32)
ATTEND_KIND(f16, F16)
ATTEND_KIND(q8_0, Q8_0)

// The partial results of one row.
struct AttendJoin {
    uint32_t row;
    // Numbers of its partial results: first, first + stride, ...
    uint32_t first, count, stride;
};

struct AttendJoinParams {
    Array<const float> sinks;
    Array<const AttendJoin> joins;
    Array<const float> partials;
    Array<float> y;
    uint32_t heads, value_width;
};

// Grid: joins, heads.
KERNEL(alara_attend_join, AttendJoinParams, 128) {
    const AttendJoin join = p.joins[blockIdx.x];
    const uint64_t head = blockIdx.y, width = p.value_width;
    float greatest = p.sinks.len ? p.sinks[head] : -INFINITY;
    for (uint32_t i = 0; i < join.count; i++) {
        const uint64_t at = ((join.first + (uint64_t)i * join.stride) * p.heads + head) * (width + 2);
        greatest = fmaxf(greatest, p.partials[at + width]);
    }
    for (unsigned e = threadIdx.x; e < width; e += blockDim.x) {
        float total = p.sinks.len ? share(p.sinks[head], greatest) : 0.0f, mix = 0.0f;
        for (uint32_t i = 0; i < join.count; i++) {
            const uint64_t at = ((join.first + (uint64_t)i * join.stride) * p.heads + head) * (width + 2);
            const float factor = share(p.partials[at + width], greatest);
            mix += factor * p.partials[at + e];
            total += factor * p.partials[at + width + 1];
        }
        p.y[(join.row * (uint64_t)p.heads + head) * width + e] = mix / total;
    }
}

struct AppendParams {
    Array<const float> x;        // [T, row]
    Array<const uint32_t> slots; // [T]
    KvRows rows;
    uint32_t row, reserved;
};

// Writes rows to their slots.
// Grid: rows.
template <Kind KIND> __device__ void append(const AppendParams &p) {
    const uint64_t from = (uint64_t)blockIdx.x * p.row, to = (uint64_t)p.slots[blockIdx.x] * p.row;
    const unsigned lane = threadIdx.x % 32;
    for (unsigned chunk = threadIdx.x - lane; chunk < p.row; chunk += blockDim.x) {
        const unsigned e = chunk + lane;
        const bool there = e < p.row;
        kv_store<KIND>(p.rows, to + e, there, there ? p.x[from + e] : 0.0f);
    }
}
KERNEL(alara_append_f32, AppendParams, 256) { append<F32>(p); }
KERNEL(alara_append_f16, AppendParams, 256) { append<F16>(p); }
KERNEL(alara_append_q8_0, AppendParams, 256) { append<Q8_0>(p); }
