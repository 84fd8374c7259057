// Vector traits, Metal's vector constructors and as_type.
#pragma once

#include "types.h"

namespace metal {

template <class T, int N>
using vec = T __attribute__((ext_vector_type(N)));

// The element type and length of a vector, or of a scalar taken as a vector of one.
template <class T>
struct vector_traits {
    typedef T element;
    enum { length = 1 };
};
template <class T, int N>
struct vector_traits<T __attribute__((ext_vector_type(N)))> {
    typedef T element;
    enum { length = N };
};

template <class... A>
struct total {
    enum { value = 0 };
};
template <class A, class... Rest>
struct total<A, Rest...> {
    enum { value = vector_traits<A>::length + total<Rest...>::value };
};

// Metal converts element by element, where a plain cast of clang would reinterpret the bits.
template <class T, int N>
struct make_vector {
    typedef vec<T, N> Result;

    template <class A, bool scalar>
    struct append {
        static void to(__private Result& result, __private int& at, A a) {
            for (int i = 0; i < vector_traits<A>::length; ++i) {
                result[at++] = (T)a[i];
            }
        }
    };
    template <class A>
    struct append<A, true> {
        static void to(__private Result& result, __private int& at, A a) { result[at++] = (T)a; }
    };
    template <class A>
    static int put(__private Result& result, __private int& at, A a) {
        append<A, vector_traits<A>::length == 1>::to(result, at, a);
        return 0;
    }

    // One scalar fills the vector; otherwise the arguments' elements together are exactly N.
    template <class... A>
    static Result from(A... a) {
        static_assert(total<A...>::value == N || (sizeof...(A) == 1 && total<A...>::value == 1),
                      "a vector constructor needs one scalar, or as many elements as the vector has");
        Result result;
        int at = 0;
        const int done[] = {put(result, at, a)...};
        (void)done;
        for (; at < N; ++at) {
            result[at] = result[0];
        }
        return result;
    }
};

template <class To, class From>
METAL_FUNC To as_type(From value) {
    static_assert(sizeof(To) == sizeof(From), "as_type between types of different size");
    return __builtin_bit_cast(To, value);
}

}  // namespace metal
