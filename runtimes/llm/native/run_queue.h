// How long a thread has waited for a core, as Linux counts it.
#pragma once

#if defined(__linux__)
#include <fcntl.h>
#include <unistd.h>
#endif

#include <cstdlib>

namespace headrace {

// Made and used by one thread. Where the system does not count, it waited for nothing.
class RunQueue {
  public:
#if defined(__linux__)
    RunQueue() : file_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}
    ~RunQueue() {
        if (file_ >= 0) close(file_);
    }

    // Since the thread began. The file has nanoseconds on a core, nanoseconds that it waited for one, and time slices.
    double seconds() const {
        char text[96];
        const ssize_t length = file_ < 0 ? 0 : pread(file_, text, sizeof text - 1, 0);
        if (length <= 0) return 0;
        text[length] = 0;
        char* waited = nullptr;
        std::strtoull(text, &waited, 10);
        return 1e-9 * (double)std::strtoull(waited, nullptr, 10);
    }
#else
    RunQueue() = default;
    double seconds() const { return 0; }
#endif
    RunQueue(const RunQueue&) = delete;
    RunQueue& operator=(const RunQueue&) = delete;

  private:
#if defined(__linux__)
    const int file_;
#endif
};

}  // namespace headrace
