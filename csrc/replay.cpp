#include "replay.hpp"

#include <exception>
#include <utility>

namespace wootz {
namespace {

constexpr unsigned kNonBlocking = 1;  // CUstream_flags
constexpr int kRelaxed = 2;           // CUstreamCaptureMode: calls that a capture forbids are allowed

bool has_graphs(const driver::Api& api) {
    const bool shows_nodes = api.capture_info != nullptr || api.capture_info_edges != nullptr;
    return shows_nodes && api.node_get != nullptr && api.node_update != nullptr &&
           api.stream_create != nullptr && api.stream_destroy != nullptr && api.capture_begin != nullptr &&
           api.capture_end != nullptr && api.capture_mode != nullptr && api.graph_instantiate != nullptr &&
           api.graph_launch != nullptr && api.graph_destroy != nullptr && api.graph_exec_destroy != nullptr;
}

// While it lives, this thread may do what somebody else's capture forbids it. Where the mode cannot be set,
// what is then forbidden fails itself.
class Relaxed {
  public:
    explicit Relaxed(const driver::Api& api)
        : api_(api), set_(api_.capture_mode(&mode_) == driver::kSuccess) {}
    ~Relaxed() {
        if (set_) api_.capture_mode(&mode_);
    }
    Relaxed(const Relaxed&) = delete;
    Relaxed& operator=(const Relaxed&) = delete;

  private:
    const driver::Api& api_;
    int mode_ = kRelaxed;
    bool set_;
};

class OwnStream {
  public:
    explicit OwnStream(const driver::Api& api) : api_(api) {
        driver::check(api_.stream_create(&stream_, kNonBlocking), "cuStreamCreate");
    }
    ~OwnStream() { api_.stream_destroy(stream_); }
    OwnStream(const OwnStream&) = delete;
    OwnStream& operator=(const OwnStream&) = delete;

    driver::Stream get() const { return stream_; }

  private:
    const driver::Api& api_;
    driver::Stream stream_ = nullptr;
};

// Ended, and its graph with it, where `enqueue` failed.
class Capture {
  public:
    Capture(const driver::Api& api, driver::Stream stream) : api_(api), stream_(stream) {
        driver::check(api_.capture_begin(stream_, kRelaxed), "cuStreamBeginCapture");
    }
    ~Capture() {
        driver::Graph graph = nullptr;
        if (!ended_ && api_.capture_end(stream_, &graph) == driver::kSuccess) api_.graph_destroy(graph);
    }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;

    driver::Graph end() {
        ended_ = true;
        driver::Graph graph = nullptr;
        driver::check(api_.capture_end(stream_, &graph), "cuStreamEndCapture");
        return graph;
    }

  private:
    const driver::Api& api_;
    driver::Stream stream_;
    bool ended_ = false;
};

}  // namespace

std::unique_ptr<const Replay> Replay::capture(int device,
                                              const std::function<void(driver::Stream)>& enqueue) {
    const driver::Api& api = driver::api();
    if (!has_graphs(api)) return nullptr;
    const Relaxed relaxed(api);
    const OwnStream stream(api);
    Capture made(api, stream.get());
    enqueue(stream.get());
    return std::unique_ptr<const Replay>(new Replay(device, made.end()));
}

Replay::Replay(int device, driver::Graph graph) : device_(device), graph_(graph) {
    const driver::Api& api = driver::api();
    const driver::Result result = api.graph_instantiate(&exec_, graph_, 0);
    if (result != driver::kSuccess) api.graph_destroy(graph_);
    driver::check(result, "cuGraphInstantiateWithFlags");
}

Replay::~Replay() {
    if (!driver::usable()) return;
    try {
        const driver::Scope scope(device_);
        const Relaxed relaxed(driver::api());  // it may end while somebody captures
        driver::api().graph_exec_destroy(exec_);
        driver::api().graph_destroy(graph_);
    } catch (const std::exception&) {  // a lost context has taken it along
    }
}

void Replay::launch(driver::Stream stream) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    driver::check(driver::api().graph_launch(exec_, stream), "cuGraphLaunch");
}

}  // namespace wootz
