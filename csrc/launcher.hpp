// The launches of a plan, with the workspace that it owns.
//
// Calls that come again and again on one stream become launches of one graph, whose nodes are given each
// call's arguments: that costs the host less than a launch.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "steps.hpp"

namespace wootz {

// Threads may launch at the same time. Where there is a workspace their launches are enqueued one after the
// other, and one on another stream than the last waits on the device for that one to end; not where either
// stream is being captured, for what a graph's parts wait for is the graph's to say. A stream that was used
// has to live until the next launch.
class Launcher {
  public:
    // bytes: of the workspace, which outlives this object; 0: none.
    Launcher(std::shared_ptr<const Steps> steps, std::uint64_t workspace, std::uint64_t bytes)
        : steps_(std::move(steps)), workspace_(workspace), bytes_(bytes) {}

    const Steps& steps() const { return *steps_; }
    Call call(const std::uintptr_t* addresses, driver::Stream stream) const {
        return {addresses, workspace_, bytes_, stream};
    }
    void launch(const std::uintptr_t* addresses, driver::Stream stream);
    // The same launches with arguments of their own; see Steps::bound.
    void launch(const Steps& steps, const Call& call);

  private:
    void order(driver::Stream stream);
    bool replay(const Call& call);
    bool repeated(driver::Stream stream);

    std::shared_ptr<const Steps> steps_;
    std::uint64_t workspace_, bytes_;
    std::mutex mutex_;
    driver::Stream last_ = nullptr;    // null: there was none
    driver::Stream steady_ = nullptr;  // of the last `repeats_` calls, or of the graph
    unsigned repeats_ = 0;
    bool graphs_ = true;                    // false: one was made, or could not be
    std::unique_ptr<const Replay> replay_;  // ends before the steps
    std::vector<driver::GraphNode> nodes_;
};

}  // namespace wootz
