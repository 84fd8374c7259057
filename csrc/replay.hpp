// Launches that never change, as a graph of their own: the driver starts one in about a third of the time
// that it takes for a launch.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "driver.hpp"

namespace wootz {

// An instantiated graph, and the one it was made of. It needs what it launches to live as long as it does.
class Replay {
  public:
    // Captures what `enqueue` puts on a stream. Null where the driver lacks graphs. Needs the device's
    // context; disturbs no capture of anybody's. Throws DriverFailure, and what `enqueue` does.
    static std::unique_ptr<const Replay> capture(int device,
                                                 const std::function<void(driver::Stream)>& enqueue);
    ~Replay();
    Replay(const Replay&) = delete;
    Replay& operator=(const Replay&) = delete;

    // On a stream that is not being captured. Needs the device's context. Threads may call it at the same
    // time. Throws DriverFailure.
    void launch(driver::Stream stream) const;
    // For updates of its nodes, between launches.
    driver::GraphExec exec() const { return exec_; }

  private:
    Replay(int device, driver::Graph graph);

    int device_;
    driver::Graph graph_;
    driver::GraphExec exec_ = nullptr;
    mutable std::mutex mutex_;  // the driver's own objects of graphs are not for several threads
};

}  // namespace wootz
