// Causal attention that reads the pages where they are.
//
// A piece of work is a tile: up to TILE_ROWS queries of one key/value head, each with its own last position. They are
// those of the query heads that share the key head, of one token or of neighbours. Positions are read in spans, and all
// queries of the tile use a span while it is in the nearest cache (Dao et al. 2022, "FlashAttention",
// https://arxiv.org/abs/2205.14135), a block of queries at a time, with a running maximum (Milakov and Gimelshein 2018,
// "Online normalizer calculation for softmax", https://arxiv.org/abs/1805.02867).
//
// Spans begin at multiples of SPAN, and a position that a query may not see adds an exact zero: the result of a query
// does not depend on the other queries of its tile.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "cache.h"
#include "constant.h"

namespace headrace {

constexpr int MOST_DIMENSIONS = 512;  // of a head

// What a thread writes while it computes a tile.
struct AttentionBuffers {
    Memory<float> sums;        // [TILE_ROWS][head_dim]
    Memory<uint16_t> queries;  // of each block [head_dim / 2][rows][2]
    Memory<uint16_t> keys, values;  // one span as bf16, of a cache that holds codes
};

template <class I>
class Attention {
    using Floats = typename I::Floats;
    using Pairs = typename I::Pairs;

  public:
    static constexpr int ROWS = I::ATTENTION_ROWS, BLOCKS = 8, TILE_ROWS = ROWS * BLOCKS;
    static constexpr int SPAN = 128, STRIPS = SPAN / STRIP;
    static constexpr float NOTHING = -1e30f;

    struct Query {
        const uint16_t* query;  // bf16 [head_dim]
        uint16_t* result;       // bf16 [head_dim]
        int begin, end;         // the positions it sees
        float sink = NOTHING;   // one more score, of no value
    };

    struct Where {
        const Cache& cache;
        int layer, head;
        const int* table;
        float scale, cap;  // of scores; no cap is 0
    };

    using Strips = std::array<size_t, STRIPS>;

    // The strips of a span. Where the sequence ends before the span does, the last strip stands for those that follow.
    static Strips strips_of(const Where& where, int span, int end) {
        Strips at;
        const int last = (end - 1) / STRIP - span / STRIP;
        int page = span / STRIP / where.cache.strips, strip = span / STRIP % where.cache.strips;
        for (int s = 0; s < STRIPS; s++) {
            at[s] = where.cache.strip(where.layer, where.head, where.table[page], strip);
            if (s < last && ++strip == where.cache.strips) strip = 0, page++;
        }
        return at;
    }

    static void reserve(AttentionBuffers& buffers, const Cache& cache) {
        buffers.sums.reserve((size_t)TILE_ROWS * cache.head_dim);
        buffers.queries.reserve((size_t)TILE_ROWS * cache.head_dim);
        if (!cache.small) return;
        buffers.keys.reserve((size_t)SPAN * cache.head_dim);
        buffers.values.reserve((size_t)SPAN * cache.head_dim);
    }

    // `count` is TILE_ROWS at most. The keys of `following` are prefetched: the thread reads them next.
    static void run(const Where& where, const Query* queries, int count, AttentionBuffers& buffers, const Strips& following) {
        Tile(where, queries, count, buffers).run(following);
    }

    // Put one position's key and value [head_dim] in their place. After the `last` of a chunk its strip is cleared: what
    // the page's last owner left there is multiplied by zero, and zero times infinity is not zero.
    static void keep(Cache& cache, int layer, int head, const int* table, int position, const float* key,
                     const float* value, bool last) {
        const int strips = cache.strips;
        const size_t strip = cache.strip(layer, head, table[position / STRIP / strips], position / STRIP % strips);
        const int at = position % STRIP, dim = cache.head_dim;
        uint8_t *keys = cache.keys.get() + strip * cache.strip_bytes();
        uint8_t *values = cache.values.get() + strip * cache.strip_bytes();
        if (!cache.small) {
            alignas(64) uint16_t k[MOST_DIMENSIONS], v[MOST_DIMENSIONS];
            for (int i = 0; i < dim; i += 16) {
                I::store_bf16(k + i, I::load(key + i));
                I::store_bf16(v + i, I::load(value + i));
            }
            uint32_t* pairs = (uint32_t*)keys + at;
            for (int i = 0; i < dim / 2; i++) std::memcpy(pairs + i * STRIP, k + 2 * i, 4);
            uint16_t* to = (uint16_t*)values + (size_t)(at / 2) * dim * 2 + at % 2;
            for (int i = 0; i < dim; i++) to[2 * i] = v[i];
            if (!last) return;
            if (at % 2 == 0)
                for (int i = 0; i < dim; i++) to[2 * i + 1] = 0;
            const size_t used = (size_t)(at / 2 + 1) * dim * 4;
            std::memset(values + used, 0, cache.strip_bytes() - used);
            return;
        }
        int8_t codes[MOST_DIMENSIONS];
        cache.key_scales[strip * STRIP + at] = coded(key, dim, codes);
        for (int i = 0; i < dim; i++) keys[(i / 2) * 2 * STRIP + at * 2 + i % 2] = (uint8_t)codes[i];
        cache.value_scales[strip * STRIP + at] = coded(value, dim, codes);
        for (int i = 0; i < dim; i++) values[(size_t)(at / 2) * dim * 2 + 2 * i + at % 2] = (uint8_t)codes[i];
    }

  private:
    static float coded(const float* numbers, int dim, int8_t* codes) {
        float most = 0;
        for (int i = 0; i < dim; i++) most = std::max(most, std::fabs(numbers[i]));
        const float inverse = most > 0 ? 127.f / most : 0.f;
        for (int i = 0; i < dim; i++) codes[i] = (int8_t)std::lrintf(numbers[i] * inverse);
        return most / 127.f;
    }

    // Some positions: where their keys and values are, and the strips that are read after these.
    struct Span {
        int begin;
        Strips at, next;
        std::array<const uint8_t*, STRIPS> keys, values;
    };

    // Some queries whose sums fit into registers; their places in the tile begin at `first`.
    struct Block {
        int first, rows, begin, end;  // the positions that at least one of them sees
    };

    class Tile {
      public:
        Tile(const Where& where, const Query* queries, int count, AttentionBuffers& buffers)
            : where(where), cache(where.cache), dim(cache.head_dim), factor(where.scale * LOG2_E), queries(queries),
              buffers(buffers), sums(buffers.sums.get()) {
            if (where.cap > 0) factor = LOG2_E;
            size = (count + ROWS - 1) / ROWS;
            for (int b = 0; b < size; b++) {
                const int first = count * b / size, rows = count * (b + 1) / size - first;
                blocks[b] = {first, rows, queries[first].begin, queries[first].end};
                for (int row = first; row < first + rows; row++) {
                    blocks[b].begin = std::min(blocks[b].begin, queries[row].begin);
                    blocks[b].end = std::max(blocks[b].end, queries[row].end);
                    const float sink = queries[row].sink;
                    // Before they are scaled, as scores are here.
                    greatest[row] = sink == NOTHING || where.cap > 0 ? sink : sink / where.scale;
                    I::store(totals[row], I::zero());
                    totals[row][0] = sink == NOTHING ? 0.f : 1.f;
                }
                pack(blocks[b]);
            }
            std::fill_n(sums, (size_t)count * dim, 0.f);
        }

        void run(const Strips& following) {
            int begin = blocks[0].begin, end = blocks[0].end;
            for (int b = 1; b < size; b++) begin = std::min(begin, blocks[b].begin), end = std::max(end, blocks[b].end);
            int span = begin / SPAN * SPAN;
            for (Strips at = strips_of(where, span, end), next; span < end; span += SPAN, at = next) {
                next = span + SPAN < end ? strips_of(where, span + SPAN, end) : following;
                attend(span_at(span, at, next));
            }
            for (int b = 0; b < size; b++) finish(blocks[b]);
        }

      private:
        static constexpr float LOG2_E = 1.44269504f;

        // The queries of a block side by side, a pair of dimensions after the other, as `score` reads them.
        void pack(const Block& block) {
            const int rows = block.rows;
            for (int row = 0; row < rows; row++) {
                const uint16_t* from = queries[block.first + row].query;
                uint16_t* to = packed(block) + 2 * row;
                for (int pair = 0; pair < dim / 2; pair++) std::memcpy(to + pair * rows * 2, from + 2 * pair, 4);
            }
        }
        uint16_t* packed(const Block& block) const { return buffers.queries.get() + (size_t)block.first * dim; }

        Span span_at(int begin, const Strips& at, const Strips& next) const {
            Span span{begin, at, next, {}, {}};
            for (int s = 0; s < STRIPS; s++) span.keys[s] = keys_at(at[s]), span.values[s] = values_at(at[s]);
            return span;
        }
        const uint8_t* keys_at(size_t strip) const { return cache.keys.get() + strip * cache.strip_bytes(); }
        const uint8_t* values_at(size_t strip) const { return cache.values.get() + strip * cache.strip_bytes(); }

        void attend(Span span) {
            if (cache.small && size > 1) {
                // Several blocks read the codes: convert them once.
                convert(span.keys, buffers.keys.get());
                convert(span.values, buffers.values.get());
            }
            for (int b = 0; b < size; b++) {
                if (size > 1) prefetch(span, b);
                const Block& block = blocks[b];
                if (block.end <= span.begin || block.begin >= span.begin + SPAN) continue;
                with_constant<ROWS>(block.rows, [&](auto rows) {
                    if (size == 1)
                        cache.small ? attend<rows, true, true>(block, span) : attend<rows, true, false>(block, span);
                    else
                        cache.small ? attend<rows, false, true>(block, span) : attend<rows, false, false>(block, span);
                });
            }
        }

        // A part of the next span, while this one is in use.
        void prefetch(const Span& span, int part) const {
            const size_t all = cache.strip_bytes() / 64 * STRIPS, lines = cache.strip_bytes() / 64;
            for (size_t line = all * part / size; line < all * (part + 1) / size; line++) {
                I::prefetch(keys_at(span.next[line / lines]) + line % lines * 64);
                I::prefetch(values_at(span.next[line / lines]) + line % lines * 64);
            }
        }

        void convert(std::array<const uint8_t*, STRIPS>& strips, uint16_t* to) {
            for (auto& strip : strips) {
                for (int i = 0; i < dim * STRIP; i += 32) I::store_pairs(to + i, I::codes8((const int8_t*)strip + i));
                strip = (const uint8_t*)to;
                to += dim * STRIP;
            }
        }

        // `Single`: the tile has no other block, so this one reads what the cache holds and prefetches for the next span.
        // `Small`: the cache holds codes.
        template <int Rows, bool Single, bool Small>
        void attend(const Block& block, const Span& span) {
            const int strips = std::min(STRIPS, (block.end - span.begin + STRIP - 1) / STRIP);
            alignas(64) float scores[Rows * SPAN];
            alignas(64) uint16_t shares[Rows * SPAN];
            float fades[Rows];
            score<Rows, Single, Small>(packed(block), span, strips, scores);
            if (where.cap > 0)
                for (int i = 0; i < Rows * SPAN; i += STRIP) I::store(scores + i, capped(I::load(scores + i)));
            bool fading = false;
            for (int row = 0; row < Rows; row++) {
                const Query& query = queries[block.first + row];
                const bool all = query.begin <= span.begin && query.end >= span.begin + SPAN;
                fades[row] = all ? weigh<Small, true>(block.first + row, span, STRIPS, scores + row * SPAN, shares + row * SPAN)
                                 : weigh<Small, false>(block.first + row, span, strips, scores + row * SPAN, shares + row * SPAN);
                fading |= fades[row] != 1;
            }
            constexpr int WIDE = Rows <= 6 ? 4 : 2;
            float* to = sums + (size_t)block.first * dim;
            int column = 0;
            for (; column + WIDE * 16 <= dim; column += WIDE * 16)
                gather<Rows, WIDE, Single, Small>(span, strips, shares, fading ? fades : nullptr, column, to);
            for (; column < dim; column += 16)
                gather<Rows, 1, Single, Small>(span, strips, shares, fading ? fades : nullptr, column, to);
        }

        // Queries times keys: scores [Rows][SPAN]. As many strips side by side as registers hold.
        template <int Rows, bool Single, bool Small>
        void score(const uint16_t* packed, const Span& span, int strips, float* scores) const {
            constexpr int SIDE = Rows * 4 <= 24 ? 4 : Rows * 2 <= 24 ? 2 : 1;
            const int pairs = dim / 2;
            for (int first = 0; first < strips; first += SIDE) {
                Floats products[SIDE][Rows];
                for (auto& strip : products)
                    for (auto& row : strip) row = I::zero();
                for (int pair = 0; pair < pairs; pair++) {
                    Pairs keys[SIDE];
                    for (int s = 0; s < SIDE; s++) {
                        keys[s] = stored<Single && Small>(span.keys[first + s], pair * 2 * STRIP);
                        // The values are next: as many bytes as the keys.
                        if constexpr (Single) I::prefetch(span.values[first + s] + pair * (Small ? 32 : 64));
                    }
#pragma GCC unroll 16
                    for (int row = 0; row < Rows; row++) {
                        const Pairs query = I::same_pair(packed + (pair * Rows + row) * 2);
#pragma GCC unroll 4
                        for (int s = 0; s < SIDE; s++) products[s][row] = I::dot(products[s][row], keys[s], query);
                    }
                }
                for (int s = 0; s < SIDE; s++)
                    for (int row = 0; row < Rows; row++) {
                        Floats product = products[s][row];
                        if constexpr (Small) product = I::mul(product, I::load(cache.key_scales.get() + span.at[first + s] * STRIP));
                        I::store(scores + row * SPAN + (first + s) * STRIP, product);
                    }
            }
        }

        // The scores of a query to its shares; returns the factor of what was summed before. `All`: the query sees the
        // whole span.
        template <bool Small, bool All>
        float weigh(int row, const Span& span, int count, const float* scores, uint16_t* shares) {
            const Query& query = queries[row];
            const int strips = All ? STRIPS : count;
            const auto seen = [&](int s, Floats numbers, Floats otherwise) {
                if constexpr (All) return numbers;
                const int position = span.begin + s * STRIP;
                return I::choose(I::lanes(query.begin - position, query.end - position), numbers, otherwise);
            };
            Floats numbers[STRIPS], most = I::all(NOTHING);
#pragma GCC unroll 8
            for (int s = 0; s < strips; s++) {
                numbers[s] = seen(s, I::load(scores + s * STRIP), I::all(NOTHING));
                most = I::max(most, numbers[s]);
            }
            float fade = 1;
            if (I::any_above(most, I::all(greatest[row]))) {
                const float now = I::greatest(most);
                alignas(64) float factors[16];
                I::store(factors, I::exp2(I::all((greatest[row] - now) * factor)));
                fade = factors[0];
                greatest[row] = now;
            }
            const Floats scale = I::all(factor), offset = I::all(-greatest[row] * factor);
            Floats sum = I::mul(I::load(totals[row]), I::all(fade));
#pragma GCC unroll 8
            for (int s = 0; s < strips; s++) {
                Floats share = seen(s, I::exp2(I::fma(numbers[s], scale, offset)), I::zero());
                sum = I::add(sum, share);
                if constexpr (Small) share = seen(s, I::mul(share, I::load(cache.value_scales.get() + span.at[s] * STRIP)), I::zero());
                I::store_bf16(shares + s * STRIP, share);
            }
            I::store(totals[row], sum);
            return fade;
        }

        // Shares times values, 16 × Wide dimensions from `column` on: sums [Rows][head_dim].
        template <int Rows, int Wide, bool Single, bool Small>
        void gather(const Span& span, int strips, const uint16_t* shares, const float* fades, int column, float* to) const {
            Floats added[Rows][Wide];
            for (int row = 0; row < Rows; row++)
                for (int w = 0; w < Wide; w++) added[row][w] = I::load(to + row * dim + column + w * 16);
            if (fades)
                for (int row = 0; row < Rows; row++)
                    for (int w = 0; w < Wide; w++) added[row][w] = I::mul(added[row][w], I::all(fades[row]));
            for (int s = 0; s < strips; s++) {
                const int part = dim * (Small ? 2 : 4);
                const uint8_t* next = keys_at(span.next[s]);
                for (int pair = 0; pair < STRIP / 2; pair++, next += part) {
                    if (Single && column == 0)
                        for (int line = 0; line < part; line += 64) I::prefetch(next + line);
                    Pairs values[Wide];
                    for (int w = 0; w < Wide; w++)
                        values[w] = stored<Single && Small>(span.values[s], (pair * dim + column + w * 16) * 2);
#pragma GCC unroll 16
                    for (int row = 0; row < Rows; row++) {
                        const Pairs share = I::same_pair(shares + row * SPAN + s * STRIP + 2 * pair);
#pragma GCC unroll 4
                        for (int w = 0; w < Wide; w++) added[row][w] = I::dot(added[row][w], values[w], share);
                    }
                }
            }
            for (int row = 0; row < Rows; row++)
                for (int w = 0; w < Wide; w++) I::store(to + row * dim + column + w * 16, added[row][w]);
        }

        void finish(const Block& block) const {
            for (int row = block.first; row < block.first + block.rows; row++) {
                const Floats share = I::all(1.f / I::sum(I::load(totals[row])));
                for (int i = 0; i < dim; i += 16)
                    I::store_bf16(queries[row].result + i, I::mul(I::load(sums + (size_t)row * dim + i), share));
            }
        }

        template <bool Coded>
        static Pairs stored(const uint8_t* strip, int at) {
            if constexpr (Coded)
                return I::codes8((const int8_t*)strip + at);
            else
                return I::pairs((const uint16_t*)strip + at);
        }

        // cap × tanh(scale × score / cap), by way of exp.
        Floats capped(Floats score) const {
            const Floats twice = I::exp(I::mul(score, I::all(2 * where.scale / where.cap)));
            const Floats tanh = I::sub(I::all(1.f), I::div(I::all(2.f), I::add(twice, I::all(1.f))));
            return I::mul(tanh, I::all(where.cap));
        }

        const Where& where;
        const Cache& cache;
        const int dim;
        float factor;  // of scores, to powers of two
        const Query* queries;
        AttentionBuffers& buffers;
        float* sums;
        int size;
        std::array<Block, BLOCKS> blocks;
        float greatest[TILE_ROWS];
        alignas(64) float totals[TILE_ROWS][STRIP];
    };
};

}  // namespace headrace
