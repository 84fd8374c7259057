// Lets other Python threads run during a call.
#pragma once

#include <Python.h>
#include <unistd.h>

namespace wootz {

// As py::gil_scoped_release, but a daemon thread may come back while the interpreter ends: Python before 3.14
// ends such a thread with pthread_exit, which unwinds it, and no destructor survives that. It hangs instead,
// as it does in later ones, until the process is gone.
class Unlocked {
  public:
    Unlocked() : state_(PyEval_SaveThread()) {}
    ~Unlocked() {
        try {
            PyEval_RestoreThread(state_);
        } catch (...) {
            while (true) pause();
        }
    }
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;

  private:
    PyThreadState* state_;
};

}  // namespace wootz
