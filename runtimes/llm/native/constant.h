// A small number that is known when the program runs, as one that is known when it is compiled.
#pragma once

#include <type_traits>

namespace headrace {

// Call `call(std::integral_constant<int, value>())`, for a value of 1 … Most.
template <int Most, class Call>
void with_constant(int value, Call call) {
    if constexpr (Most > 0) {
        if (value == Most)
            call(std::integral_constant<int, Most>());
        else
            with_constant<Most - 1>(value, call);
    }
}

}  // namespace headrace
