// One core for each thread of a team that has as many threads as the process has cores.
//
// The threads of a step hand over to each other every tenth of a millisecond, and a system that sees two threads wake
// each other in turn likes to run both on one core. Whatever else wants a core then leaves the other one idle for
// whole steps. A team with fewer threads than there are cores is left to the system, which may know better, and so is
// one that uses fewer of its threads for a while.
#pragma once

#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

namespace headrace {

class Cores {
  public:
    // Those for `threads` threads; none where the choice is the system's.
    explicit Cores([[maybe_unused]] int threads) {
#if defined(__linux__)
        cpu_set_t allowed;
        if (threads < 2 || sched_getaffinity(0, sizeof allowed, &allowed) || CPU_COUNT(&allowed) != threads) return;
        for (int core = 0; core < CPU_SETSIZE; core++)
            if (CPU_ISSET(core, &allowed)) cores_.push_back(core);
#endif
    }

    // Keep the calling thread on the core of the `thread`th of the team for as long as this lives. What cannot be done
    // is left: it is about speed alone.
    class Kept {
      public:
#if defined(__linux__)
        Kept(const Cores& cores, int thread) {
            if (cores.cores_.empty() || sched_getaffinity(0, sizeof before_, &before_)) return;
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(cores.cores_[thread], &one);
            kept_ = !sched_setaffinity(0, sizeof one, &one);
        }
        ~Kept() {
            if (kept_) sched_setaffinity(0, sizeof before_, &before_);
        }
#else
        Kept(const Cores&, int) {}
#endif
        Kept(const Kept&) = delete;
        Kept& operator=(const Kept&) = delete;

      private:
#if defined(__linux__)
        cpu_set_t before_;
        bool kept_ = false;
#endif
    };

  private:
    std::vector<int> cores_;
};

}  // namespace headrace
