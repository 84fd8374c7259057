// Launchers: call an emitted kernel with the arguments at the given addresses, as cuLaunchKernel would.
//
// LANES_ENTRY(symbol, kinds...) defines lanes_call_<symbol>; each kind says what the plan holds for the
// parameter of that position, and a parameter of the text that differs does not compile.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace lanes {

struct Input {  // an array that is read
    template <class T>
    static constexpr bool fits = std::is_pointer_v<T> && std::is_const_v<std::remove_pointer_t<T>>;
};
struct Output {  // an array that is written
    template <class T>
    static constexpr bool fits = std::is_pointer_v<T> && !std::is_const_v<std::remove_pointer_t<T>>;
};
template <class Scalar>
struct Number {
    template <class T>
    static constexpr bool fits = std::is_same_v<T, Scalar>;
};
using U32 = Number<uint32_t>;
using U64 = Number<uint64_t>;
using F32 = Number<float>;

template <class Kind, class T>
inline T argument(void* address) {
    static_assert(Kind::template fits<T>, "a kernel parameter is not what the plan's entry says");
    if constexpr (std::is_pointer_v<T>) {
        return static_cast<T>(address);
    } else {
        return *static_cast<T*>(address);
    }
}

template <class... Kinds, class... Parameters, size_t... I>
inline void call(void (*kernel)(Parameters...), void** addresses, std::index_sequence<I...>) {
    kernel(argument<Kinds, Parameters>(addresses[I])...);
}

template <class... Kinds, class... Parameters>
inline void call(void (*kernel)(Parameters...), void** addresses) {
    static_assert(sizeof...(Kinds) == sizeof...(Parameters),
                  "the kernel has another number of parameters than the plan's entry");
    call<Kinds...>(kernel, addresses, std::index_sequence_for<Parameters...>{});
}

}  // namespace lanes

#define LANES_ENTRY(symbol, ...) \
    extern "C" void lanes_call_##symbol(void** addresses) { lanes::call<__VA_ARGS__>(symbol, addresses); }
