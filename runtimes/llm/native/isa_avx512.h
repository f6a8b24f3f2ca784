// Sixteen floats at a time, and the dot product of bf16 pairs that AVX512-bf16 has in hardware.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace headrace {

struct Avx512 {
    using Floats = __m512;
    using Pairs = __m512i;  // sixteen pairs of bf16
    using Mask = __mmask16;

    // Rows that a product keeps in registers: of plain weights, and of weights in groups (which need twice as many).
    static constexpr int ROWS = 12, GROUP_ROWS = 6, ATTENTION_ROWS = 12;

    // Whether it multiplies whole tiles; the others' `enter` and `leave` are for those that do.
    static constexpr bool TILES = false;
    static void allow() {}
    static void enter() {}
    static void leave() {}

    static Floats zero() { return _mm512_setzero_ps(); }
    static Floats all(float x) { return _mm512_set1_ps(x); }
    static Floats load(const float* p) { return _mm512_loadu_ps(p); }
    static void store(float* p, Floats v) { _mm512_storeu_ps(p, v); }
    static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
    static Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
    static Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
    static Floats div(Floats a, Floats b) { return _mm512_div_ps(a, b); }
    static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
    static Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
    static float sum(Floats v) { return _mm512_reduce_add_ps(v); }
    static float greatest(Floats v) { return _mm512_reduce_max_ps(v); }
    static bool any_above(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }

    // The lanes begin … end - 1 of sixteen; either may lie outside.
    static Mask lanes(int begin, int end) { return below(end) & ~below(begin); }
    static Floats choose(Mask mask, Floats yes, Floats no) { return _mm512_mask_blend_ps(mask, no, yes); }

    static Floats halves(const uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
    static void store_bf16(uint16_t* p, Floats v) { _mm256_storeu_si256((__m256i*)p, (__m256i)_mm512_cvtneps_pbh(v)); }

    static Pairs pairs(const uint16_t* p) { return _mm512_loadu_si512(p); }
    static void store_pairs(uint16_t* p, Pairs v) { _mm512_storeu_si512(p, v); }
    static Pairs same_pair(const uint16_t* p) {
        int pair;
        std::memcpy(&pair, p, 4);
        return _mm512_set1_epi32(pair);
    }
    // c + a · b, pair by pair.
    static Floats dot(Floats c, Pairs a, Pairs b) { return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b); }

    // Thirty-two codes of eight bits, as pairs of bf16 (which hold them exactly).
    static Pairs codes8(const int8_t* p) {
        const __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)));
        const __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p + 1)));
        return (__m512i)_mm512_cvtne2ps_pbh(high, low);
    }

    // Four times thirty-two codes of four bits: the nibbles of 32 words, the lowest first. Looked up: a bf16 of each
    // code, twice over, because a lookup reads five bits of an index and the fifth is the next code's.
    struct Codes4 {
        __m512i words, table;
        explicit Codes4(const uint8_t* p) : words(_mm512_loadu_si512(p)), table(_mm512_loadu_si512(TABLE)) {}
        template <int I>
        Pairs get() const {
            return _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 4 * I), table);
        }
    };

    static Floats exp(Floats x);
    static Floats exp2(Floats x);

    static void prefetch_far(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T1); }
    static void prefetch(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T0); }

  private:
    static Mask below(int count) { return count >= 16 ? 0xffff : count <= 0 ? 0 : (Mask)((1u << count) - 1); }

    // -8 … 7 as bf16, twice.
    alignas(64) static constexpr uint16_t TABLE[32] = {
        0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80, 0x0000, 0x3f80, 0x4000,
        0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040,
        0xc000, 0xbf80, 0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0};
};

// 2^n · 2^f with |f| ≤ ½: a polynomial of degree 6 for 2^f, wrong by 2e-7 at most of the value.
inline Avx512::Floats Avx512::exp(Floats x) {
    const Floats t = mul(_mm512_min_ps(max(x, all(-87.f)), all(88.f)), all(1.44269504f));
    const Floats n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), f = sub(t, n);
    Floats p = all(1.5403530e-4f);
    p = fma(p, f, all(1.3333558e-3f));
    p = fma(p, f, all(9.6181291e-3f));
    p = fma(p, f, all(5.5504109e-2f));
    p = fma(p, f, all(2.4022651e-1f));
    p = fma(p, f, all(6.9314718e-1f));
    p = fma(p, f, all(1.f));
    return _mm512_scalef_ps(p, n);
}

// 2^floor(x) · 2^f with 0 ≤ f < 1: a polynomial of degree 4 for 2^f, exact at 0, wrong by 3e-6 at most of the value. For
// attention, which rounds the result to bf16.
inline Avx512::Floats Avx512::exp2(Floats x) {
    const Floats f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    Floats p = all(1.34267e-2f);
    p = fma(p, f, all(5.224245e-2f));
    p = fma(p, f, all(2.4128022e-1f));
    p = fma(p, f, all(6.9304484e-1f));
    p = fma(p, f, all(1.f));
    return _mm512_scalef_ps(p, x);
}

}  // namespace headrace
