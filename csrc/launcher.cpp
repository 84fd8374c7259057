#include "launcher.hpp"

#include <exception>

#include "errors.hpp"

namespace wootz {

namespace {

constexpr unsigned kSteady = 8;  // calls on one stream before a graph is made

}  // namespace

void Launcher::launch(const std::uintptr_t* addresses, driver::Stream stream) {
    const Call made = call(addresses, stream);
    if (steps_->device() < 0) return launch(*steps_, made);
    std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
    if (bytes_ != 0) {
        lock.lock();
        order(stream);
    } else if (!lock.try_lock()) {
        return steps_->launch(made);  // threads that use one plan do not wait for each other
    }
    if (replay(made)) return;
    if (bytes_ == 0) lock.unlock();
    steps_->launch(made);
}

// A graph's launches wait for each other, so that only one stream has it: its own for good.
bool Launcher::repeated(driver::Stream stream) {
    if (replay_ != nullptr) return stream == steady_;
    if (stream != steady_ || stream == driver::kThreadStream) repeats_ = 0;
    steady_ = stream;
    if (repeats_ < kSteady) ++repeats_;
    return graphs_ && repeats_ == kSteady;
}

// Whether the call was launched as a graph. What goes wrong before its launch is left to the plain one, which
// is tried next; a graph that cannot be made is not tried again.
bool Launcher::replay(const Call& call) {
    if (!repeated(call.stream)) return false;
    const driver::Scope scope(steps_->device());
    if (driver::capturing(call.stream)) return false;
    try {
        if (replay_ != nullptr) {
            steps_->update(call, replay_->exec(), nodes_);
        } else {
            graphs_ = false;
            replay_ = steps_->graph(call, &nodes_);
            if (replay_ == nullptr) return false;
        }
    } catch (const std::exception&) {
        return false;
    }
    replay_->launch(call.stream);
    return true;
}

void Launcher::launch(const Steps& steps, const Call& call) {
    if (bytes_ == 0) return steps.launch(call);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (steps.device() >= 0) order(call.stream);
    steps.launch(call);
}

void Launcher::order(driver::Stream stream) {
    if (stream == nullptr) stream = driver::kDefaultStream;  // two names of one stream
    if (stream == driver::kThreadStream) {
        throw Error(ErrorKind::argument,
                    "stream is 2, the default stream of each thread, which is another one in every thread: a "
                    "plan with a workspace needs a stream that has a handle of its own");
    }
    if (stream == last_) return;
    const driver::Scope scope(steps_->device());
    if (driver::capturing(stream))
        return;  // what is behind in `last_` is still what an eager launch waits for
    if (last_ != nullptr && !driver::capturing(last_)) driver::order_streams(steps_->device(), last_, stream);
    last_ = stream;
}

}  // namespace wootz
