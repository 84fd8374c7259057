#include "launcher.hpp"

#include "errors.hpp"

namespace wootz {

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
