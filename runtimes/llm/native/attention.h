// Causal attention that reads the pages where they are.
//
// A piece of work is up to ROWS queries of one key/value head, each with its own last position: those of the query heads
// that share it, of one token or of a few neighbours. Positions are gone through in spans of 64 with a running maximum
// (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax", https://arxiv.org/abs/1805.02867). Spans
// begin at multiples of 64, and a position that a query may not see adds an exact zero: a query's result does not
// depend on which others it is computed with.
#pragma once

#include <array>
#include <cmath>
#include <limits>

#include "cache.h"
#include "constant.h"

namespace headrace {

constexpr int MOST_DIMENSIONS = 512;  // of a head

template <class I>
class Attention {
    using Floats = typename I::Floats;
    using Pairs = typename I::Pairs;

  public:
    static constexpr int ROWS = I::ATTENTION_ROWS, SPAN = 64, STRIPS = SPAN / STRIP;

    struct Query {
        const uint16_t* query;  // bf16 [head_dim]
        uint16_t* result;       // bf16 [head_dim]
        int begin, end;         // the positions it sees
    };

    struct Where {
        const Cache& cache;
        int layer, head;
        const int* table;
        float scale, cap;  // of scores; no cap is 0
    };

    using Strips = std::array<size_t, STRIPS>;

    // The strips of a span; where the sequence ends before it, its last one again.
    static Strips strips_of(const Where& where, int span, int end) {
        Strips at;
        for (int s = 0; s < STRIPS; s++)
            at[s] = where.cache.strip(where.layer, where.head, where.table, std::min(span + s * STRIP, (end - 1) / STRIP * STRIP));
        return at;
    }

    // `sums` is room for ROWS × head_dim; the keys of `following` are what is wanted after this.
    static void run(const Where& where, const Query* queries, int rows, float* sums, const Strips& following) {
        with_constant<ROWS>(rows, [&](auto count) { attend<count>(where, queries, sums, following); });
    }

    // Put one position's key and value [head_dim] in their place. After the `last` of a chunk its strip is cleared: what
    // the page's last owner left there is multiplied by zero, and zero times infinity is not zero.
    static void keep(Cache& cache, int layer, int head, const int* table, int position, const float* key,
                     const float* value, bool last) {
        const size_t strip = cache.strip(layer, head, table, position);
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
    static constexpr float NOTHING = -1e30f;

    static float coded(const float* numbers, int dim, int8_t* codes) {
        float most = 0;
        for (int i = 0; i < dim; i++) most = std::max(most, std::fabs(numbers[i]));
        const float inverse = most > 0 ? 127.f / most : 0.f;
        for (int i = 0; i < dim; i++) codes[i] = (int8_t)std::lrintf(numbers[i] * inverse);
        return most / 127.f;
    }

    template <int Rows>
    static void attend(const Where& where, const Query* queries, float* sums, const Strips& following) {
        const Cache& cache = where.cache;
        const int dim = cache.head_dim;
        int begin = queries[0].begin, end = queries[0].end;
        for (int row = 1; row < Rows; row++) {
            begin = std::min(begin, queries[row].begin);
            end = std::max(end, queries[row].end);
        }
        // Pair by pair, all queries' beside each other, as the products read them.
        alignas(64) uint16_t packed[MOST_DIMENSIONS * Rows];
        for (int pair = 0; pair < dim / 2; pair++)
            for (int row = 0; row < Rows; row++)
                std::memcpy(packed + (pair * Rows + row) * 2, queries[row].query + 2 * pair, 4);
        float greatest[Rows], total[Rows];
        for (int row = 0; row < Rows; row++) greatest[row] = NOTHING, total[row] = 0;
        for (int i = 0; i < Rows * dim; i += 16) I::store(sums + i, I::zero());
        alignas(64) float scores[Rows * SPAN];
        alignas(64) uint16_t shares[Rows * SPAN];
        int span = begin / SPAN * SPAN;
        for (Strips at = strips_of(where, span, end), next; span < end; span += SPAN, at = next) {
            const int strips = std::min(STRIPS, (end - span + STRIP - 1) / STRIP);
            next = span + SPAN < end ? strips_of(where, span + SPAN, end) : following;
            if (cache.small)
                score<Rows, true>(cache, packed, at, scores);
            else
                score<Rows, false>(cache, packed, at, scores);
            float faded[Rows];
            for (int row = 0; row < Rows; row++)
                faded[row] = weigh(where, queries[row], span, strips, at, scores + row * SPAN, shares + row * SPAN,
                                   greatest[row], total[row]);
            for (int column = 0; column < dim;) {
                constexpr int WIDE = Rows <= 6 ? 4 : 2;
                if (column + WIDE * 16 <= dim) {
                    gather<Rows, WIDE>(cache, at, strips, next, shares, faded, column, sums);
                    column += WIDE * 16;
                } else {
                    gather<Rows, 1>(cache, at, strips, next, shares, faded, column, sums);
                    column += 16;
                }
            }
        }
        for (int row = 0; row < Rows; row++) {
            const Floats share = I::all(1.f / total[row]);
            for (int i = 0; i < dim; i += 16)
                I::store_bf16(queries[row].result + i, I::mul(I::load(sums + row * dim + i), share));
        }
    }

    // Queries times keys: scores [Rows][SPAN]. As many strips side by side as registers hold.
    template <int Rows, bool Small>
    static void score(const Cache& cache, const uint16_t* queries, const Strips& at, float* scores) {
        constexpr int SIDE = Rows * 4 <= 24 ? 4 : Rows * 2 <= 24 ? 2 : 1;
        const int pairs = cache.head_dim / 2;
        for (int first = 0; first < STRIPS; first += SIDE) {
            Floats products[SIDE][Rows];
            for (auto& strip : products)
                for (auto& row : strip) row = I::zero();
            for (int pair = 0; pair < pairs; pair++)
                for (int s = 0; s < SIDE; s++) {
                    const uint8_t* strip = cache.keys.get() + at[first + s] * cache.strip_bytes();
                    const Pairs keys = stored<Small>(strip, pair * 2 * STRIP);
                    // The values are next: as many bytes as the keys.
                    I::prefetch(cache.values.get() + at[first + s] * cache.strip_bytes() + pair * (Small ? 32 : 64));
#pragma GCC unroll 16
                    for (int row = 0; row < Rows; row++)
                        products[s][row] =
                            I::dot(products[s][row], keys, I::same_pair(queries + (pair * Rows + row) * 2));
                }
            for (int s = 0; s < SIDE; s++)
                for (int row = 0; row < Rows; row++) {
                    Floats product = products[s][row];
                    if constexpr (Small)
                        product = I::mul(product, I::load(cache.key_scales.get() + at[first + s] * STRIP));
                    I::store(scores + row * SPAN + (first + s) * STRIP, product);
                }
        }
    }

    // One query's scores of a span to its shares; how much what was summed before them counts for now.
    static float weigh(const Where& where, const Query& query, int span, int strips, const Strips& at, float* scores,
                       uint16_t* shares, float& greatest, float& total) {
        if (query.begin <= span && query.end >= span + strips * STRIP)
            return weigh<true>(where, query, span, strips, at, scores, shares, greatest, total);
        return weigh<false>(where, query, span, strips, at, scores, shares, greatest, total);
    }

    // `All` says that the query sees every position of the span.
    template <bool All>
    static float weigh(const Where& where, const Query& query, int span, int strips, const Strips& at, float* scores,
                       uint16_t* shares, float& greatest, float& total) {
        const auto seen = [&](int s, Floats numbers, Floats otherwise) {
            if constexpr (All) return numbers;
            const int position = span + s * STRIP;
            return I::choose(I::lanes(query.begin - position, query.end - position), numbers, otherwise);
        };
        Floats most = I::all(NOTHING);
        for (int s = 0; s < strips; s++) {
            Floats score = I::mul(I::load(scores + s * STRIP), I::all(where.scale));
            if (where.cap > 0) score = capped(score, where.cap);
            score = seen(s, score, I::all(NOTHING));
            I::store(scores + s * STRIP, score);
            most = I::max(most, score);
        }
        const float now = std::max(greatest, I::greatest(most));
        alignas(64) float fade[16];
        I::store(fade, I::exp(I::all(greatest - now)));
        Floats sum = I::zero();
        for (int s = 0; s < strips; s++) {
            const Floats raw = I::exp(I::sub(I::load(scores + s * STRIP), I::all(now)));
            Floats share = seen(s, raw, I::zero());
            sum = I::add(sum, share);
            if (where.cache.small)
                share = seen(s, I::mul(raw, I::load(where.cache.value_scales.get() + at[s] * STRIP)), I::zero());
            I::store_bf16(shares + s * STRIP, share);
        }
        greatest = now;
        total = total * fade[0] + I::sum(sum);
        return fade[0];
    }

    // Shares times values, 16 × Wide dimensions from `column` on: sums [Rows][head_dim].
    template <int Rows, int Wide>
    static void gather(const Cache& cache, const Strips& at, int strips, const Strips& next, const uint16_t* shares,
                       const float* faded, int column, float* sums) {
        const int dim = cache.head_dim;
        Floats added[Rows][Wide];
        for (int row = 0; row < Rows; row++)
            for (int w = 0; w < Wide; w++)
                added[row][w] = I::mul(I::load(sums + row * dim + column + w * 16), I::all(faded[row]));
        for (int s = 0; s < strips; s++) {
            const uint8_t* strip = cache.values.get() + at[s] * cache.strip_bytes();
            const size_t part = cache.strip_bytes() / (STRIP / 2);
            const uint8_t* keys = cache.keys.get() + next[s] * cache.strip_bytes();
            for (int pair = 0; pair < STRIP / 2; pair++) {
                if (column == 0)
                    for (size_t line = 0; line < part; line += 64) I::prefetch(keys + pair * part + line);
                Pairs values[Wide];
                for (int w = 0; w < Wide; w++) {
                    const int place = (pair * dim + column + w * 16) * 2;
                    values[w] = cache.small ? stored<true>(strip, place) : stored<false>(strip, place);
                }
#pragma GCC unroll 16
                for (int row = 0; row < Rows; row++) {
                    const Pairs share = I::same_pair(shares + row * SPAN + s * STRIP + 2 * pair);
                    for (int w = 0; w < Wide; w++) added[row][w] = I::dot(added[row][w], values[w], share);
                }
            }
        }
        for (int row = 0; row < Rows; row++)
            for (int w = 0; w < Wide; w++) I::store(sums + row * dim + column + w * 16, added[row][w]);
    }

    template <bool Small>
    static Pairs stored(const uint8_t* strip, int at) {
        if constexpr (Small)
            return I::codes8((const int8_t*)strip + at);
        else
            return I::pairs((const uint16_t*)strip + at);
    }

    // cap × tanh(score / cap), by way of exp.
    static Floats capped(Floats score, float cap) {
        const Floats twice = I::exp(I::mul(score, I::all(2 / cap)));
        const Floats tanh = I::sub(I::all(1.f), I::div(I::all(2.f), I::add(twice, I::all(1.f))));
        return I::mul(tanh, I::all(cap));
    }
};

}  // namespace headrace
