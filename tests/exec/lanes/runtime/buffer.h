// Device memory of one launch: exact-size blocks whose surroundings are watched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lanes {

// Without the address sanitizer, a buffer ends (rounded up to 16 bytes, the alignment that the loader
// promises) at an inaccessible page and begins after another, the rest of its pages holds a pattern, and an
// input's pages are read-only. With it, a buffer is a heap block of exactly its size, and inputs are compared
// after the run.
class Buffer {
  public:
    Buffer(std::string name, bool writable, std::vector<char> contents);
    ~Buffer();
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    // Call once the contents are in place and the kernel is about to run.
    void protect();
    // What was overwritten that is not the kernel's to write, or "".
    std::string damage() const;
    // "3 bytes past the end of 'y' (64 bytes)", or "" if the address is not in this buffer's pages.
    std::string locate(const void* address) const;

    char* data() const { return data_; }
    size_t size() const { return contents_.size(); }
    bool writable() const { return writable_; }

  private:
    std::string name_;
    bool writable_;
    std::vector<char> contents_;  // as given
    char* data_ = nullptr;
    char* pages_ = nullptr;
    size_t pages_size_ = 0;
};

}  // namespace lanes
