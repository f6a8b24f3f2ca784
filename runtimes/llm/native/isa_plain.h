// The same sixteen floats in the compiler's own vectors, for any processor: it makes of them what there is.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace headrace {

struct Plain {
    typedef float Floats __attribute__((vector_size(64)));
    typedef uint32_t Pairs __attribute__((vector_size(64)));
    typedef int32_t Mask __attribute__((vector_size(64)));

    static constexpr int ROWS = 3, GROUP_ROWS = 2, ATTENTION_ROWS = 4;

    // Whether it multiplies whole tiles; the others' `enter` and `leave` are for those that do.
    static constexpr bool TILES = false;
    static void allow() {}
    static void enter() {}
    static void leave() {}

    static Floats zero() { return Floats{}; }
    static Floats all(float x) { return x - Floats{}; }
    static Floats load(const float* p) { return from<Floats>(p); }
    static void store(float* p, Floats v) { std::memcpy(p, &v, 64); }
    static Floats add(Floats a, Floats b) { return a + b; }
    static Floats sub(Floats a, Floats b) { return a - b; }
    static Floats mul(Floats a, Floats b) { return a * b; }
    static Floats div(Floats a, Floats b) { return a / b; }
    static Floats fma(Floats a, Floats b, Floats c) { return a * b + c; }
    static Floats max(Floats a, Floats b) { return a > b ? a : b; }
    static float sum(Floats v) {
        float total[16];
        store(total, v);
        for (int half = 8; half; half /= 2)
            for (int i = 0; i < half; i++) total[i] += total[i + half];
        return total[0];
    }
    static float greatest(Floats v) {
        float most = v[0];
        for (int i = 1; i < 16; i++) most = std::max(most, v[i]);
        return most;
    }

    static bool any_above(Floats a, Floats b) {
        const Mask above = a > b;
        int32_t any = 0;
        for (int i = 0; i < 16; i++) any |= above[i];
        return any;
    }

    static Mask lanes(int begin, int end) {
        const Mask lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
        return (lane >= begin) & (lane < end);
    }
    static Floats choose(Mask mask, Floats yes, Floats no) { return mask ? yes : no; }

    static Floats halves(const uint16_t* p) {
        float out[16];
        for (int i = 0; i < 16; i++) out[i] = half(p[i]);
        return load(out);
    }
    static void store_bf16(uint16_t* p, Floats v) {
        const Pairs bits = (Pairs)v, even = (bits >> 16) & 1;
        const Pairs rounded = ((bits + 0x7fff + even) >> 16) & 0xffff;  // to the nearest, ties to even
        const Pairs result = v == v ? rounded : ((bits >> 16) | 0x40);  // not a number stays none
        for (int i = 0; i < 16; i++) p[i] = (uint16_t)result[i];
    }

    static Pairs pairs(const uint16_t* p) { return from<Pairs>(p); }
    static void store_pairs(uint16_t* p, Pairs v) { std::memcpy(p, &v, 64); }
    static Pairs same_pair(const uint16_t* p) {
        uint32_t pair;
        std::memcpy(&pair, p, 4);
        return pair - Pairs{};
    }
    static Floats dot(Floats c, Pairs a, Pairs b) {
        const Floats low = (Floats)(a << 16) * (Floats)(b << 16) + c;
        return (Floats)(a & 0xffff0000u) * (Floats)(b & 0xffff0000u) + low;
    }

    static Pairs codes8(const int8_t* p) {
        uint16_t out[32];
        for (int i = 0; i < 32; i++) out[i] = small(p[i]);
        return pairs(out);
    }

    struct Codes4 {
        const uint8_t* bytes;
        explicit Codes4(const uint8_t* p) : bytes(p) {}
        template <int I>
        Pairs get() const {
            uint16_t words[32], out[32];
            std::memcpy(words, bytes, 64);
            for (int i = 0; i < 32; i++) out[i] = small(((words[i] >> (4 * I)) & 15) - 8);
            return pairs(out);
        }
    };

    static Floats exp(Floats x) {
        const Floats capped = x < -87.f ? all(-87.f) : x > 88.f ? all(88.f) : x;
        const Floats t = capped * 1.44269504f;
        const Floats shifted = t + 12582912.f;  // 1.5 · 2^23: what is left of a fraction rounds away
        const Floats n = shifted - 12582912.f, f = t - n;
        Floats p = all(1.5403530e-4f);
        p = p * f + 1.3333558e-3f;
        p = p * f + 9.6181291e-3f;
        p = p * f + 5.5504109e-2f;
        p = p * f + 2.4022651e-1f;
        p = p * f + 6.9314718e-1f;
        p = p * f + 1.f;
        const Mask exponent = ((Mask)shifted - 0x4b400000 + 127) << 23;
        return p * (Floats)exponent;
    }

    // 2^floor(x) · 2^f with 0 ≤ f < 1, as in isa_avx512.h; from 2^-126 on.
    static Floats exp2(Floats x) {
        const Floats t = x < -126.f ? all(-126.f) : x;
        const Floats shifted = t + 12582912.f, nearest = shifted - 12582912.f;
        const Mask more = nearest > t;  // -1 where the nearest whole number is above
        const Floats f = t - nearest - __builtin_convertvector(more, Floats);
        Floats p = all(1.34267e-2f);
        p = p * f + 5.224245e-2f;
        p = p * f + 2.4128022e-1f;
        p = p * f + 6.9304484e-1f;
        p = p * f + 1.f;
        const Mask exponent = ((Mask)shifted - 0x4b400000 + more + 127) << 23;
        return p * (Floats)exponent;
    }

    static void prefetch_far(const void* p) { __builtin_prefetch(p, 0, 2); }
    static void prefetch(const void* p) { __builtin_prefetch(p); }

  private:
    template <class T>
    static T from(const void* p) {
        T v;
        std::memcpy(&v, p, sizeof v);
        return v;
    }

    // A whole number of at most eight bits as bf16, which holds it exactly.
    static uint16_t small(int code) {
        const float value = (float)code;
        uint32_t bits;
        std::memcpy(&bits, &value, 4);
        return bits >> 16;
    }

    static float half(uint16_t h) {
        const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 1023;
        if (exponent == 0) return (sign ? -1.f : 1.f) * std::ldexp((float)fraction, -24);
        const uint32_t bits = sign | ((exponent == 31 ? 255 : exponent + 112) << 23) | (fraction << 13);
        float value;
        std::memcpy(&value, &bits, 4);
        return value;
    }
};

}  // namespace headrace
