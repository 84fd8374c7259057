"""The host code that exported programs share: memory, and the check of results."""

from __future__ import annotations

from ..lower.walker import used

HELPERS: dict[str, str] = {
    "need": """// The program's own errors end it.
static void need(cudaError_t error, const char* what)
{
    if (error != cudaSuccess) {
        std::fprintf(stderr, "%s: %s\\n", what, cudaGetErrorString(error));
        std::exit(2);
    }
}
""",
    "bytes": """static std::vector<unsigned char> bytes(const char* hexadecimal)
{
    std::vector<unsigned char> result(std::strlen(hexadecimal) / 2);
    for (size_t i = 0; i < result.size(); ++i) {
        result[i] = (unsigned char)std::stoi(std::string(hexadecimal + 2 * i, 2), nullptr, 16);
    }
    return result;
}
""",
    "doubles": """static std::vector<double> doubles(const char* hexadecimal)
{
    const std::vector<unsigned char> raw = bytes(hexadecimal);
    std::vector<double> result(raw.size() / sizeof(double));
    std::memcpy(result.data(), raw.data(), raw.size());
    return result;
}
""",
    "allocate": """static void* allocate(size_t size)
{
    void* place = nullptr;
    need(cudaMalloc(&place, size ? size : 1), "cudaMalloc");
    return place;
}
""",
    "poisoned": """// Memory that a kernel writes to holds NaN before.
static void* poisoned(size_t size)
{
    void* place = allocate(size);
    need(cudaMemset(place, 0xff, size), "cudaMemset");
    return place;
}
""",
    "upload": """static void* upload(const char* hexadecimal)
{
    const std::vector<unsigned char> data = bytes(hexadecimal);
    void* place = allocate(data.size());
    need(cudaMemcpy(place, data.data(), data.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
    return place;
}
""",
    "download": """static std::vector<unsigned char> download(const void* place, size_t size)
{
    std::vector<unsigned char> data(size);
    need(cudaMemcpy(data.data(), place, size, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return data;
}
""",
    "same_bits": """static bool same_bits(const char* name, const void* place, const char* hexadecimal)
{
    const std::vector<unsigned char> wanted = bytes(hexadecimal), found = download(place, wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
        if (found[i] != wanted[i]) {
            std::printf("%s: byte %zu is %02x, wanted %02x\\n", name, i, found[i], wanted[i]);
            return false;
        }
    }
    std::printf("%s: %zu bytes, all as wanted\\n", name, wanted.size());
    return true;
}
""",
    "within": """// Whether every element lies in its interval; of an interval that is NaN, whether it is one.
static bool within(const char* name, const void* place, const char* lows, const char* highs,
                   double (*read)(const unsigned char*, size_t))
{
    const std::vector<double> low = doubles(lows), high = doubles(highs);
    const std::vector<unsigned char> found = download(place, low.size() * size_t(read(nullptr, 0)));
    double largest = 0, allowed = 0;
    size_t wrong = 0, first = 0;
    for (size_t i = 0; i < low.size(); ++i) {
        const double value = read(found.data(), i), middle = low[i] + (high[i] - low[i]) / 2;
        const bool right = std::isnan(low[i]) ? std::isnan(value) : value >= low[i] && value <= high[i];
        first = !right && !wrong ? i : first;
        wrong += !right;
        if (std::isfinite(middle) && (i == 0 || std::fabs(value - middle) > largest)) {
            largest = std::fabs(value - middle);
            allowed = (high[i] - low[i]) / 2;
        }
    }
    std::printf("%s: %zu numbers, largest error %.3g where %.3g is allowed\\n", name, low.size(), largest,
                allowed);
    if (wrong) {
        std::printf("%s: %zu are wrong; number %zu is %.9g, wanted %.9g to %.9g\\n", name, wrong, first,
                    read(found.data(), first), low[first], high[first]);
    }
    return !wrong;
}
""",
    "small_float": """// A float of fewer bits, without its sign. infinity: its bits; what is above is NaN.
static double small_float(unsigned bits, int mantissa, int bias, unsigned infinity)
{
    if (bits >= infinity) {
        return bits == infinity ? INFINITY : NAN;
    }
    const int exponent = int(bits >> mantissa);
    const unsigned fraction = bits & ((1u << mantissa) - 1);
    return exponent ? std::ldexp(double(fraction + (1u << mantissa)), exponent - bias - mantissa)
                    : std::ldexp(double(fraction), 1 - bias - mantissa);
}
""",
}
"""By name, each after those that it calls."""

_BODIES = {
    "f32": ("float", "value"),
    "f16": (
        "unsigned short",
        "(value & 0x8000 ? -1.0 : 1.0) * small_float(value & 0x7fff, 10, 15, 0x7c00)",
    ),
    "bf16": (
        "unsigned short",
        "(value & 0x8000 ? -1.0 : 1.0) * small_float(value & 0x7fff, 7, 127, 0x7f80)",
    ),
    "e5m2": ("unsigned char", "(value & 0x80 ? -1.0 : 1.0) * small_float(value & 0x7f, 2, 15, 0x7c)"),
    "e4m3": (
        "unsigned char",
        "(value & 0x7f) == 0x7f ? NAN : (value & 0x80 ? -1.0 : 1.0) * small_float(value & 0x7f, 3, 7, 0x80)",
    ),
    "i8": ("signed char", "value"),
    "u8": ("unsigned char", "value"),
    "bool": ("unsigned char", "value"),
    "i32": ("int", "value"),
    "u32": ("unsigned", "value"),
}
"""dtype: what holds it, and its number."""


def reader(dtype: str) -> str:
    """The C++ function that reads element i of an array of a type; of a null pointer, its size."""
    held, value = _BODIES[dtype]
    return f"""static double read_{dtype}(const unsigned char* from, size_t i)
{{
    {held} value = 0;
    if (!from) {{
        return sizeof value;
    }}
    std::memcpy(&value, from + i * sizeof value, sizeof value);
    return {value};
}}
"""


def functions(main: str) -> list[str]:
    """What the text of a main function calls, each before its callers."""
    return used(HELPERS | {f"read_{dtype}": reader(dtype) for dtype in _BODIES}, main)
