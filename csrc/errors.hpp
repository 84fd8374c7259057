// The exceptions of the loader. bind.cpp turns them into the classes of wootz.errors.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace wootz {

enum class ErrorKind { argument, dtype, device, artifact };

class Error : public std::runtime_error {
  public:
    Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
    ErrorKind kind() const { return kind_; }

  private:
    ErrorKind kind_;
};

// A result of the CUDA driver other than success.
class DriverFailure : public std::runtime_error {
  public:
    DriverFailure(int code, std::string name, std::string call, std::string text)
        : std::runtime_error(call + " failed: " + name),
          code_(code),
          name_(std::move(name)),
          call_(std::move(call)),
          text_(std::move(text)) {}
    int code() const { return code_; }
    const std::string& name() const { return name_; }
    const std::string& call() const { return call_; }
    const std::string& text() const { return text_; }

  private:
    int code_;
    std::string name_, call_, text_;
};

}  // namespace wootz
