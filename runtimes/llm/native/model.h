// A model's weights and its shape, as `runtimes/llm/model.py` has them; what they mean is said there.
#pragma once

#include <memory>
#include <vector>

#include "attention.h"
#include "cache.h"
#include "matrix.h"
#include "team.h"

namespace headrace {

enum class Activation : int { SILU = 0, GELU_TANH = 1 };

// Of C: `executor.py` fills one of the same layout.
struct Shape {
    int hidden, inner, layers, heads, kv_heads, head_dim, vocab, activation;
    float eps, attention_scale, attention_cap, logit_cap;
};

using Vector = std::vector<float>;  // empty: there is none

struct Layer {
    Matrix qkv, attention_out, gate_up, down;
    Vector attention_norm, mlp_norm, attention_post_norm, mlp_post_norm, query_norm, key_norm;
    Vector qkv_bias, attention_out_bias, gate_up_bias, down_bias;
    int window = 0;  // positions that a token sees, itself among them; 0 is all
    int rope = 0;    // which table
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

// What a step writes between its phases; grows to the largest step there was.
struct Buffers {
    Memory<float> residual, wide, sums;
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
};

struct Model {
    Shape shape;
    std::vector<Layer> layers;
    std::vector<Rope> ropes;
    Matrix head;
    Vector norm;
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
