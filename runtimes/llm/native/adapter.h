// Adapters of low rank: a product W · x of some rows becomes W · x + up · (down · x).
//
// The inner numbers, down · x, are computed in a phase of their own, and up · them is added to each tile of the product
// before anything else reads it. Both have one order of summation, so that a row has the same numbers in any company.
#pragma once

#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

#include "matrix.h"

namespace headrace {

enum class Adapted : int { QKV = 0, ATTENTION_OUT = 1, GATE_UP = 2, DOWN = 3, MATRICES = 4 };

// What an adapter adds to one matrix; without a rank nothing.
struct LowRank {
    // Sixteen outputs, of one part of the matrix: its `count` inner numbers from `first` on, and where their weights are.
    struct Strip {
        int first, count;
        const uint16_t* up;  // bf16 [count / 2][16][2]
    };
    int rank = 0, in = 0;            // a multiple of four; the last inner numbers may be 0
    const uint16_t* down = nullptr;  // bf16 [rank][in]
    std::vector<Strip> strips;       // in the order of the tiles, two to each
};

// All its numbers are in one memory, in the order in which a step reads them.
struct Adapter {
    Adapter(int layers, size_t size) : layers(layers), numbers(size), size(size) {}

    // The next `count` numbers, zero at first.
    uint16_t* take(size_t count) {
        if (count > size - used) throw std::runtime_error("the adapter is not valid: its size");
        used += count;
        return numbers.get() + used - count;
    }

    std::vector<std::array<LowRank, (int)Adapted::MATRICES>> layers;

  private:
    Memory<uint16_t> numbers;
    size_t size, used = 0;
};

// One part of a matrix: outputs `first` … `first` + `out` - 1. Ranks are even.
struct AdapterPart {
    int first, out, rank;
};

// `down` is bf16 [rank, in], of all parts one above the other; `up` is each part's [out, rank], one after the other.
inline LowRank pack_low_rank(Adapter& adapter, const Matrix& matrix, bool gated, const AdapterPart* parts, int count,
                             const uint16_t* down, const uint16_t* up) {
    LowRank low;
    low.in = matrix.in;
    int rank = 0;
    for (int part = 0; part < count; part++) rank += parts[part].rank;
    low.rank = (rank + 3) / 4 * 4;
    low.down = std::copy_n(down, (size_t)rank * low.in, adapter.take((size_t)low.rank * low.in)) - (size_t)rank * low.in;
    for (int strip = 0; strip < 2 * matrix.tiles(); strip++) {
        LowRank::Strip to{0, 0, nullptr};
        const int row = output_at(matrix, strip * 16, gated);
        const uint16_t* rows = up;
        for (int part = 0, first = 0; part < count; part++) {
            const AdapterPart& of = parts[part];
            if (row >= of.first && row < of.first + of.out) {
                uint16_t* packed = adapter.take((size_t)of.rank * 16);
                to = {first, of.rank, packed};
                for (int k = 0; k < of.rank; k += 2)
                    for (int lane = 0; lane < 16; lane++)
                        for (int side = 0; side < 2; side++)
                            *packed++ = rows[(size_t)(row - of.first + lane) * of.rank + k + side];
            }
            first += of.rank, rows += (size_t)of.out * of.rank;
        }
        low.strips.push_back(to);
    }
    return low;
}

// The rows of a step that have adapters, and their inner numbers.
struct AdaptedRows {
    struct Group {
        const Adapter* adapter;
        int first, count;  // of `rows`
    };
    static constexpr int MOST = 32;  // rows of a group: a thread's portion

    std::vector<const Adapter*> of;  // by row, null without; empty if no row has one
    std::vector<Group> groups;
    std::vector<int> rows;
    Memory<uint16_t> inner;  // bf16 [rows of the step][width]
    int width = 0;

    // `adapters` is each chunk's, null where it has none; `adapters` null is none at all.
    template <class Chunks>
    void plan(const Chunks& chunks, const Adapter* const* adapters, int tokens) {
        of.clear(), groups.clear(), rows.clear();
        width = 0;
        if (!adapters) return;
        of.assign(tokens, nullptr);
        for (size_t c = 0; c < chunks.size(); c++) {
            std::fill_n(of.begin() + chunks[c].first, chunks[c].count, adapters[c]);
            // Rows of one adapter in other chunks are of this group too, so that its weights are read once.
            if (adapters[c] && std::find(adapters, adapters + c, adapters[c]) == adapters + c)
                group(chunks, adapters, c);
        }
        inner.reserve((size_t)tokens * width);
    }

  private:
    template <class Chunks>
    void group(const Chunks& chunks, const Adapter* const* adapters, size_t begin) {
        const Adapter* adapter = adapters[begin];
        int first = rows.size();
        for (size_t c = begin; c < chunks.size(); c++)
            if (adapters[c] == adapter)
                for (int i = 0; i < chunks[c].count; i++) rows.push_back(chunks[c].first + i);
        for (; first < (int)rows.size(); first += MOST)
            groups.push_back({adapter, first, std::min(MOST, (int)rows.size() - first)});
        for (const auto& layer : adapter->layers)
            for (const LowRank& low : layer) width = std::max(width, low.rank);
    }
};

}  // namespace headrace
