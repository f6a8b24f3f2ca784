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
    require(shape.activation >= 0 && shape.activation <= 5 && shape.query_norm >= 0 && shape.query_norm <= 3, "activation");
    if (shape.experts) {
        count(shape.experts, MOST_LAYERS, "experts");
        count(shape.chosen, shape.experts, "chosen experts");
        count(shape.expert_inner, MOST_NUMBERS, "expert_inner");
        count(shape.groups, shape.experts, "groups");
        count(shape.chosen_groups, shape.groups, "chosen groups");
        const int size = shape.experts / shape.groups;
        require(shape.experts % shape.groups == 0 && shape.chosen <= size * shape.chosen_groups, "groups of experts");
        require(shape.hidden % TILE == 0 && shape.expert_inner % 16 == 0 && !shape.not_gated, "the sizes of experts");
        require(shape.shared_inner >= 0 && shape.shared_inner <= MOST_NUMBERS && shape.shared_inner % 16 == 0, "shared");
        require(shape.scoring >= 0 && shape.scoring <= 3 && (shape.scoring != 3 || shape.chosen == 2), "scoring");
        require((long)shape.experts * std::max(2 * shape.expert_inner, shape.hidden) <= 1l << 30, "the sizes of experts");
    }
    require(threads >= 1 && pages >= 1 && block >= STRIP && block % STRIP == 0, "threads, pages or block");
}

inline void check_layer(const Model& model, int layer) {
    require(layer >= -1 && layer < model.shape.layers, "layer " + std::to_string(layer));
}

// The size of a layer's MLP of all tokens.
inline int inner_of(const Model& model, int layer) {
    return layer >= 0 && model.layers[layer].sparse ? model.shape.shared_inner : model.shape.inner;
}

// Numbers of the vector of that name.
inline int vector_size(const Model& model, int layer, const std::string& name) {
    const Shape& shape = model.shape;
    const bool whole = shape.query_norm == (int)QueryNorm::WHOLE;
    if (name == "query_norm") return whole ? model.query_width() : shape.head_dim;
    if (name == "key_norm") return whole ? model.qkv_width() / (shape.heads + 2 * shape.kv_heads) * shape.kv_heads : shape.head_dim;
    if (name == "qkv_bias") return model.qkv_width();
    if (name == "gate_up_bias") return (shape.not_gated ? 1 : 2) * inner_of(model, layer);
    if (name == "sinks") return shape.heads;
    if (name == "activation") return 2;
    if (name == "head_bias") return shape.vocab;
    if (name == "router_bias" || name == "selection_bias") return shape.experts;
    if (name == "expert_gate_up_bias") return shape.experts * 2 * shape.expert_inner;
    if (name == "expert_down_bias") return shape.experts * shape.hidden;
    return shape.hidden;
}

inline void check_matrix(const Model& model, int layer, const std::string& name, int format, int out, int in, int group,
                         int gated, int parts) {
    const Shape& shape = model.shape;
    int rows = shape.hidden, columns = shape.hidden;
    const bool pair = name == "gate_up" || name == "expert_gate_up", of_experts = name.rfind("expert_", 0) == 0;
    require(parts == (of_experts ? shape.experts : 1) && parts >= 1, "the parts of " + name);
    if (name == "qkv") rows = model.qkv_width();
    if (name == "attention_out") columns = model.query_width();
    if (name == "gate_up") rows = (shape.not_gated ? 1 : 2) * inner_of(model, layer);
    if (name == "down") columns = inner_of(model, layer);
    if (name == "router") rows = shape.experts;
    if (name == "expert_gate_up") rows = shape.experts * 2 * shape.expert_inner;
    if (name == "expert_down") rows = shape.experts * shape.hidden, columns = shape.expert_inner;
    if (name == "head") rows = shape.vocab;
    require(out == rows && in == columns, name + " is " + std::to_string(out) + " by " + std::to_string(in));
    require(format >= 0 && format <= 2 && !gated == !(pair && !shape.not_gated), "the format of " + name);
    require(!format || (group >= STRIP && group % STRIP == 0 && in % group == 0), "the groups of " + name);
}

// The matrix that an adapter changes.
inline const Matrix& check_low_rank(const Model& model, int layer, const Matrix* matrix, const AdapterPart* parts, int count) {
    const auto holds = [](bool it, const char* what) {
        if (!it) throw std::runtime_error(std::string("the adapter is not valid: ") + what);
    };
    holds(layer >= 0 && layer < model.shape.layers && matrix && matrix->out, "a matrix");
    holds(matrix->parts == 1 && matrix->out % 16 == 0, "the size of a matrix");
    long ranks = 0;
    for (int i = 0; i < count; i++) {
        const AdapterPart& part = parts[i];
        holds(part.first >= 0 && part.out >= 1 && part.first % 16 == 0 && part.out % 16 == 0, "a part");
        holds(part.first <= matrix->out && part.out <= matrix->out - part.first, "a part");
        holds(part.rank >= 2 && part.rank % 2 == 0 && (ranks += part.rank) <= 1 << 16, "a rank");
        holds(!i || part.first >= parts[i - 1].first + parts[i - 1].out, "the order of parts");
    }
    return *matrix;
}

inline void check_rope(const Model& model, int positions, int half) {
    require(positions >= 1 && half >= 1 && 2 * half <= model.shape.head_dim, "a rotation of " + std::to_string(half));
}

// That nothing is missing. Once, before the first step.
inline void check_whole(const Model& model) {
    const Shape& shape = model.shape;
    require(model.head.out && (int)model.norm.weight.size() == shape.hidden, "a part is missing");
    for (const Layer& layer : model.layers) {
        require(layer.qkv.out && layer.attention_out.out, "a matrix is missing");
        if (layer.sparse)
            require(layer.router.out && layer.expert_gate_up.out && layer.expert_down.out, "a matrix of experts is missing");
        if (!layer.sparse || shape.shared_inner) require(layer.gate_up.out && layer.down.out, "a matrix is missing");
        require(shape.no_pre_norms || !layer.attention_norm.weight.empty(), "a norm is missing");
        require(shape.no_pre_norms || shape.parallel || !layer.mlp_norm.weight.empty(), "a norm is missing");
        require(!shape.query_norm || (!layer.query_norm.empty() && !layer.key_norm.empty()), "a norm is missing");
        require(shape.activation != (int)Activation::XIELU || !layer.activation.empty(), "a part is missing");
        require(!layer.sparse || (shape.experts && !shape.parallel), "a layer's experts");
        require(layer.window >= 0 && layer.rope >= -1 && layer.rope < (int)model.ropes.size(), "a layer's kind");
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
    if (!model.query_growth.empty()) positions = std::min<size_t>(positions, model.query_growth.size());
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
