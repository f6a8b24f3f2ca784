// One step of the model: the whole of it inside one call of the team, phase after phase.
//
// The residual stream, norms, rotations and sums are float32; what a product reads is bf16.
#pragma once

#include <algorithm>
#include <chrono>

#include "attention.h"
#include "model.h"
#include "product.h"

namespace headrace {

template <class I>
class Step {
    using Floats = typename I::Floats;

  public:
    static void run(Model& model, const Batch& batch) { Step(model, batch).run(); }

  private:
    static constexpr int SPARE = 32;  // rows past the last that a product may read, and nobody's

    Step(Model& model, const Batch& batch)
        : m(model), shape(model.shape), team(model.team), b(model.buffers), batch(batch), tokens(batch.tokens) {
        const int widest = std::max(m.qkv_width(), shape.hidden) + TILE;
        b.residual.reserve((size_t)tokens * shape.hidden);
        b.wide.reserve((size_t)tokens * widest);
        const int rows = std::max(tokens, batch.row_count) + SPARE;
        b.input.reserve((size_t)rows * shape.hidden);
        b.query.reserve((size_t)tokens * m.query_width());
        b.attended.reserve((size_t)rows * m.query_width());
        b.inner.reserve((size_t)rows * shape.inner);
        const int deepest = std::max({shape.hidden, shape.inner, m.query_width()});
        b.sums.reserve((size_t)rows * deepest / 16);
        b.tiles.resize(team.threads());
        b.attention.resize(team.threads());
        for (auto& buffers : b.attention) Attention<I>::reserve(buffers, m.cache);
        plan();
    }

    // Which queries each tile of attention has; the same for every layer.
    void plan() {
        const int shared = shape.heads / shape.kv_heads, most = tile_rows(shared);
        b.work.clear();
        b.chunk_of.resize(tokens);
        for (int c = 0; c < (int)batch.chunks.size(); c++) {
            const Chunk& chunk = batch.chunks[c];
            std::fill_n(b.chunk_of.begin() + chunk.first, chunk.count, c);
            for (int head = 0; head < shape.kv_heads; head++)
                for (int row = 0; row < chunk.count * shared; row += most)
                    b.work.push_back({c, head, row, std::min(row + most, chunk.count * shared)});
        }
    }

    // Large tiles read keys and values less often, but every thread needs a few of them.
    int tile_rows(int shared) const {
        constexpr int ROWS = Attention<I>::ROWS, BLOCKS = Attention<I>::BLOCKS, EACH = 8;
        const long blocks = (long)tokens * shared * shape.kv_heads / ROWS;
        return ROWS * (int)std::clamp<long>(blocks / (EACH * team.threads()), 1, BLOCKS);
    }

    void run() {
        team.run([this](int thread) {
            I::enter();
            team.share(thread, tokens, 8, [&](int begin, int end) {
                std::copy_n(batch.embedded + (size_t)begin * shape.hidden, (size_t)(end - begin) * shape.hidden,
                            b.residual.get() + (size_t)begin * shape.hidden);
                norms(m.layers[0].attention_norm, begin, end);
            });
            done(thread, NORMS, m.layers[0].qkv);
            for (int index = 0; index < shape.layers; index++) layer(thread, index);
            finish(thread);
            I::leave();
        });
    }

    void layer(int thread, int index) {
        const Layer& layer = m.layers[index];
        const int width = m.qkv_width();
        product(thread, layer.qkv, b.input.get(), tokens, [&](int row, int rows, int tile, const float* block) {
            put(block, rows, tile, layer.qkv_bias, b.wide.get() + (size_t)row * width, width);
        });
        done(thread, PRODUCTS, layer.attention_out);
        team.share(thread, tokens, 8, [&](int begin, int end) {
            for (int token = begin; token < end; token++) place(layer, index, token);
        });
        done(thread, PLACES, layer.attention_out);
        team.share(thread, b.work.size(), 4, [&](int begin, int end) {
            for (int i = begin; i < end; i++) attend(thread, layer, index, i);
        });
        done(thread, ATTENTION, layer.attention_out);
        add_product(thread, layer.attention_out, b.attended.get(), layer.attention_out_bias, layer.attention_post_norm,
                    layer.mlp_norm, layer.gate_up);
        gated(thread, layer);
        done(thread, PRODUCTS, layer.down);
        const bool last = index + 1 == shape.layers;
        add_product(thread, layer.down, b.inner.get(), layer.down_bias, layer.mlp_post_norm,
                    last ? m.norm : m.layers[index + 1].attention_norm, last ? m.head : m.layers[index + 1].qkv);
    }

    // The last norm of what is wanted, and the head.
    void finish(int thread) {
        if (batch.hidden)
            team.share(thread, tokens, 8, [&](int begin, int end) {
                for (int token = begin; token < end; token++)
                    normalized(b.residual.get() + (size_t)token * shape.hidden, m.norm, [&](int i, Floats v) {
                        I::store(batch.hidden + (size_t)token * shape.hidden + i, v);
                    });
            });
        done(thread, NORMS, m.head);
        if (!batch.row_count) return;
        team.share(thread, batch.row_count, 8, [&](int begin, int end) {
            for (int i = begin; i < end; i++)
                normalized(b.residual.get() + (size_t)batch.rows[i] * shape.hidden, m.norm, [&](int at, Floats v) {
                    I::store_bf16(b.input.get() + (size_t)i * shape.hidden + at, v);
                });
        });
        done(thread, NORMS, m.head);
        product(thread, m.head, b.input.get(), batch.row_count, [&](int row, int rows, int tile, float* block) {
            if (shape.logit_cap > 0)
                for (int i = 0; i < rows * TILE; i++) block[i] = shape.logit_cap * std::tanh(block[i] / shape.logit_cap);
            put(block, rows, tile, {}, batch.logits + (size_t)row * shape.vocab, shape.vocab);
        });
        done(thread, HEAD, m.layers[0].qkv);
    }

    // Wait for the others, fetching what the `next` product reads; the time since the last such moment went to `part`.
    void done(int thread, Part part, const Matrix& next) {
        typename Product<I>::Ahead ahead(team, thread, next);
        team.barrier([&] { ahead(); });
        if (thread) return;
        const auto now = std::chrono::steady_clock::now();
        m.seconds[part] += std::chrono::duration<double>(now - since).count();
        since = now;
    }

    template <class Each>
    void product(int thread, const Matrix& matrix, const uint16_t* input, int count, Each each) {
        if (matrix.offsets.get()) Product<I>::group_sums(team, thread, matrix, input, count, b.sums.get());
        Product<I>::run(team, thread, b.tiles[thread], matrix, input, count, b.sums.get(), each);
    }

    // A tile's block [rows][32] into rows of `width`, the last of whose columns a tile may overhang.
    static void put(const float* block, int rows, int tile, const Vector& bias, float* out, int width) {
        const int columns = std::min(TILE, width - tile * TILE);
        for (int row = 0; row < rows; row++)
            for (int i = 0; i < columns; i++)
                out[(size_t)row * width + tile * TILE + i] =
                    block[row * TILE + i] + (bias.empty() ? 0.f : bias[tile * TILE + i]);
    }

    // residual += product (normalized itself, where the model does that), and then the norm of what follows.
    void add_product(int thread, const Matrix& matrix, const uint16_t* input, const Vector& bias, const Vector& post,
                     const Vector& norm, const Matrix& next) {
        const int hidden = shape.hidden;
        product(thread, matrix, input, tokens, [&](int row, int rows, int tile, const float* block) {
            if (!post.empty()) {
                put(block, rows, tile, bias, b.wide.get() + (size_t)row * hidden, hidden);
                return;
            }
            const int columns = std::min(TILE, hidden - tile * TILE);
            for (int r = 0; r < rows; r++) {
                float* to = b.residual.get() + (size_t)(row + r) * hidden + tile * TILE;
                for (int i = 0; i < columns; i++)
                    to[i] += block[r * TILE + i] + (bias.empty() ? 0.f : bias[tile * TILE + i]);
            }
        });
        done(thread, PRODUCTS, next);
        team.share(thread, tokens, 8, [&](int begin, int end) {
            if (!post.empty())
                for (int token = begin; token < end; token++) {
                    float* to = b.residual.get() + (size_t)token * hidden;
                    normalized(b.wide.get() + (size_t)token * hidden, post,
                               [&](int i, Floats v) { I::store(to + i, I::add(I::load(to + i), v)); });
                }
            norms(norm, begin, end);
        });
        done(thread, NORMS, next);
    }

    // activation(gate) · up; a tile has sixteen of each.
    void gated(int thread, const Layer& layer) {
        const int inner = shape.inner;
        const Vector& bias = layer.gate_up_bias;
        product(thread, layer.gate_up, b.input.get(), tokens, [&](int row, int rows, int tile, const float* block) {
            for (int r = 0; r < rows; r++) {
                Floats gate = I::load(block + r * TILE), up = I::load(block + r * TILE + 16);
                if (!bias.empty()) {
                    gate = I::add(gate, I::load(&bias[tile * 16]));
                    up = I::add(up, I::load(&bias[inner + tile * 16]));
                }
                I::store_bf16(b.inner.get() + (size_t)(row + r) * inner + tile * 16, I::mul(activated(gate), up));
            }
        });
    }

    Floats activated(Floats x) const {
        // silu(x) = x · σ(x), gelu's tanh form = x · σ(2 · √(2/π) · (x + 0.044715 x³))
        Floats inside = x;
        if (shape.activation == (int)Activation::GELU_TANH)
            inside = I::mul(I::mul(x, I::all(1.5957691216f)), I::fma(I::mul(x, x), I::all(0.044715f), I::all(1.f)));
        const Floats e = I::exp(I::sub(I::zero(), inside));
        return I::div(x, I::add(I::all(1.f), e));
    }

    void norms(const Vector& weight, int begin, int end) {
        for (int token = begin; token < end; token++)
            normalized(b.residual.get() + (size_t)token * shape.hidden, weight, [&](int i, Floats v) {
                I::store_bf16(b.input.get() + (size_t)token * shape.hidden + i, v);
            });
    }

    // RMS norm (Zhang and Sennrich 2019) of as many numbers as there are weights.
    template <class Put>
    void normalized(const float* from, const Vector& weight, Put put) const {
        const int count = weight.size();
        Floats squares = I::zero();
        for (int i = 0; i < count; i += 16) squares = I::fma(I::load(from + i), I::load(from + i), squares);
        const Floats scale = I::all(1.f / std::sqrt(I::sum(squares) / count + shape.eps));
        for (int i = 0; i < count; i += 16) put(i, I::mul(I::mul(I::load(from + i), scale), I::load(&weight[i])));
    }

    // One token's queries, keys and values: normalized, rotated, and each put where attention reads it.
    void place(const Layer& layer, int index, int token) {
        const Chunk& chunk = batch.chunks[b.chunk_of[token]];
        const int position = chunk.position + token - chunk.first, dim = shape.head_dim;
        const Rope& rope = m.ropes[layer.rope];
        const float* angles = rope.angles.data() + (size_t)position * 2 * rope.half;
        float* row = b.wide.get() + (size_t)token * m.qkv_width();
        for (int head = 0; head < shape.heads + shape.kv_heads; head++) {
            float* at = row + head * dim;
            const Vector& norm = head < shape.heads ? layer.query_norm : layer.key_norm;
            if (!norm.empty()) normalized(at, norm, [&](int i, Floats v) { I::store(at + i, v); });
            rotate(at, angles, rope.half);
        }
        uint16_t* query = b.query.get() + (size_t)token * m.query_width();
        for (int i = 0; i < m.query_width(); i += 16) I::store_bf16(query + i, I::load(row + i));
        const bool last = token == chunk.first + chunk.count - 1;
        for (int head = 0; head < shape.kv_heads; head++) {
            const float* key = row + m.query_width() + head * dim;
            Attention<I>::keep(m.cache, index, head, chunk.table, position, key, key + shape.kv_heads * dim, last);
        }
    }

    // Dimension i pairs with i + half.
    static void rotate(float* at, const float* angles, int half) {
        for (int i = 0; i < half; i++) {
            const float x = at[i], y = at[i + half], cos = angles[i], sin = angles[half + i];
            at[i] = x * cos - y * sin;
            at[i + half] = y * cos + x * sin;
        }
    }

    void attend(int thread, const Layer& layer, int index, int i) {
        const Work& work = b.work[i];
        const Chunk& chunk = batch.chunks[work.chunk];
        const int shared = shape.heads / shape.kv_heads, dim = shape.head_dim;
        typename Attention<I>::Query queries[Attention<I>::TILE_ROWS];
        for (int q = work.begin; q < work.end; q++) {
            const int token = q / shared, end = chunk.position + token + 1;
            const size_t at = (size_t)(chunk.first + token) * m.query_width() + (work.head * shared + q % shared) * dim;
            queries[q - work.begin] = {b.query.get() + at, b.attended.get() + at, first_seen(layer, end), end};
        }
        const Work& next = b.work[std::min<size_t>(i + 1, b.work.size() - 1)];
        const int end = batch.chunks[next.chunk].position + next.begin / shared + 1;
        const auto following =
            Attention<I>::strips_of(where(index, next), first_seen(layer, end) / Attention<I>::SPAN * Attention<I>::SPAN, end);
        Attention<I>::run(where(index, work), queries, work.end - work.begin, b.attention[thread], following);
    }

    typename Attention<I>::Where where(int index, const Work& work) const {
        return {m.cache, index, work.head, batch.chunks[work.chunk].table, shape.attention_scale, shape.attention_cap};
    }

    static int first_seen(const Layer& layer, int end) { return layer.window ? std::max(0, end - layer.window) : 0; }

    Model& m;
    const Shape& shape;
    Team& team;
    Buffers& b;
    const Batch& batch;
    const int tokens;
    std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
};

}  // namespace headrace
