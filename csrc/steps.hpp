// What one problem takes on one device: launches in order, all of it settled but the addresses, the
// workspace and the stream. Nothing here is changed by a launch, so that threads may share it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "driver.hpp"
#include "launch.hpp"
#include "replay.hpp"

namespace wootz {

// One launch. A CUDA device's are run with its context current.
class Step {
  public:
    // reach: the number of addresses that a call has to have for it.
    explicit Step(std::size_t reach) : reach_(reach) {}
    virtual ~Step() = default;
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

    std::size_t reach() const { return reach_; }
    // Enqueues it on CUDA; runs it elsewhere. Throws DriverFailure and what its backend does.
    virtual void run(const Call& call) const = 0;
    // The same for these addresses and this workspace alone; null: there is nothing to gain from that.
    virtual std::shared_ptr<const Step> bound(const Call& call) const;
    // Whether a graph of it, launched alone, is as good: nothing of it depends on the launches around it.
    virtual bool alone() const { return false; }
    // Sets the arguments of a kernel's node in an instantiated graph. Throws DriverFailure.
    virtual void update(const Call& call, driver::GraphExec graph, driver::GraphNode node) const;

  private:
    std::size_t reach_;
};

class Steps {
  public:
    // device: CUDA's number; -1: another kind of device. arrays: the number of addresses that calls give.
    // Throws Error(artifact) when a step wants more.
    Steps(int device, std::size_t arrays, std::vector<std::shared_ptr<const Step>> steps);

    int device() const { return device_; }
    std::size_t arrays() const { return arrays_; }
    void launch(const Call& call) const;
    // The same for a call's addresses and workspace alone. Throws DriverFailure.
    Steps bound(const Call& call) const;
    // A graph of the launches; nodes, where they are wanted: the kernel node of each. Null where there is no
    // graph as good as they are (Step::alone), or the driver lacks graphs. Needs the device's context. Throws
    // DriverFailure, and for nodes what `capture` does.
    std::unique_ptr<const Replay> graph(const Call& call, std::vector<driver::GraphNode>* nodes) const;
    // Launches on a stream that is being captured, and returns the kernel node that each step became. Throws
    // Error(argument) when it is not.
    std::vector<driver::GraphNode> capture(const Call& call) const;
    void update(const Call& call, driver::GraphExec graph, const std::vector<driver::GraphNode>& nodes) const;

  private:
    int device_;
    std::size_t arrays_;
    void enqueue(const Call& call) const;

    std::vector<std::shared_ptr<const Step>> steps_;
    std::unique_ptr<const Replay> replay_;  // of all of them, where they are bound; ends before them
};

}  // namespace wootz
