#include "steps.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "errors.hpp"

namespace wootz {

std::shared_ptr<const Step> Step::bound(const Call&) const { return nullptr; }

void Step::update(const Call&, driver::GraphExec, driver::GraphNode) const {
    throw Error(ErrorKind::device, "graphs are CUDA's; this kernel runs on another device");
}

Steps::Steps(int device, std::size_t arrays, std::vector<std::shared_ptr<const Step>> steps)
    : device_(device), arrays_(arrays), steps_(std::move(steps)) {
    for (const auto& step : steps_) {
        if (step->reach() > arrays_)
            throw Error(ErrorKind::artifact, "a launch wants more arrays than its calls have");
    }
}

void Steps::launch(const Call& call) const {
    std::optional<driver::Scope> scope;
    if (device_ >= 0) scope.emplace(device_);
    if (replay_ == nullptr || driver::capturing(call.stream)) return enqueue(call);
    replay_->launch(call.stream);
}

void Steps::enqueue(const Call& call) const {
    for (const auto& step : steps_) step->run(call);
}

Steps Steps::bound(const Call& call) const {
    std::optional<driver::Scope> scope;
    if (device_ >= 0) scope.emplace(device_);
    std::vector<std::shared_ptr<const Step>> steps = steps_;
    for (auto& step : steps) {
        if (auto settled = step->bound(call)) step = std::move(settled);
    }
    Steps made(device_, arrays_, std::move(steps));
    try {
        made.replay_ = made.graph(call, nullptr);
    } catch (const DriverFailure&) {  // no memory for it: calls are plain launches
    }
    return made;
}

std::unique_ptr<const Replay> Steps::graph(const Call& call, std::vector<driver::GraphNode>* nodes) const {
    const auto alone = [](const auto& step) { return step->alone(); };
    if (device_ < 0 || !std::all_of(steps_.begin(), steps_.end(), alone)) return nullptr;
    return Replay::capture(device_, [&](driver::Stream stream) {
        Call here = call;
        here.stream = stream;
        if (nodes == nullptr) return enqueue(here);
        *nodes = capture(here);
    });
}

std::vector<driver::GraphNode> Steps::capture(const Call& call) const {
    if (device_ < 0) throw Error(ErrorKind::device, "graphs are CUDA's; this kernel runs on another device");
    const driver::Scope scope(device_);
    if (!driver::capturing(call.stream)) {
        throw Error(
            ErrorKind::argument,
            "stream is not being captured: call graph_node between the begin and the end of a capture "
            "(torch.cuda.graph, or your library's), on the stream that is captured");
    }
    std::vector<driver::GraphNode> nodes;
    for (const auto& step : steps_) {
        step->run(call);
        nodes.push_back(driver::last_node(call.stream));
    }
    return nodes;
}

void Steps::update(const Call& call, driver::GraphExec graph,
                   const std::vector<driver::GraphNode>& nodes) const {
    const driver::Scope scope(device_);
    for (std::size_t i = 0; i < std::min(nodes.size(), steps_.size()); ++i)
        steps_[i]->update(call, graph, nodes[i]);
}

}  // namespace wootz
