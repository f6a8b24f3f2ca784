// Keys and values of all positions, on pages.
//
// A page of `block` positions is cut into strips of 16, the unit that attention reads. Of each kind/value head a strip has
// its keys as [head_dim / 2][16][2] (pairs of dimensions, position beside position) and its values as
// [8][head_dim][2] (pairs of positions, dimension beside dimension): what the dot product of pairs wants on either side.
// With eight bits a position's key (and its value) is codes and one scale, its greatest number over 127.
#pragma once

#include <cstdint>

#include "memory.h"

namespace headrace {

constexpr int STRIP = 16;

struct Cache {
    int layers, pages, strips, heads, head_dim;  // `strips` of a page
    bool small;                                  // codes of eight bits, else bf16
    Memory<uint8_t> keys, values;
    Memory<float> key_scales, value_scales;

    Cache(int layers, int pages, int block, int heads, int head_dim, bool small)
        : layers(layers), pages(pages), strips(block / STRIP), heads(heads), head_dim(head_dim), small(small) {
        keys = Memory<uint8_t>(count() * strip_bytes());
        values = Memory<uint8_t>(count() * strip_bytes());
        if (small) {
            key_scales = Memory<float>(count() * STRIP);
            value_scales = Memory<float>(count() * STRIP);
        }
    }

    size_t strip_bytes() const { return (size_t)head_dim * STRIP * (small ? 1 : 2); }
    size_t count() const { return (size_t)layers * pages * heads * strips; }

    // The `strip`th strip of a page, for one head of one layer.
    size_t strip(int layer, int head, int page, int strip) const {
        return (((size_t)layer * pages + page) * heads + head) * strips + strip;
    }
};

}  // namespace headrace
