// What a model's sizes and a step's places must be, so that no product, norm or rotation leaves its memory.
//
// The sizes come from a file that others wrote. Python checks them when it reads the file; these checks hold whatever
// Python does. A failed check is an exception, which `guarded` makes a message.
#pragma once

#include <stdexcept>
#include <string>

#include "model.h"

namespace headrace {

inline void require(bool holds, const std::string& what) {
    if (!holds) throw std::runtime_error("the model is not valid: " + what);
}

constexpr int MOST_NUMBERS = 1 << 24, MOST_HEAD_DIM = 512, MOST_LAYERS = 1 << 12;

inline void check_shape(const Shape& shape, int threads, int pages, int block) {
    const auto count = [](int value, int most, const char* name) {
        require(value >= 1 && value <= most, std::string(name) + " is " + std::to_string(value));
    };
    count(shape.hidden, MOST_NUMBERS, "hidden");
    count(shape.inner, MOST_NUMBERS, "inner");
    count(shape.layers, MOST_LAYERS, "layers");
    count(shape.heads, MOST_NUMBERS / MOST_HEAD_DIM, "heads");
    count(shape.kv_heads, shape.heads, "kv_heads");
    count(shape.head_dim, MOST_HEAD_DIM, "head_dim");
    count(shape.vocab, MOST_NUMBERS, "vocab");
    require(shape.heads % shape.kv_heads == 0, "heads do not share key heads evenly");
    require(shape.hidden % 16 == 0 && shape.inner % 16 == 0 && shape.head_dim % 16 == 0, "no multiples of 16");
    require(shape.activation == 0 || shape.activation == 1, "activation");
    require(threads >= 1 && pages >= 1 && block >= STRIP && block % STRIP == 0, "threads, pages or block");
}

inline void check_layer(const Model& model, int layer) {
    require(layer >= -1 && layer < model.shape.layers, "layer " + std::to_string(layer));
}

// Numbers of the vector of that name.
inline int vector_size(const Model& model, const std::string& name) {
    const Shape& shape = model.shape;
    if (name == "query_norm" || name == "key_norm") return shape.head_dim;
    if (name == "qkv_bias") return model.qkv_width();
    if (name == "gate_up_bias") return 2 * shape.inner;
    return shape.hidden;
}

inline void check_matrix(const Model& model, const std::string& name, int format, int out, int in, int group,
                         int gated) {
    const Shape& shape = model.shape;
    int rows = shape.hidden, columns = shape.hidden;
    if (name == "qkv") rows = model.qkv_width();
    if (name == "attention_out") columns = model.query_width();
    if (name == "gate_up") rows = 2 * shape.inner;
    if (name == "down") columns = shape.inner;
    if (name == "head") rows = shape.vocab;
    require(out == rows && in == columns, name + " is " + std::to_string(out) + " by " + std::to_string(in));
    require(format >= 0 && format <= 2 && !gated == (name != "gate_up"), "the format of " + name);
    require(!format || (group >= STRIP && group % STRIP == 0 && in % group == 0), "the groups of " + name);
}

inline void check_rope(const Model& model, int positions, int half) {
    require(positions >= 1 && half >= 1 && 2 * half <= model.shape.head_dim, "a rotation of " + std::to_string(half));
}

// That nothing is missing. Once, before the first step.
inline void check_whole(const Model& model) {
    require(model.head.out && (int)model.norm.size() == model.shape.hidden && !model.ropes.empty(), "a part is missing");
    for (const Layer& layer : model.layers) {
        require(layer.qkv.out && layer.attention_out.out && layer.gate_up.out && layer.down.out, "a matrix is missing");
        require(!layer.attention_norm.empty() && !layer.mlp_norm.empty(), "a norm is missing");
        require(layer.window >= 0 && layer.rope >= 0 && layer.rope < (int)model.ropes.size(), "a layer's kind");
    }
}

// `tables` are `table_count` pages. Chunks are in order and all of the step's tokens.
inline void check_batch(const Model& model, const std::vector<Chunk>& chunks, const int* offsets, int tokens,
                        const int* tables, int table_count, const int* rows, int row_count) {
    const auto holds = [](bool it, const char* what) {
        if (!it) throw std::runtime_error(std::string("the step is not valid: ") + what);
    };
    const int block = model.cache.strips * STRIP;
    int next = 0, positions = 1 << 30;
    for (const Rope& rope : model.ropes)
        positions = std::min<size_t>(positions, rope.angles.size() / (2 * (size_t)rope.half));
    for (size_t i = 0; i < chunks.size(); i++) {
        const Chunk& chunk = chunks[i];
        holds(chunk.first == next && chunk.count >= 1 && chunk.count <= tokens - next, "a chunk's tokens");
        next += chunk.count;
        holds(chunk.position >= 0 && chunk.position <= positions - chunk.count, "a position");
        const int at = offsets[4 * i + 3], pages = (chunk.position + chunk.count + block - 1) / block;
        holds(at >= 0 && at <= table_count && pages <= table_count - at, "a table of pages");
        for (int page = 0; page < pages; page++)
            holds(tables[at + page] >= 0 && tables[at + page] < model.cache.pages, "a page");
    }
    holds(next == tokens, "the tokens");
    for (int i = 0; i < row_count; i++) holds(rows[i] >= 0 && rows[i] < tokens, "a row");
}

}  // namespace headrace
