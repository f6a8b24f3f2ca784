// One step of the model: the whole of it inside one call of the team, phase after phase.
//
// The residual stream, norms, rotations and sums are float32; what a product reads is bf16.
#pragma once

#include <algorithm>
#include <chrono>

#include "attention.h"
#include "model.h"
#include "product.h"
#include "router.h"

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
        const int places = shape.experts ? tokens * shape.chosen : 0;
        b.input.reserve((size_t)rows * shape.hidden);
        b.query.reserve((size_t)tokens * m.query_width());
        b.attended.reserve((size_t)rows * m.query_width());
        const size_t inner = std::max<size_t>((size_t)rows * std::max(shape.inner, shape.shared_inner),
                                              (size_t)(places + SPARE) * shape.expert_inner);
        b.inner.reserve(inner);
        const size_t deepest = std::max({shape.hidden, m.query_width()});
        b.sums.reserve(std::max({rows * deepest, (places + SPARE) * (size_t)shape.hidden, inner}) / 16);
        if (places) b.mixture.reserve(shape, tokens), b.gathered.reserve((size_t)(places + SPARE) * shape.hidden);
        b.tiles.resize(team.threads());
        b.attention.resize(team.threads());
        for (auto& buffers : b.attention) Attention<I>::reserve(buffers, m.cache);
        b.adapted.plan(batch.chunks, batch.adapters, tokens);
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
        shrink(thread, index, Adapted::QKV, b.input.get());
        product(thread, layer.qkv, b.input.get(), tokens, [&](int row, int rows, int tile, float* block) {
            expand(index, Adapted::QKV, row, rows, tile, block);
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
        shrink(thread, index, Adapted::ATTENTION_OUT, b.attended.get());
        add_product(thread, index, Adapted::ATTENTION_OUT, layer.attention_out, b.attended.get(), layer.attention_out_bias,
                    layer.attention_post_norm, shape.parallel ? nullptr : &layer.mlp_norm,
                    layer.sparse ? layer.router : layer.gate_up);
        const bool last = index + 1 == shape.layers;
        const Norm& norm = last ? m.norm : m.layers[index + 1].attention_norm;
        const Matrix& next = last ? m.head : m.layers[index + 1].qkv;
        if (layer.sparse) {
            mixture(thread, layer, index);
            add_wide(thread, layer.mlp_post_norm, &norm, next);
            return;
        }
        first_half(thread, layer, index);
        done(thread, PRODUCTS, layer.down);
        shrink(thread, index, Adapted::DOWN, b.inner.get());
        add_product(thread, index, Adapted::DOWN, layer.down, b.inner.get(), layer.down_bias, layer.mlp_post_norm, &norm, next);
    }

    // The weighted outputs of every token's experts, and of the shared one, into `wide`. Tokens are grouped by expert, so
    // that each expert's matrices are read once.
    void mixture(int thread, const Layer& layer, int index) {
        const int hidden = shape.hidden, experts = shape.experts;
        Mixture& mix = b.mixture;
        product(thread, layer.router, b.input.get(), tokens, [&](int row, int rows, int tile, const float* block) {
            put(block, rows, tile, layer.router_bias, mix.logits.data() + (size_t)row * experts, experts);
        });
        done(thread, PRODUCTS, layer.router);
        team.share(thread, tokens, 8, [&](int begin, int end) {
            for (int token = begin; token < end; token++) {
                route(shape, layer.selection_bias, &mix.logits[(size_t)token * experts],
                      &mix.chosen[(size_t)token * shape.chosen], &mix.weights[(size_t)token * shape.chosen]);
                mix.shared[token] = shared_weight(layer, token);
            }
        });
        team.barrier();
        if (thread == 0) mix.group(shape, tokens);
        team.barrier();
        team.share(thread, tokens * shape.chosen, 16, [&](int begin, int end) {
            for (int at = begin; at < end; at++)
                std::copy_n(b.input.get() + (size_t)mix.token_of[at] * hidden, hidden, b.gathered.get() + (size_t)at * hidden);
        });
        done(thread, PLACES, layer.router);
        if (shape.shared_inner) {
            first_half(thread, layer, index);
            done(thread, PRODUCTS, layer.down);
            shrink(thread, index, Adapted::DOWN, b.inner.get());
            product(thread, layer.down, b.inner.get(), tokens, [&](int row, int rows, int tile, float* block) {
                expand(index, Adapted::DOWN, row, rows, tile, block);
                for (int i = 0; i < rows * TILE; i++) block[i] *= mix.shared[row + i / TILE];
                put(block, rows, tile, {}, b.wide.get() + (size_t)row * hidden, hidden);
            });
            done(thread, PRODUCTS, layer.router);
        }
        experts_first_half(thread, layer);
        experts_second_half(thread, layer);
    }

    void experts_first_half(int thread, const Layer& layer) {
        const Mixture& mix = b.mixture;
        const Matrix& matrix = layer.expert_gate_up;
        const int each = matrix.tiles_of_part(), inner = shape.expert_inner, width = matrix.out / shape.experts;
        const float* sums = sums_of(thread, matrix, b.gathered.get(), tokens * shape.chosen);
        team.share(thread, (int)mix.active.size() * each, 8, [&](int begin, int end) {
            while (begin < end) {
                const int at = begin / each, expert = mix.active[at], first = mix.first[at];
                const int until = std::min(end, (at + 1) * each), shift = (expert - at) * each;
                const float* bias = layer.expert_gate_up_bias.empty() ? nullptr : &layer.expert_gate_up_bias[expert * width];
                auto put = [&](int row, int rows, int tile, const float* block) {
                    activate(block, rows, tile - expert * each, bias, {}, inner, first + row);
                };
                Product<I>::part(b.tiles[thread], matrix, b.gathered.get() + (size_t)first * matrix.in,
                                 mix.first[at + 1] - first, sums + (size_t)first * groups_of(matrix), begin + shift,
                                 until + shift, put);
                begin = until;
            }
        });
        done(thread, PRODUCTS, layer.router);
    }

    // A thread computes some columns of all experts, so that no two add to the same numbers.
    void experts_second_half(int thread, const Layer& layer) {
        const Mixture& mix = b.mixture;
        const Matrix& matrix = layer.expert_down;
        const int each = matrix.tiles_of_part(), hidden = shape.hidden;
        const float* sums = sums_of(thread, matrix, b.inner.get(), tokens * shape.chosen);
        team.share(thread, each, 4, [&](int begin, int end) {
            float* wide = b.wide.get();
            if (!shape.shared_inner)
                for (int token = 0; token < tokens; token++)
                    std::fill_n(wide + (size_t)token * hidden + begin * TILE, (end - begin) * TILE, 0.f);
            for (int at = 0; at < (int)mix.active.size(); at++) {
                const int expert = mix.active[at], first = mix.first[at];
                const float* bias = layer.expert_down_bias.empty() ? nullptr : &layer.expert_down_bias[expert * hidden];
                auto add = [&](int row, int rows, int tile, const float* block) {
                    const int column = (tile - expert * each) * TILE;
                    for (int r = 0; r < rows; r++) {
                        float* to = wide + (size_t)mix.token_of[first + row + r] * hidden + column;
                        const float weight = mix.weight_of[first + row + r];
                        for (int i = 0; i < TILE; i++) to[i] += weight * (block[r * TILE + i] + (bias ? bias[column + i] : 0.f));
                    }
                };
                Product<I>::part(b.tiles[thread], matrix, b.inner.get() + (size_t)first * matrix.in, mix.first[at + 1] - first,
                                 sums + (size_t)first * groups_of(matrix), expert * each + begin, expert * each + end, add);
            }
        });
        done(thread, PRODUCTS, layer.router);
    }

    static int groups_of(const Matrix& matrix) { return matrix.offsets.get() ? matrix.groups() : 0; }

    const float* sums_of(int thread, const Matrix& matrix, const uint16_t* input, int count) {
        if (matrix.offsets.get()) Product<I>::group_sums(team, thread, matrix, input, count, b.sums.get());
        return b.sums.get();
    }

    float shared_weight(const Layer& layer, int token) const {
        if (layer.shared_gate.empty()) return 1;
        const uint16_t* input = b.input.get() + (size_t)token * shape.hidden;
        float sum = 0;
        for (int i = 0; i < shape.hidden; i++) sum += layer.shared_gate[i] * Product<I>::to_float(input[i]);
        return 1 / (1 + std::exp(-sum));
    }

    // The last norm of what is wanted, and the head.
    void finish(int thread) {
        if (batch.hidden)
            team.share(thread, tokens, 8, [&](int begin, int end) {
                for (int token = begin; token < end; token++)
                    normed(b.residual.get() + (size_t)token * shape.hidden, m.norm, [&](int i, Floats v) {
                        I::store(batch.hidden + (size_t)token * shape.hidden + i, v);
                    });
            });
        done(thread, NORMS, m.head);
        if (!batch.row_count) return;
        team.share(thread, batch.row_count, 8, [&](int begin, int end) {
            for (int i = begin; i < end; i++)
                normed(b.residual.get() + (size_t)batch.rows[i] * shape.hidden, m.norm, [&](int at, Floats v) {
                    I::store_bf16(b.input.get() + (size_t)i * shape.hidden + at, v);
                });
        });
        done(thread, NORMS, m.head);
        product(thread, m.head, b.input.get(), batch.row_count, [&](int row, int rows, int tile, float* block) {
            if (shape.logit_factor != 1 || !m.head_bias.empty())
                for (int i = 0; i < rows * TILE; i++) {
                    const int column = std::min(tile * TILE + i % TILE, shape.vocab - 1);
                    block[i] = (block[i] + (m.head_bias.empty() ? 0.f : m.head_bias[column])) * shape.logit_factor;
                }
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
        Product<I>::run(team, thread, b.tiles[thread], matrix, input, count, sums_of(thread, matrix, input, count), each);
    }

    // The inner numbers of all rows with adapters, from the rows that a product reads. A phase of its own.
    void shrink(int thread, int index, Adapted which, const uint16_t* input) {
        AdaptedRows& adapted = b.adapted;
        if (adapted.groups.empty()) return;
        const int fours = adapted.width / 4;
        team.share(thread, (int)adapted.groups.size() * fours, 8, [&](int begin, int end) {
            for (int i = begin; i < end; i++) {
                const AdaptedRows::Group& group = adapted.groups[i / fours];
                const LowRank& low = group.adapter->layers[index][(int)which];
                const int k = i % fours * 4;
                if (k >= low.rank) continue;
                for (int row = group.first; row < group.first + group.count; row++)
                    shrink_row(low, k, input + (size_t)adapted.rows[row] * low.in,
                               adapted.inner.get() + (size_t)adapted.rows[row] * adapted.width + k);
            }
        });
        team.barrier();
    }

    // Four inner numbers of one row, from number `k` on.
    static void shrink_row(const LowRank& low, int k, const uint16_t* input, uint16_t* to) {
        const uint16_t* down = low.down + (size_t)k * low.in;
        Floats sums[4] = {I::zero(), I::zero(), I::zero(), I::zero()};
        int i = 0;
        for (; i + 32 <= low.in; i += 32) {
            const auto pairs = I::pairs(input + i);
            for (int one = 0; one < 4; one++) sums[one] = I::dot(sums[one], I::pairs(down + (size_t)one * low.in + i), pairs);
        }
        alignas(64) float all[16] = {};
        for (int one = 0; one < 4; one++) {
            all[one] = I::sum(sums[one]);
            for (int rest = i; rest < low.in; rest++)
                all[one] += Product<I>::to_float(input[rest]) * Product<I>::to_float(down[(size_t)one * low.in + rest]);
        }
        uint16_t rounded[16];
        I::store_bf16(rounded, I::load(all));
        std::copy_n(rounded, 4, to);
    }

    // Add what adapters make of the inner numbers to the block of a tile.
    void expand(int index, Adapted which, int row, int rows, int tile, float* block) const {
        const AdaptedRows& adapted = b.adapted;
        if (adapted.of.empty()) return;
        for (int r = 0; r < rows; r++) {
            const Adapter* adapter = adapted.of[row + r];
            if (!adapter) continue;
            const LowRank& low = adapter->layers[index][(int)which];
            if (!low.rank) continue;
            const uint16_t* inner = adapted.inner.get() + (size_t)(row + r) * adapted.width;
            for (int side = 0; side < 2; side++) {
                const LowRank::Strip& strip = low.strips[2 * tile + side];
                const uint16_t* up = strip.up;
                Floats sum = I::load(block + r * TILE + side * 16);
                for (int k = 0; k < strip.count; k += 2, up += 32)
                    sum = I::dot(sum, I::pairs(up), I::same_pair(inner + strip.first + k));
                I::store(block + r * TILE + side * 16, sum);
            }
        }
    }

    // A tile's block [rows][32] into rows of `width`, the last of whose columns a tile may overhang.
    static void put(const float* block, int rows, int tile, const Vector& bias, float* out, int width) {
        const int columns = std::min(TILE, width - tile * TILE);
        for (int row = 0; row < rows; row++)
            for (int i = 0; i < columns; i++)
                out[(size_t)row * width + tile * TILE + i] =
                    block[row * TILE + i] + (bias.empty() ? 0.f : bias[tile * TILE + i]);
    }

    // residual += product (normalized itself, where the model does that), and then the `norm` of what follows, if any.
    void add_product(int thread, int index, Adapted which, const Matrix& matrix, const uint16_t* input, const Vector& bias,
                     const Norm& post, const Norm* norm, const Matrix& next) {
        const int hidden = shape.hidden;
        const float factor = shape.residual_factor;
        product(thread, matrix, input, tokens, [&](int row, int rows, int tile, float* block) {
            expand(index, which, row, rows, tile, block);
            if (!post.weight.empty()) {
                put(block, rows, tile, bias, b.wide.get() + (size_t)row * hidden, hidden);
                return;
            }
            const int columns = std::min(TILE, hidden - tile * TILE);
            for (int r = 0; r < rows; r++) {
                float* to = b.residual.get() + (size_t)(row + r) * hidden + tile * TILE;
                for (int i = 0; i < columns; i++)
                    to[i] += factor * (block[r * TILE + i] + (bias.empty() ? 0.f : bias[tile * TILE + i]));
            }
        });
        done(thread, PRODUCTS, next);
        if (post.weight.empty())
            norm_all(thread, norm, next);
        else
            add_wide(thread, post, norm, next);
    }

    // residual += wide, normalized, and then the `norm` of what follows, if any.
    void add_wide(int thread, const Norm& post, const Norm* norm, const Matrix& next) {
        const Floats factor = I::all(shape.residual_factor);
        team.share(thread, tokens, 8, [&](int begin, int end) {
            for (int token = begin; token < end; token++) {
                float* to = b.residual.get() + (size_t)token * shape.hidden;
                normed(b.wide.get() + (size_t)token * shape.hidden, post,
                       [&](int i, Floats v) { I::store(to + i, I::fma(factor, v, I::load(to + i))); });
            }
            if (norm) norms(*norm, begin, end);
        });
        done(thread, NORMS, next);
    }

    void norm_all(int thread, const Norm* norm, const Matrix& next) {
        if (!norm) return;
        team.share(thread, tokens, 8, [&](int begin, int end) { norms(*norm, begin, end); });
        done(thread, NORMS, next);
    }

    // activation(gate) · up, or activation(up), of all tokens.
    void first_half(int thread, const Layer& layer, int index) {
        const float* bias = layer.gate_up_bias.empty() ? nullptr : layer.gate_up_bias.data();
        const int inner = layer.down.in;
        shrink(thread, index, Adapted::GATE_UP, b.input.get());
        product(thread, layer.gate_up, b.input.get(), tokens, [&](int row, int rows, int tile, float* block) {
            expand(index, Adapted::GATE_UP, row, rows, tile, block);
            activate(block, rows, tile, bias, layer.activation, inner, row);
        });
    }

    // A tile has sixteen gates and as many ups, or 32 ups; the rows of `inner` begin at `first`.
    void activate(const float* block, int rows, int tile, const float* bias, const Vector& parameters, int inner, int first) {
        for (int r = 0; r < rows; r++) {
            uint16_t* to = b.inner.get() + (size_t)(first + r) * inner;
            if (shape.not_gated) {
                for (int i = 0; i < TILE && tile * TILE + i < inner; i += 16) {
                    Floats up = I::load(block + r * TILE + i);
                    if (bias) up = I::add(up, I::load(bias + tile * TILE + i));
                    I::store_bf16(to + tile * TILE + i, activated(up, parameters));
                }
                continue;
            }
            Floats gate = I::load(block + r * TILE), up = I::load(block + r * TILE + 16);
            if (bias) {
                gate = I::add(gate, I::load(bias + tile * 16));
                up = I::add(up, I::load(bias + inner + tile * 16));
            }
            if (shape.activation == (int)Activation::CLAMPED_SWIGLU) {
                const Floats limit = I::all(shape.swiglu_limit), least = I::all(-shape.swiglu_limit);
                gate = least_of(gate, limit);
                up = I::add(I::max(least_of(up, limit), least), I::all(1.f));
            }
            I::store_bf16(to + tile * 16, I::mul(activated(gate, parameters), up));
        }
    }

    static Floats least_of(Floats x, Floats y) {
        return I::sub(I::zero(), I::max(I::sub(I::zero(), x), I::sub(I::zero(), y)));
    }

    Floats activated(Floats x, const Vector& parameters) const {
        // silu(x) = x · σ(x), gelu's tanh form = x · σ(2 · √(2/π) · (x + 0.044715 x³))
        Floats inside = x;
        switch ((Activation)shape.activation) {
            case Activation::GELU_TANH:
                inside = I::mul(I::mul(x, I::all(1.5957691216f)), I::fma(I::mul(x, x), I::all(0.044715f), I::all(1.f)));
                break;
            case Activation::CLAMPED_SWIGLU:
                inside = I::mul(x, I::all(shape.swiglu_factor));
                break;
            case Activation::GELU: {
                alignas(64) float each[16];
                I::store(each, x);
                for (float& one : each) one *= 0.5f * (1 + std::erf(one * 0.70710678f));
                return I::load(each);
            }
            case Activation::RELU2: {
                const Floats positive = I::max(x, I::zero());
                return I::mul(positive, positive);
            }
            case Activation::XIELU:
                return xielu(x, parameters);
            case Activation::SILU:
                break;
        }
        const Floats e = I::exp(I::sub(I::zero(), inside));
        return I::div(x, I::add(I::all(1.f), e));
    }

    // αₚ · x² + x / 2 above zero, αₙ · (eˣ - 1 - x) + x / 2 below (Huang et al. 2024, https://arxiv.org/abs/2411.13010).
    static Floats xielu(Floats x, const Vector& parameters) {
        const Floats positive = I::max(x, I::zero()), negative = least_of(x, I::zero());
        const Floats below = I::sub(I::sub(I::exp(negative), I::all(1.f)), negative);
        const Floats above = I::mul(I::mul(positive, positive), I::all(parameters[0]));
        return I::fma(x, I::all(0.5f), I::fma(below, I::all(parameters[1]), above));
    }

    void norms(const Norm& norm, int begin, int end) {
        for (int token = begin; token < end; token++)
            normed(b.residual.get() + (size_t)token * shape.hidden, norm, [&](int i, Floats v) {
                I::store_bf16(b.input.get() + (size_t)token * shape.hidden + i, v);
            });
    }

    // One of the model's own norms, of `hidden` numbers; without weights the numbers themselves.
    template <class Put>
    void normed(const float* from, const Norm& norm, Put put) const {
        const int count = shape.hidden;
        if (norm.weight.empty()) {
            for (int i = 0; i < count; i += 16) put(i, I::load(from + i));
        } else if (!shape.layer_norm) {
            normalized(from, norm.weight, put);
        } else {
            Floats sum = I::zero(), squares = I::zero();
            for (int i = 0; i < count; i += 16) sum = I::add(sum, I::load(from + i));
            const Floats mean = I::all(I::sum(sum) / count);
            for (int i = 0; i < count; i += 16) {
                const Floats off = I::sub(I::load(from + i), mean);
                squares = I::fma(off, off, squares);
            }
            const Floats scale = I::all(1.f / std::sqrt(I::sum(squares) / count + shape.eps));
            for (int i = 0; i < count; i += 16) {
                const Floats off = I::mul(I::sub(I::load(from + i), mean), scale);
                put(i, I::fma(off, I::load(&norm.weight[i]), norm.bias.empty() ? I::zero() : I::load(&norm.bias[i])));
            }
        }
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
        float* row = b.wide.get() + (size_t)token * m.qkv_width();
        const auto how = (QueryNorm)shape.query_norm;
        const auto norm = [&](float* at, const Vector& weight) {
            normalized(at, weight, [&](int i, Floats v) { I::store(at + i, v); });
        };
        if (how == QueryNorm::WHOLE) norm(row, layer.query_norm), norm(row + m.query_width(), layer.key_norm);
        for (int head = 0; head < shape.heads + shape.kv_heads; head++) {
            float* at = row + head * dim;
            const Vector& weight = head < shape.heads ? layer.query_norm : layer.key_norm;
            if (how == QueryNorm::HEAD) norm(at, weight);
            if (layer.rope >= 0) {
                const Rope& rope = m.ropes[layer.rope];
                rotate(at, rope.angles.data() + (size_t)position * 2 * rope.half, rope.half);
            }
            if (how == QueryNorm::HEAD_AFTER_ROPE) norm(at, weight);
        }
        if (!m.query_growth.empty())
            for (int i = 0; i < m.query_width(); i++) row[i] *= m.query_growth[position];
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
            if (!layer.sinks.empty()) queries[q - work.begin].sink = layer.sinks[work.head * shared + q % shared];
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
