// A model's weights and its shape, as `runtimes/llm/model.py` has them; what they mean is said there.
#pragma once

#include <memory>
#include <vector>

#include "adapter.h"
#include "attention.h"
#include "cache.h"
#include "matrix.h"
#include "team.h"

namespace headrace {

enum class Activation : int { SILU = 0, GELU_TANH = 1, GELU = 2, RELU2 = 3, XIELU = 4, CLAMPED_SWIGLU = 5 };
enum class QueryNorm : int { NONE = 0, HEAD = 1, HEAD_AFTER_ROPE = 2, WHOLE = 3 };

// Of C: `executor.py` fills one of the same layout.
struct Shape {
    int hidden, inner, layers, heads, kv_heads, head_dim, vocab, activation;
    int layer_norm, no_pre_norms, parallel, query_norm, not_gated;
    int experts, chosen, expert_inner, shared_inner, scoring, normalized, groups, chosen_groups;
    float eps, attention_scale, attention_cap, logit_cap, residual_factor, logit_factor, swiglu_factor, swiglu_limit;
    float expert_scale, jitter;
};

using Vector = std::vector<float>;  // empty: there is none

// Without weights numbers stay what they are.
struct Norm {
    Vector weight, bias;
};

struct Layer {
    Matrix qkv, attention_out, gate_up, down;
    Norm attention_norm, mlp_norm, attention_post_norm, mlp_post_norm;
    Vector query_norm, key_norm, sinks, activation;
    Vector qkv_bias, attention_out_bias, gate_up_bias, down_bias;
    int window = 0;  // positions that a token sees, itself among them; 0 is all
    int rope = 0;    // which table; -1 is none
    // Of a mixture of experts, beside which `gate_up` and `down` are those of the shared one.
    bool sparse = false;
    Matrix router, expert_gate_up, expert_down;
    Vector router_bias, selection_bias, shared_gate, expert_gate_up_bias, expert_down_bias;
};

// Cosines and sines of the first `half` dimensions' angles: [positions][2][half].
struct Rope {
    int half;
    Vector angles;
};

// Some tokens of one sequence: rows `first` … `first + count` - 1 of the step, at `position` and after it.
struct Chunk {
    int first, count, position;
    const int* table;
};

struct Work {
    int chunk, head, begin, end;  // of the chunk's queries, token by token, `heads / kv_heads` each
};

// Which experts compute which tokens. Places are the rows of experts, those of one after those of the other.
struct Mixture {
    std::vector<float> logits, weights, shared;  // [tokens][experts], [tokens][chosen], [tokens]
    std::vector<int> chosen;                     // [tokens][chosen]
    std::vector<int> active, first;              // experts with tokens; the first place of each, and the end
    std::vector<int> token_of;                   // by place
    std::vector<float> weight_of;

    void reserve(const Shape& shape, int tokens) {
        logits.resize((size_t)tokens * shape.experts);
        weights.resize((size_t)tokens * shape.chosen);
        chosen.resize((size_t)tokens * shape.chosen);
        shared.resize(tokens);
        token_of.resize((size_t)tokens * shape.chosen);
        weight_of.resize((size_t)tokens * shape.chosen);
    }

    // Experts in ascending order, and the tokens of each: a token's outputs are added in one order in any company.
    void group(const Shape& shape, int tokens) {
        std::vector<int> next(shape.experts + 1, 0);
        for (int i = 0; i < tokens * shape.chosen; i++) next[chosen[i] + 1]++;
        active.clear(), first.clear();
        for (int expert = 0; expert < shape.experts; expert++) {
            if (next[expert + 1]) active.push_back(expert), first.push_back(next[expert]);
            next[expert + 1] += next[expert];
        }
        first.push_back(next[shape.experts]);
        for (int i = 0; i < tokens * shape.chosen; i++) {
            const int place = next[chosen[i]]++;
            token_of[place] = i / shape.chosen, weight_of[place] = weights[i];
        }
    }
};

// What a step writes between its phases; grows to the largest step there was.
struct Buffers {
    Memory<float> residual, wide, sums;
    Mixture mixture;
    AdaptedRows adapted;
    Memory<uint16_t> gathered;
    Memory<uint16_t> input, query, attended, inner;
    std::vector<Work> work;
    std::vector<int> chunk_of;
    std::vector<Memory<uint16_t>> tiles;  // of each thread's own
    std::vector<AttentionBuffers> attention;
};

// What a step's time goes to, as its first thread sees it.
enum Part { PRODUCTS, PLACES, ATTENTION, NORMS, HEAD, PARTS };

struct Batch {
    const float* embedded;  // [tokens][hidden]
    int tokens;
    const std::vector<Chunk>& chunks;
    const int* rows;  // the tokens whose logits are wanted
    int row_count;
    float* logits;  // [row_count][vocab]
    float* hidden;  // [tokens][hidden] after the last norm, or null
    const Adapter* const* adapters;  // of each chunk, null without one; or null
};

struct Model {
    Shape shape;
    std::vector<Layer> layers;
    std::vector<Rope> ropes;
    Matrix head;
    Norm norm;
    Vector head_bias, query_growth;  // of each position
    Cache cache;
    Team team;
    Buffers buffers;
    double seconds[PARTS] = {};  // since the model was made

    Model(const Shape& shape, int threads, int pages, int block, bool small_cache)
        : shape(shape),
          layers(shape.layers),
          cache(shape.layers, pages, block, shape.kv_heads, shape.head_dim, small_cache),
          team(threads) {}

    int query_width() const { return shape.heads * shape.head_dim; }
    int qkv_width() const { return (shape.heads + 2 * shape.kv_heads) * shape.head_dim; }
};

}  // namespace headrace
