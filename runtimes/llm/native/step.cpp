// What Python calls, by way of ctypes. A function that can fail returns what went wrong as text, or null.
//
// The library is built for one kind of processor, by the flags that it is compiled with.
#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#if defined(__AMX_BF16__) || defined(HEADRACE_EMULATED_TILES)
#include "isa_amx.h"
#elif defined(__AVX512BF16__)
#include "isa_avx512.h"
#else
#include "isa_plain.h"
#endif
#include "check.h"
#include "step.h"

using namespace headrace;

#if defined(__AMX_BF16__) || defined(HEADRACE_EMULATED_TILES)
using Isa = Amx;
#elif defined(__AVX512BF16__)
using Isa = Avx512;
#else
using Isa = Plain;
#endif

namespace {

Vector* vector_named(Model& model, int layer, const char* name) {
    struct Named {
        const char* name;
        Vector* vector;
    };
    if (layer < 0) {
        for (const Named& each : {Named{"norm", &model.norm.weight}, Named{"norm_bias", &model.norm.bias},
                                  Named{"head_bias", &model.head_bias}})
            if (!std::strcmp(name, each.name)) return each.vector;
        return nullptr;
    }
    Layer& of = model.layers[layer];
    for (const Named& each : {Named{"attention_norm", &of.attention_norm.weight}, Named{"mlp_norm", &of.mlp_norm.weight},
                              Named{"attention_norm_bias", &of.attention_norm.bias},
                              Named{"mlp_norm_bias", &of.mlp_norm.bias},
                              Named{"attention_post_norm", &of.attention_post_norm.weight},
                              Named{"mlp_post_norm", &of.mlp_post_norm.weight}, Named{"query_norm", &of.query_norm},
                              Named{"sinks", &of.sinks}, Named{"activation", &of.activation},
                              Named{"router_bias", &of.router_bias}, Named{"selection_bias", &of.selection_bias},
                              Named{"shared_gate", &of.shared_gate},
                              Named{"expert_gate_up_bias", &of.expert_gate_up_bias},
                              Named{"expert_down_bias", &of.expert_down_bias},
                              Named{"key_norm", &of.key_norm}, Named{"qkv_bias", &of.qkv_bias},
                              Named{"attention_out_bias", &of.attention_out_bias},
                              Named{"gate_up_bias", &of.gate_up_bias}, Named{"down_bias", &of.down_bias}})
        if (!std::strcmp(name, each.name)) return each.vector;
    return nullptr;
}

Matrix* matrix_named(Model& model, int layer, const char* name) {
    if (layer < 0) return std::strcmp(name, "head") ? nullptr : &model.head;
    Layer& of = model.layers[layer];
    if (!std::strcmp(name, "qkv")) return &of.qkv;
    if (!std::strcmp(name, "attention_out")) return &of.attention_out;
    if (!std::strcmp(name, "gate_up")) return &of.gate_up;
    if (!std::strcmp(name, "down")) return &of.down;
    if (!std::strcmp(name, "router")) return &of.router;
    if (!std::strcmp(name, "expert_gate_up")) return &of.expert_gate_up;
    if (!std::strcmp(name, "expert_down")) return &of.expert_down;
    return nullptr;
}

Adapted adapted_named(const char* name) {
    const char* names[] = {"qkv", "attention_out", "gate_up", "down"};
    for (int i = 0; i < (int)Adapted::MATRICES; i++)
        if (!std::strcmp(name, names[i])) return (Adapted)i;
    throw std::runtime_error(std::string("no adapter changes ") + name);
}

template <class Body>
const char* guarded(Body body) {
    try {
        body();
        return nullptr;
    } catch (const std::bad_alloc&) {
        return "out of memory";
    } catch (const std::exception& error) {
        static thread_local std::string said;
        said = error.what();
        return said.c_str();
    }
}

}  // namespace

extern "C" {

const char* headrace_create(const Shape* shape, int threads, int pages, int block, int small_cache, Model** model) {
    return guarded([&] {
        check_shape(*shape, threads, pages, block);
        Isa::allow();
        *model = new Model(*shape, threads, pages, block, small_cache);
    });
}

void headrace_destroy(Model* model) { delete model; }

// `layer` -1 is the model's own.
const char* headrace_vector(Model* model, int layer, const char* name, const float* values, int count) {
    return guarded([&] {
        check_layer(*model, layer);
        Vector* to = vector_named(*model, layer, name);
        if (!to) throw std::runtime_error(std::string("no vector is called ") + name);
        require(count == vector_size(*model, layer, name), std::string(name) + " has " + std::to_string(count) + " numbers");
        to->assign(values, values + count);
    });
}

// `rows` is bf16 [out, in] for format 0, else int8 codes; `gated` are a gated MLP's two matrices, one above the other;
// `parts` are experts.
const char* headrace_matrix(Model* model, int layer, const char* name, int format, int out, int in, const void* rows,
                            const uint16_t* scales, const uint16_t* offsets, int group, int gated,
                            int parts) {
    return guarded([&] {
        check_layer(*model, layer);
        Matrix* to = matrix_named(*model, layer, name);
        if (!to) throw std::runtime_error(std::string("no matrix is called ") + name);
        check_matrix(*model, layer, name, format, out, in, group, gated, parts);
        *to = format ? pack_codes((Format)format, (const int8_t*)rows, scales, offsets, out, in, group, gated, parts)
                     : pack_bf16((const uint16_t*)rows, out, in, gated, parts);
    });
}

// Angles [positions][2][half], cosines before sines.
const char* headrace_rope(Model* model, const float* angles, int positions, int half) {
    return guarded([&] {
        check_rope(*model, positions, half);
        model->ropes.push_back({half, Vector(angles, angles + (size_t)positions * 2 * half)});
    });
}

// The factor of queries at every position.
const char* headrace_query_growth(Model* model, const float* factors, int positions) {
    return guarded([&] { model->query_growth.assign(factors, factors + positions); });
}

// Before the layer's weights.
const char* headrace_layer(Model* model, int layer, int window, int rope, int sparse) {
    return guarded([&] {
        require(layer >= 0 && layer < model->shape.layers, "layer " + std::to_string(layer));
        model->layers[layer].window = window;
        model->layers[layer].rope = rope;
        model->layers[layer].sparse = sparse;
    });
}

// All weights are there.
const char* headrace_loaded(const Model* model) {
    return guarded([&] { check_whole(*model); });
}

// An adapter without additions, and memory for `size` numbers of them. No step that has it outlives it.
const char* headrace_adapter(const Model* model, size_t size, Adapter** adapter) {
    return guarded([&] { *adapter = new Adapter(model->shape.layers, size); });
}

void headrace_adapter_destroy(Adapter* adapter) { delete adapter; }

// What an adapter adds to one of a layer's matrices, as `pack_low_rank` takes it. While steps run, too.
const char* headrace_low_rank(Model* model, Adapter* adapter, int layer, const char* name, const AdapterPart* parts, int count,
                              const uint16_t* down, const uint16_t* up) {
    return guarded([&] {
        const Matrix& matrix = check_low_rank(*model, layer, matrix_named(*model, layer, name), parts, count);
        const bool gated = !std::strcmp(name, "gate_up") && !model->shape.not_gated;
        adapter->layers[layer][(int)adapted_named(name)] = pack_low_rank(*adapter, matrix, gated, parts, count, down, up);
    });
}

// `chunks` is [chunk_count][4]: first row, rows, position of the first, where in `tables` its pages begin. `adapters` is
// each chunk's, null without one; or null.
const char* headrace_step(Model* model, const float* embedded, int tokens, const int* chunks, int chunk_count,
                          const int* tables, int table_count, const int* rows, int row_count, float* logits, float* hidden,
                          const Adapter* const* adapters) {
    return guarded([&] {
        std::vector<Chunk> of;
        of.reserve(chunk_count);
        for (int i = 0; i < chunk_count; i++) {
            const int* chunk = chunks + 4 * i;
            of.push_back({chunk[0], chunk[1], chunk[2], tables + chunk[3]});
        }
        check_batch(*model, of, chunks, tokens, tables, table_count, rows, row_count);
        Step<Isa>::run(*model, {embedded, tokens, of, rows, row_count, logits, hidden, adapters});
    });
}

// Use so many threads, from the next step on. No step runs meanwhile.
void headrace_use_threads(Model* model, int threads) { model->team.use(threads); }

// Of the last step: seconds that its threads waited for a core, all together, and how long it took.
void headrace_waits(const Model* model, double* waited, double* elapsed) {
    const auto [all, took] = model->team.waits();
    *waited = all, *elapsed = took;
}

// Seconds that steps have spent so far: products, places, attention, norms, head.
void headrace_seconds(const Model* model, double* seconds) { std::copy_n(model->seconds, PARTS, seconds); }
}
