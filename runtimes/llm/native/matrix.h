// Weights, laid out once for the product that reads them.
//
// A matrix [out, in] is cut into tiles of 32 columns of its transpose, so of 32 outputs; a tile lies in the order in which
// the product goes through it: for each pair of inputs, 32 pairs of weights. A product then reads one stream. Weights of
// few bits lie in the same order, 4-bit codes four pairs deep: nibble j of a word is of pair 4q + j. A gated MLP's two
// matrices are interleaved by 16 outputs, so that a tile has both sides of the same 16.
#pragma once

#include <cstdint>
#include <vector>

#include "memory.h"

namespace headrace {

constexpr int TILE = 32;

enum class Format : int { BF16 = 0, INT8 = 1, INT4 = 2 };

struct Matrix {
    Format format = Format::BF16;
    int out = 0, in = 0, group = 0;
    int parts = 1;  // matrices of one size, one above the other: those of all experts
    Memory<uint16_t> weights;          // bf16: [tiles][in / 2][32][2]
    Memory<uint8_t> codes;             // int8: the same; int4: [tiles][in / 8][2][16][2] words of four codes
    Memory<uint16_t> scales, offsets;  // float16 [tiles][in / group][32]; no offsets is all 0

    int tiles() const { return (out + TILE - 1) / TILE; }
    int tiles_of_part() const { return tiles() / parts; }
    int groups() const { return in / group; }
    const uint16_t* tile(int t) const { return weights.get() + (size_t)t * in * TILE; }
    const uint8_t* tile_codes(int t) const {
        return codes.get() + (size_t)t * in * TILE / (format == Format::INT4 ? 2 : 1);
    }
    const uint16_t* tile_scales(int t) const { return scales.get() + (size_t)t * groups() * TILE; }
    const uint16_t* tile_offsets(int t) const {
        return offsets.get() ? offsets.get() + (size_t)t * groups() * TILE : nullptr;
    }
};

// Which output is in a place of the tiles, or -1 where a tile is wider than the matrix.
inline int output_at(const Matrix& matrix, int place, bool gated) {
    if (!gated) return place < matrix.out ? place : -1;
    const int rows = matrix.out / matrix.parts, first = place / rows * rows;
    const int half = first + rows / 2, pair = (place - first) / TILE, lane = place % TILE;
    return lane < 16 ? first + pair * 16 + lane : half + pair * 16 + lane - 16;
}

inline Matrix pack_bf16(const uint16_t* rows, int out, int in, bool gated, int parts) {
    Matrix matrix;
    matrix.out = out, matrix.in = in, matrix.parts = parts;
    matrix.weights = Memory<uint16_t>((size_t)matrix.tiles() * TILE * in);
    for (int place = 0; place < matrix.tiles() * TILE; place++) {
        const int row = output_at(matrix, place, gated);
        if (row < 0) continue;
        uint16_t* tile = matrix.weights.get() + (size_t)(place / TILE) * in * TILE + place % TILE * 2;
        for (int k = 0; k < in; k++) tile[(size_t)(k / 2) * TILE * 2 + k % 2] = rows[(size_t)row * in + k];
    }
    return matrix;
}

inline Memory<uint16_t> pack_groups(const Matrix& matrix, const uint16_t* values, bool gated) {
    const int groups = matrix.groups();
    Memory<uint16_t> packed((size_t)matrix.tiles() * groups * TILE);
    for (int place = 0; place < matrix.tiles() * TILE; place++) {
        const int row = output_at(matrix, place, gated);
        if (row < 0) continue;
        for (int g = 0; g < groups; g++)
            packed[((size_t)(place / TILE) * groups + g) * TILE + place % TILE] = values[(size_t)row * groups + g];
    }
    return packed;
}

// `rows` are codes [out, in]; `scales` and `offsets` (which may be null) float16 [out, in / group].
inline Matrix pack_codes(Format format, const int8_t* rows, const uint16_t* scales, const uint16_t* offsets, int out,
                         int in, int group, bool gated, int parts) {
    Matrix matrix;
    matrix.format = format, matrix.out = out, matrix.in = in, matrix.group = group, matrix.parts = parts;
    const bool small = format == Format::INT4;
    matrix.codes = Memory<uint8_t>((size_t)matrix.tiles() * TILE * in / (small ? 2 : 1));
    for (int place = 0; place < matrix.tiles() * TILE; place++) {
        const int row = output_at(matrix, place, gated);
        if (row < 0) continue;
        uint8_t* tile = matrix.codes.get() + (size_t)(place / TILE) * TILE * in / (small ? 2 : 1);
        const int lane = place % TILE;
        for (int k = 0; k < in; k++) {
            const int code = rows[(size_t)row * in + k], pair = k / 2;
            if (small) {
                const size_t word = ((size_t)(pair / 4) * 2 + lane / 16) * 32 + lane % 16 * 2 + k % 2;
                tile[2 * word + pair % 4 / 2] |= (uint8_t)((code + 8) << (pair % 2 * 4));
            } else {
                tile[((size_t)pair * TILE + lane) * 2 + k % 2] = (uint8_t)code;
            }
        }
    }
    matrix.scales = pack_groups(matrix, scales, gated);
    if (offsets) matrix.offsets = pack_groups(matrix, offsets, gated);
    return matrix;
}

}  // namespace headrace
