// A layer of experts without asking the host: which experts a row uses, the rows of each expert,
// the sum of what they give.
#include "common.cuh"

enum Score { SOFTMAX = 0, SIGMOID = 1, SOFTMAX_OF_CHOSEN = 2, SIGMOID_OF_CHOSEN = 3 };

struct RouteParams {
    Array<const float> logits; // [T, count]
    Array<const float> bias;   // [count], added for the choice alone; or empty
    Array<uint32_t> experts;   // [T, used]
    Array<float> weights;      // [T, used]
    uint32_t count, used, score, normalise;
    float scale;
    uint32_t groups, kept; // of `groups` equal groups of experts the `kept` best are looked at
    uint32_t reserved;
};

// A warp a row.
// Shared: the ranks of experts and of groups, and the experts' scores.
// Grid: T.
KERNEL(alara_route, RouteParams, 32) {
    DYNAMIC_SHARED(memory);
    uint64_t *ranks = (uint64_t *)memory;
    uint64_t *of_groups = ranks + p.count;
    float *scores = (float *)(of_groups + p.groups);
    const unsigned lane = threadIdx.x;
    const uint64_t row = (uint64_t)blockIdx.x * p.count, to = (uint64_t)blockIdx.x * p.used;
    float most = -INFINITY, sum = 0.0f;
    if (p.score == SOFTMAX) {
        for (unsigned i = lane; i < p.count; i += 32) most = fmaxf(most, p.logits[row + i]);
        most = warp_max(most);
        for (unsigned i = lane; i < p.count; i += 32) sum += expf(p.logits[row + i] - most);
        sum = warp_sum(sum);
    }
    for (unsigned i = lane; i < p.count; i += 32) {
        const float x = p.logits[row + i];
        scores[i] = p.score == SOFTMAX ? expf(x - most) / sum : p.score == SIGMOID ? sigmoid(x) : x;
        ranks[i] = rank_of(scores[i] + (p.bias.len ? p.bias[i] : 0.0f), i);
    }
    __syncwarp();
    if (p.kept < p.groups) {
        // A group is as good as its two best experts together.
        const unsigned size = p.count / p.groups;
        for (unsigned group = lane; group < p.groups; group += 32) {
            float best = -INFINITY, second = -INFINITY;
            for (unsigned i = group * size; i < (group + 1) * size; i++) {
                const float x = scores[i] + (p.bias.len ? p.bias[i] : 0.0f);
                if (x > best) {
                    second = best;
                    best = x;
                } else if (x > second) {
                    second = x;
                }
            }
            of_groups[group] = rank_of(size == 1 ? best : best + second, group);
        }
        __syncwarp();
        for (unsigned nth = 0; nth < p.kept; nth++) {
            uint64_t best = 0;
            for (unsigned group = lane; group < p.groups; group += 32)
                best = of_groups[group] > best ? of_groups[group] : best;
            best = warp_first(best);
            __syncwarp();
            if (lane == 0) of_groups[0xffffffffu - (uint32_t)best] = 0;
            __syncwarp();
        }
        // Those that still have a rank were not taken.
        for (unsigned i = lane; i < p.count; i += 32)
            if (of_groups[i / size]) ranks[i] = 0;
        __syncwarp();
    }
    float greatest = 0.0f, total = 0.0f;
    for (unsigned nth = 0; nth < p.used; nth++) {
        uint64_t best = 0;
        for (unsigned i = lane; i < p.count; i += 32) best = ranks[i] > best ? ranks[i] : best;
        best = warp_first(best);
        const uint32_t expert = 0xffffffffu - (uint32_t)best;
        float weight = scores[expert];
        if (p.score == SOFTMAX_OF_CHOSEN) {
            if (nth == 0) greatest = weight;
            weight = expf(weight - greatest);
        } else if (p.score == SIGMOID_OF_CHOSEN) {
            weight = sigmoid(weight);
        }
        total += weight;
        __syncwarp();
        if (lane == 0) {
            p.experts[to + nth] = expert;
            p.weights[to + nth] = weight;
            ranks[expert] = 0;
        }
        __syncwarp();
    }
    float factor = p.scale;
    if (p.score == SOFTMAX_OF_CHOSEN) {
        factor /= total;
    } else if (p.normalise) {
        // The smallest normal f16, as the reference bounds the sum.
        factor /= fmaxf(total, 6.1035156e-5f);
    }
    __syncwarp();
    for (unsigned nth = lane; nth < p.used; nth += 32) p.weights[to + nth] *= factor;
}

// As in matmul.cu.
struct BucketTile {
    uint32_t expert, first, count, reserved;
};

struct BucketParams {
    Array<const uint32_t> experts; // [places]
    Array<uint32_t> order;         // [places]
    Array<BucketTile> tiles;       // as many as there can be; those left over have no rows
    uint32_t count, side;
};

// The places expert by expert, in their order, and tiles of at most `side` of one expert.
// One block; a thread counts for an expert.
// Shared: count + 1 firsts, and as many first tiles.
KERNEL(alara_bucket, BucketParams, 1024) {
    DYNAMIC_SHARED(memory);
    uint32_t *firsts = (uint32_t *)memory, *tiles = firsts + p.count + 1;
    const uint32_t places = (uint32_t)p.experts.len;
    for (unsigned expert = threadIdx.x; expert < p.count; expert += blockDim.x) {
        uint32_t rows = 0;
        for (uint32_t i = 0; i < places; i++) rows += p.experts[i] == expert;
        firsts[expert + 1] = rows;
        tiles[expert + 1] = (rows + p.side - 1) / p.side;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        firsts[0] = tiles[0] = 0;
        for (uint32_t expert = 0; expert < p.count; expert++) {
            firsts[expert + 1] += firsts[expert];
            tiles[expert + 1] += tiles[expert];
        }
    }
    __syncthreads();
    for (unsigned expert = threadIdx.x; expert < p.count; expert += blockDim.x) {
        uint32_t at = firsts[expert];
        const uint32_t end = firsts[expert + 1];
        if (at == end) continue;
        for (uint32_t tile = 0; tile < tiles[expert + 1] - tiles[expert]; tile++) {
            const uint32_t first = at + tile * p.side;
            p.tiles[tiles[expert] + tile] = {expert, first, end - first < p.side ? end - first : p.side, 0};
        }
        for (uint32_t i = 0; i < places; i++)
            if (p.experts[i] == expert) p.order[at++] = i;
    }
    for (uint64_t tile = tiles[p.count] + threadIdx.x; tile < p.tiles.len; tile += blockDim.x)
        p.tiles[tile] = {0, 0, 0, 0};
}

struct WeighParams {
    Array<const float> x;       // [T * used, width]
    Array<const float> weights; // [T, used]
    Array<float> y;             // [T, width]
    uint32_t used, width;
};

// Each row's sum of what its experts give, in their order.
// Grid: T, ceil(width / 256).
KERNEL(alara_weigh, WeighParams, 256) {
    const unsigned e = blockIdx.y * blockDim.x + threadIdx.x;
    if (e >= p.width) return;
    const uint64_t row = blockIdx.x;
    float sum = 0.0f;
    for (unsigned nth = 0; nth < p.used; nth++) {
        const uint64_t place = row * p.used + nth;
        sum += p.weights[place] * p.x[place * p.width + e];
    }
    p.y[row * p.width + e] = sum;
}
