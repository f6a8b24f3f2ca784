// rows [M, in] × weights [out, in] → [M, out], a tile of 32 outputs at a time.
//
// Every output is summed in the one order, pair of inputs after pair of inputs, whatever the number of rows: a
// sequence's numbers do not depend on what else is in the batch. So weights in groups are multiplied as codes, and each
// group's sum by its scale, for one row and for a thousand alike.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "constant.h"
#include "matrix.h"
#include "team.h"

namespace headrace {

template <class I>
class Product {
    using Floats = typename I::Floats;
    using Pairs = typename I::Pairs;

  public:
    // `each(row, rows, tile, block)` gets block [rows][32] of every tile; rows of `input` lie `matrix.in` apart.
    // `sums` [M][groups] are those of the input's groups, wanted where the matrix has offsets.
    template <class Each>
    static void run(Team& team, int thread, Memory<uint16_t>& scratch, const Matrix& matrix, const uint16_t* input, int count,
                    const float* sums, Each each) {
        const bool few = count <= 64 || (I::TILES && matrix.format == Format::BF16 && matrix.in % 32 == 0);
        team.share(thread, matrix.tiles(), few ? 8 : 2,
                   [&](int tile, int end) { part(scratch, matrix, input, count, sums, tile, end, each); });
    }

    // The same of the tiles `tile` … `end` - 1 alone.
    template <class Each>
    static void part(Memory<uint16_t>& scratch, const Matrix& matrix, const uint16_t* input, int count, const float* sums,
                     int tile, int end, Each& each) {
        const int tiles = matrix.tiles();
        if constexpr (I::TILES)
            if (matrix.format == Format::BF16 && matrix.in % 32 == 0) {
                for (; tile < end; tile++) tiled(matrix, input, count, tile, tile + 1 < tiles, each);
                return;
            }
        const int wide = count == 1 ? 4 : count <= 3 ? 2 : 1;  // few rows: more tiles at once keep the adders busy
        while (tile < end) {
            if (matrix.format != Format::BF16) {
                grouped(scratch, matrix, input, count, sums, tile++, each);
            } else if (wide > 1 && tile + wide <= end) {
                several(matrix, input, count, tile, each);
                tile += wide;
            } else {
                whole(matrix, input, count, tile, tile + 1 < tiles, each);
                tile++;
            }
        }
    }

    // The sums of each group of each row: [M][groups].
    static void group_sums(Team& team, int thread, const Matrix& matrix, const uint16_t* input, int count, float* sums) {
        static const uint16_t ONES[2] = {0x3f80, 0x3f80};
        const int groups = matrix.groups();
        team.share(thread, count, 8, [&](int begin, int end) {
            for (int row = begin; row < end; row++)
                for (int g = 0; g < groups; g++) {
                    const uint16_t* part = input + (size_t)row * matrix.in + g * matrix.group;
                    float sum = 0;
                    if (matrix.group % 32 == 0) {
                        Floats total = I::zero();
                        for (int k = 0; k < matrix.group; k += 32)
                            total = I::dot(total, I::pairs(part + k), I::same_pair(ONES));
                        sum = I::sum(total);
                    } else {
                        for (int k = 0; k < matrix.group; k++) sum += to_float(part[k]);
                    }
                    sums[(size_t)row * groups + g] = sum;
                }
        });
        team.barrier();
    }

    // What a thread is going to read of `matrix` first, a few lines at a time: for when it waits.
    class Ahead {
      public:
        Ahead(const Team& team, int thread, const Matrix& matrix) {
            const int begin = team.own(thread, matrix.tiles()), end = team.own(thread + 1, matrix.tiles());
            at = (const char*)(matrix.format == Format::BF16 ? (const void*)matrix.tile(begin) : matrix.tile_codes(begin));
            last = (const char*)(matrix.format == Format::BF16 ? (const void*)matrix.tile(end) : matrix.tile_codes(end));
            last = std::min(last, at + MOST);
        }
        void operator()() {
            if (at >= last) return Team::pause();
            for (int line = 0; line < 4; line++) I::prefetch_far(at + 64 * line);
            at += 256;
        }

      private:
        static constexpr int MOST = 384 << 10;  // of a second-level cache, which has other things to hold
        const char *at, *last;
    };

    static float to_float(uint16_t bf16) {
        const uint32_t bits = (uint32_t)bf16 << 16;
        float value;
        std::memcpy(&value, &bits, 4);
        return value;
    }

  private:
    // Call `one` with as many rows at a time as registers hold, as a constant; the blocks differ by one row at most.
    template <int Most, class One>
    static void by_rows(int count, One one) {
        const int blocks = (count + Most - 1) / Most;
        for (int block = 0; block < blocks; block++) {
            const int begin = (long)count * block / blocks, rows = (long)count * (block + 1) / blocks - begin;
            with_constant<Most>(rows, [&](auto constant) { one(begin, constant); });
        }
    }

    // One tile of plain weights by tiles of the processor: 32 rows at a time, some of which may be nobody's.
    template <class Each>
    static void tiled(const Matrix& matrix, const uint16_t* input, int count, int tile, bool more, Each& each) {
        alignas(64) float block[32 * TILE];
        const uint16_t* weights = matrix.tile(tile);
        const size_t ahead = more ? (size_t)matrix.in * TILE : 0, stride = (size_t)matrix.in * 2;
        for (int row = 0; row < count; row += 32) {
            const uint16_t* upper = input + (size_t)row * matrix.in;
            const uint16_t* lower = upper + (size_t)16 * matrix.in;
            const bool both = count - row > 16, fetch = ahead && row + 32 >= count;
            I::template clear<0>(), I::template clear<1>(), I::template clear<2>(), I::template clear<3>();
            for (int k = 0; k < matrix.in; k += 32) {
                const uint16_t* at = weights + (size_t)k * TILE;  // sixteen pairs of inputs
                I::template fill<4>(upper + k, stride);
                I::template fill<6>(at, 128);
                I::template multiply<0, 4, 6>();
                I::template fill<7>(at + 32, 128);
                I::template multiply<1, 4, 7>();
                if (both) {
                    I::template fill<5>(lower + k, stride);
                    I::template multiply<2, 5, 6>();
                    I::template multiply<3, 5, 7>();
                }
                if (fetch)
                    for (int line = 0; line < 32; line++) I::prefetch_far(at + ahead + line * 32);
            }
            I::template spill<0>(block, 128), I::template spill<1>(block + 16, 128);
            if (both) I::template spill<2>(block + 16 * TILE, 128), I::template spill<3>(block + 16 * TILE + 16, 128);
            each(row, std::min(32, count - row), tile, block);
        }
    }

    // One tile of plain weights. While the processor multiplies, memory brings the next one, a little in every block of
    // rows.
    template <class Each>
    static void whole(const Matrix& matrix, const uint16_t* input, int count, int tile, bool more, Each& each) {
        const int blocks = (count + I::ROWS - 1) / I::ROWS, step = more ? (TILE * 4 + blocks - 1) / blocks : 0;
        const char* ahead = (const char*)matrix.tile(tile + more);
        by_rows<I::ROWS>(count, [&](int row, auto rows) {
            alignas(64) float block[rows * TILE];
            std::array<const uint16_t*, 1> tiles = {matrix.tile(tile)};
            dots<rows, 1>(tiles, input + (size_t)row * matrix.in, matrix.in, block, ahead, step);
            ahead += (size_t)step * matrix.in / 2;
            each(row, rows, tile, block);
        });
    }

    // A few neighbouring tiles, for three rows at most.
    template <class Each>
    static void several(const Matrix& matrix, const uint16_t* input, int count, int first, Each& each) {
        with_constant<3>(count, [&](auto rows) {
            constexpr int WIDE = rows == 1 ? 4 : 2;
            alignas(64) float blocks[WIDE * rows * TILE];
            std::array<const uint16_t*, WIDE> tiles;
            for (int t = 0; t < WIDE; t++) tiles[t] = matrix.tile(first + t);
            dots<rows, WIDE>(tiles, input, matrix.in, blocks, nullptr, 0);
            for (int t = 0; t < WIDE; t++) each(0, rows, first + t, blocks + t * rows * TILE);
        });
    }

    // `step` bytes of what lies `ahead` are fetched with each pair of inputs.
    template <int Rows, size_t Wide>
    static void dots(const std::array<const uint16_t*, Wide>& tiles, const uint16_t* input, int in, float* blocks,
                     const char* ahead, int step) {
        Floats sums[Wide][Rows][2];
        for (auto& tile : sums)
            for (auto& row : tile) row[0] = row[1] = I::zero();
        for (int pair = 0; pair < in / 2; pair++)
            for (size_t t = 0; t < Wide; t++) {
                const Pairs left = I::pairs(tiles[t] + (size_t)pair * 64);
                const Pairs right = I::pairs(tiles[t] + (size_t)pair * 64 + 32);
                if (step) {
                    I::prefetch_far(ahead + (size_t)pair * step);
                    if (step > 64) I::prefetch_far(ahead + (size_t)pair * step + 64);
                }
#pragma GCC unroll 16
                for (int row = 0; row < Rows; row++) {
                    const Pairs x = I::same_pair(input + (size_t)row * in + 2 * pair);
                    sums[t][row][0] = I::dot(sums[t][row][0], left, x);
                    sums[t][row][1] = I::dot(sums[t][row][1], right, x);
                }
            }
        for (size_t t = 0; t < Wide; t++)
            for (int row = 0; row < Rows; row++) {
                I::store(blocks + (t * Rows + row) * TILE, sums[t][row][0]);
                I::store(blocks + (t * Rows + row) * TILE + 16, sums[t][row][1]);
            }
    }

    // One tile of weights in groups. For many rows its codes are unpacked once.
    template <class Each>
    static void grouped(Memory<uint16_t>& scratch, const Matrix& matrix, const uint16_t* input, int count, const float* sums,
                        int tile, Each& each) {
        const bool unpack = count > I::GROUP_ROWS;
        if (unpack) {
            scratch.reserve((size_t)matrix.in * TILE);
            unpacked(matrix, tile, scratch.get());
        }
        by_rows<I::GROUP_ROWS>(count, [&](int row, auto rows) {
            alignas(64) float block[rows * TILE];
            const uint16_t* x = input + (size_t)row * matrix.in;
            const float* added = matrix.offsets.get() ? sums + (size_t)row * matrix.groups() : nullptr;
            if (unpack)
                groups<rows, Unpacked>(matrix, tile, scratch.get(), x, added, block);
            else if (matrix.format == Format::INT4)
                groups<rows, Nibbles>(matrix, tile, matrix.tile_codes(tile), x, added, block);
            else
                groups<rows, Bytes>(matrix, tile, matrix.tile_codes(tile), x, added, block);
            each(row, rows, tile, block);
        });
    }

    // Eight inputs' codes of 32 outputs: `dot4` adds their products with eight inputs to both sides' sums of all rows.
    struct Unpacked {
        using Code = uint16_t;
        static constexpr int QUAD = 256;  // from one eight to the next
        template <int Rows>
        static void dot4(Floats (&sums)[2][Rows], const uint16_t* codes, const uint16_t* x, int in) {
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
                add(sums, I::pairs(codes + j * 64), I::pairs(codes + j * 64 + 32), x + 2 * j, in);
        }
    };
    struct Bytes {
        using Code = uint8_t;
        static constexpr int QUAD = 256;
        template <int Rows>
        static void dot4(Floats (&sums)[2][Rows], const uint8_t* codes, const uint16_t* x, int in) {
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
                const int8_t* at = (const int8_t*)codes + j * 64;
                add(sums, I::codes8(at), I::codes8(at + 32), x + 2 * j, in);
            }
        }
    };
    struct Nibbles {
        using Code = uint8_t;
        static constexpr int QUAD = 128;
        template <int Rows>
        static void dot4(Floats (&sums)[2][Rows], const uint8_t* codes, const uint16_t* x, int in) {
            const typename I::Codes4 left(codes), right(codes + 64);
            add(sums, left.template get<0>(), right.template get<0>(), x, in);
            add(sums, left.template get<1>(), right.template get<1>(), x + 2, in);
            add(sums, left.template get<2>(), right.template get<2>(), x + 4, in);
            add(sums, left.template get<3>(), right.template get<3>(), x + 6, in);
        }
    };

    template <int Rows>
    static void add(Floats (&sums)[2][Rows], Pairs left, Pairs right, const uint16_t* x, int in) {
#pragma GCC unroll 8
        for (int row = 0; row < Rows; row++) {
            const Pairs pair = I::same_pair(x + (size_t)row * in);
            sums[0][row] = I::dot(sums[0][row], left, pair);
            sums[1][row] = I::dot(sums[1][row], right, pair);
        }
    }

    template <int Rows, class Kind>
    static void groups(const Matrix& matrix, int tile, const typename Kind::Code* codes, const uint16_t* input,
                       const float* sums, float* block) {
        const int groups = matrix.groups(), quads = matrix.group / 8;
        const uint16_t *scales = matrix.tile_scales(tile), *offsets = matrix.tile_offsets(tile);
        Floats totals[2][Rows];
        for (auto& side : totals)
            for (auto& row : side) row = I::zero();
        for (int g = 0; g < groups; g++) {
            Floats parts[2][Rows];
            for (auto& side : parts)
                for (auto& part : side) part = I::zero();
            for (int q = 0; q < quads; q++, codes += Kind::QUAD)
                Kind::dot4(parts, codes, input + g * matrix.group + 8 * q, matrix.in);
            for (int side = 0; side < 2; side++) {
                const Floats scale = I::halves(scales + g * TILE + side * 16);
                for (int row = 0; row < Rows; row++)
                    totals[side][row] = I::fma(scale, parts[side][row], totals[side][row]);
                if (!offsets) continue;
                const Floats offset = I::halves(offsets + g * TILE + side * 16);
                for (int row = 0; row < Rows; row++)
                    totals[side][row] = I::fma(offset, I::all(sums[(size_t)row * groups + g]), totals[side][row]);
            }
        }
        for (int row = 0; row < Rows; row++) {
            I::store(block + row * TILE, totals[0][row]);
            I::store(block + row * TILE + 16, totals[1][row]);
        }
    }

    // A tile's codes as bf16, which holds them exactly: [in / 2][32][2].
    static void unpacked(const Matrix& matrix, int tile, uint16_t* out) {
        const uint8_t* codes = matrix.tile_codes(tile);
        if (matrix.format == Format::INT8) {
            for (int at = 0; at < matrix.in * TILE; at += 32) I::store_pairs(out + at, I::codes8((const int8_t*)codes + at));
            return;
        }
        for (int quad = 0; quad < matrix.in / 8; quad++)
            for (int side = 0; side < 2; side++) {
                const typename I::Codes4 four(codes + (size_t)quad * 128 + side * 64);
                uint16_t* to = out + (size_t)quad * 256 + side * 32;
                I::store_pairs(to, four.template get<0>());
                I::store_pairs(to + 64, four.template get<1>());
                I::store_pairs(to + 128, four.template get<2>());
                I::store_pairs(to + 192, four.template get<3>());
            }
    }
};

}  // namespace headrace
