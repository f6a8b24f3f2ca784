// AVX512 with AMX beside it: a product of 16 × 32 by 32 × 16 in one instruction, for plain weights.
//
// With HEADRACE_EMULATED_TILES the tiles are plain memory: how this path is tested on processors without them.
#pragma once

#include "isa_avx512.h"

#if !defined(HEADRACE_EMULATED_TILES)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace headrace {

struct Amx : Avx512 {
    static constexpr bool TILES = true;

#if defined(HEADRACE_EMULATED_TILES)
    struct Tile {
        alignas(64) uint8_t row[16][64];
    };
    static inline thread_local Tile tile[8];

    static void allow() {}
    static void enter() {}
    static void leave() {}
    template <int T>
    static void clear() {
        std::memset(&tile[T], 0, sizeof(Tile));
    }
    template <int T>
    static void fill(const void* from, size_t stride) {
        for (size_t r = 0; r < 16; r++) std::memcpy(tile[T].row[r], (const uint8_t*)from + r * stride, 64);
    }
    template <int T>
    static void spill(void* to, size_t stride) {
        for (size_t r = 0; r < 16; r++) std::memcpy((uint8_t*)to + r * stride, tile[T].row[r], 64);
    }
    template <int Sum, int A, int B>
    static void multiply() {
        for (int r = 0; r < 16; r++) {
            Floats sum = load((const float*)tile[Sum].row[r]);
            for (int pair = 0; pair < 16; pair++)
                sum = dot(sum, pairs((const uint16_t*)tile[B].row[pair]),
                          same_pair((const uint16_t*)tile[A].row[r] + 2 * pair));
            store((float*)tile[Sum].row[r], sum);
        }
    }
#else
    // Linux gives a process the tiles' state only when it asks.
    static void allow() {
        constexpr int ASK = 0x1023, TILE_DATA = 18;
        if (syscall(SYS_arch_prctl, ASK, TILE_DATA)) throw std::runtime_error("the system does not let this process use AMX");
    }
    // Eight tiles of 16 rows of 64 bytes.
    static void enter() {
        struct __attribute__((packed)) {
            uint8_t palette = 1, start = 0, reserved[14] = {};
            uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
            uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
        } shape;
        asm volatile("ldtilecfg %0" ::"m"(shape));
    }
    static void leave() { asm volatile("tilerelease"); }
    // Not the intrinsics: those of GCC are macros that paste their argument into the instruction, and take no template
    // parameter.
    template <int T>
    static void clear() {
        asm volatile("tilezero %%tmm%c0" ::"i"(T));
    }
    template <int T>
    static void fill(const void* from, size_t stride) {
        asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(T), "r"(from), "r"(stride) : "memory");
    }
    template <int T>
    static void spill(void* to, size_t stride) {
        asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(T), "r"(to), "r"(stride) : "memory");
    }
    template <int Sum, int A, int B>
    static void multiply() {
        asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sum), "i"(A), "i"(B));
    }
#endif
};

}  // namespace headrace
