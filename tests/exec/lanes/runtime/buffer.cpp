#include "buffer.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace lanes {
namespace {

constexpr size_t kPage = 4096;
[[maybe_unused]] constexpr size_t kAlignment = 16;
// Around inputs and around outputs; different, for a kernel that copies one element too many.
constexpr char kInputPattern = '\x5a', kOutputPattern = '\xa5';

[[maybe_unused]] size_t round_up(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

}  // namespace

Buffer::Buffer(std::string name, bool writable, std::vector<char> contents)
    : name_(std::move(name)), writable_(writable), contents_(std::move(contents)) {
#if defined(LANES_ASAN)
    data_ = static_cast<char*>(malloc(size()));
#else
    const size_t inner =
        round_up(size() + 1, kPage);  // at least a page, so that locate() has something to name
    pages_size_ = inner + 2 * kPage;
    void* pages = mmap(nullptr, pages_size_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) {
        perror("lanes: cannot map a buffer");
        abort();
    }
    pages_ = static_cast<char*>(pages);
    memset(pages_ + kPage, writable_ ? kOutputPattern : kInputPattern, inner);
    data_ = pages_ + kPage + inner - round_up(size(), kAlignment);
#endif
    memcpy(data_, contents_.data(), size());
}

Buffer::~Buffer() {
#if defined(LANES_ASAN)
    free(data_);
#else
    munmap(pages_, pages_size_);
#endif
}

void Buffer::protect() {
    if (pages_) {
        const size_t inner = pages_size_ - 2 * kPage;
        mprotect(pages_, kPage, PROT_NONE);
        mprotect(pages_ + kPage, inner, writable_ ? PROT_READ | PROT_WRITE : PROT_READ);
        mprotect(pages_ + kPage + inner, kPage, PROT_NONE);
    }
}

std::string Buffer::damage() const {
    if (!writable_ && memcmp(data_, contents_.data(), size()) != 0) {
        return "the input '" + name_ + "' was written";
    }
    if (pages_) {
        const char pattern = writable_ ? kOutputPattern : kInputPattern;
        const char* end = pages_ + pages_size_ - kPage;
        for (const char* p = pages_ + kPage; p < end; ++p) {
            if ((p < data_ || p >= data_ + size()) && *p != pattern) {
                return "memory outside was written: " + locate(p);
            }
        }
    }
    return "";
}

std::string Buffer::locate(const void* address) const {
    const char* p = static_cast<const char*>(address);
    if (!pages_ || p < pages_ || p >= pages_ + pages_size_) {
        return "";
    }
    const std::string whole = "'" + name_ + "' (" + std::to_string(size()) + " bytes)";
    if (p < data_) {
        return std::to_string(data_ - p) + " bytes before " + whole;
    }
    if (p >= data_ + size()) {
        return std::to_string(p - data_ - size()) + " bytes past the end of " + whole;
    }
    return "at byte " + std::to_string(p - data_) + " of " + whole + (writable_ ? "" : ", which is an input");
}

}  // namespace lanes
