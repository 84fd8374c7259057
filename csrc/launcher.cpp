#include "launcher.hpp"

namespace wootz {

void Launcher::launch(const Steps& steps, const Call& call) {
    if (bytes_ == 0) return steps.launch(call);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (steps.device() >= 0) order(call.stream);
    steps.launch(call);
}

void Launcher::order(driver::Stream stream) {
    if (stream == nullptr) stream = driver::kDefaultStream;  // two names of one stream
    if (last_ != nullptr && stream != last_) {
        const driver::Scope scope(steps_->device());
        if (!driver::capturing(stream) && !driver::capturing(last_))
            driver::order_streams(steps_->device(), last_, stream);
    }
    last_ = stream;
}

}  // namespace wootz
