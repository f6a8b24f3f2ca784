// A few threads that go through one function together.
//
// All of a step is one call of `run`: between two phases the threads wait for each other at a barrier, which is a few
// hundred nanoseconds when nobody is late. Work inside a phase is taken in small portions, so that a thread which the
// system has put aside for a while (the server and its clients want cores too) holds the others up by one portion only.
//
// A call uses all threads of the team or the first few: where other programs take the cores, the threads wait for each
// other more than they compute, and fewer are faster. The caller decides by what `waits` reports.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "cores.h"
#include "run_queue.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace headrace {

class Team {
  public:
    explicit Team(int threads)
        : threads_(threads), active_(threads), cores_(threads), ranges_(threads), starts_(threads), waited_(threads) {
        for (int i = 1; i < threads; i++) workers_.emplace_back([this, i] { work(i); });
    }

    ~Team() {
        task_ = nullptr;
        for (int i = 1; i < threads_; i++) start(i);
        for (auto& worker : workers_) worker.join();
    }

    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int threads() const { return threads_; }
    int active() const { return active_; }

    // Use the first `count` threads from the next call of `run` on. Not during one.
    void use(int count) {
        active_ = std::clamp(count, 1, threads_);
        // A part that no thread has used for long could look like one of the phase that comes.
        const uint64_t before = (phase_.load(std::memory_order_relaxed) - 1) & 0xffff;
        for (auto& slot : ranges_) slot.value.store({before, 0, 0}, std::memory_order_relaxed);
    }

    // Call `task(thread)` on every active thread, the caller's own among them; returns when all have returned.
    void run(const std::function<void(int)>& task) {
        const auto began = std::chrono::steady_clock::now();
        std::optional<Cores::Kept> kept;
        if (pinned()) kept.emplace(cores_, 0);
        task_ = &task;
        for (int i = 1; i < active_; i++) start(i);
        // The caller may be another thread in every call.
        if (threads_ > 1)
            measured(0, RunQueue());
        else
            task(0);
        barrier();
        elapsed_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    }

    // Of the last call of `run`: how long it took, and how long its threads waited for a core, all together.
    struct Waits {
        double waited, elapsed;
    };
    Waits waits() const {
        double waited = 0;
        for (int i = 0; i < active_; i++) waited += waited_[i].seconds;
        return {waited, elapsed_};
    }

    // Wait until every thread of the team is here, and call `meanwhile` for as long as it waits.
    template <class Meanwhile>
    void barrier(Meanwhile meanwhile) {
        const unsigned phase = phase_.load(std::memory_order_acquire);
        const int last = active_ - 1;  // read before the others can end this call
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) == last) {
            arrived_.store(0, std::memory_order_relaxed);
            phase_.fetch_add(1, std::memory_order_release);
            phase_.notify_all();
        } else {
            await(phase_, phase, meanwhile);
        }
    }
    void barrier() { barrier(pause); }

    static void pause() {
#if defined(__x86_64__)
        _mm_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }

    // Where `thread`'s part of 0 … count begins, and that of the one before it ends.
    int own(int thread, int count) const { return (int)((long)count * thread / active_); }

    // Call `part(begin, end)` for portions of 0 … count, `most` at most. Every thread goes through a part of its own, so that
    // in every step it reads the same memory in the same order, and then takes from the ends of those of the others that
    // are late. Once a phase.
    template <class Part>
    void share(int thread, int count, int most, Part part) {
        for (int i = 0; i < active_; i++) {
            const int whose = (thread + i) % active_;
            for (Range range; !(range = left(whose, count)).empty();) {
                Range rest = range;
                if (i == 0)
                    rest.begin += std::clamp((int)(range.end - range.begin) / 2, 1, most);
                else
                    rest.end--;
                if (!ranges_[whose].value.compare_exchange_strong(range, rest, std::memory_order_relaxed)) continue;
                if (i == 0)
                    part(range.begin, rest.begin);
                else
                    part(rest.end, range.end);
            }
        }
    }

  private:
    // What nobody has taken yet of a thread's part, in the phase that it is of.
    struct Range {
        uint64_t phase : 16, begin : 24, end : 24;
        bool empty() const { return begin >= end; }
    };
    static_assert(sizeof(Range) == 8);
    struct alignas(64) Slot {
        std::atomic<Range> value{};
    };
    struct alignas(64) Start {
        std::atomic<unsigned> calls{0};
    };
    struct alignas(64) Waited {
        double seconds = 0;  // of the last call
    };

    // Fewer threads than cores are left to the system.
    bool pinned() const { return active_ == threads_; }

    void start(int thread) {
        starts_[thread].calls.fetch_add(1);
        starts_[thread].calls.notify_one();
    }

    void measured(int thread, const RunQueue& queue) {
        const double before = queue.seconds();
        (*task_)(thread);
        waited_[thread].seconds = queue.seconds() - before;
    }

    // Whoever comes first to a part of a new phase says what it is: its owner may be the one that is late.
    Range left(int whose, int count) {
        const uint64_t phase = phase_.load(std::memory_order_relaxed) & 0xffff;
        Range range = ranges_[whose].value.load(std::memory_order_relaxed);
        while (range.phase != phase) {
            const Range whole = {phase, (uint64_t)own(whose, count), (uint64_t)own(whose + 1, count)};
            if (ranges_[whose].value.compare_exchange_weak(range, whole, std::memory_order_relaxed)) return whole;
        }
        return range;
    }

    static constexpr auto SPIN = std::chrono::microseconds(40);

    // Look for a little while, then sleep.
    template <class Meanwhile>
    static void await(std::atomic<unsigned>& value, unsigned old, Meanwhile meanwhile) {
        const auto end = std::chrono::steady_clock::now() + SPIN;
        for (int i = 1; value.load(std::memory_order_acquire) == old; i++) {
            meanwhile();
            if (i % 64 == 0 && std::chrono::steady_clock::now() > end) {
                value.wait(old, std::memory_order_acquire);
                return;
            }
        }
    }

    void work(int thread) {
        const RunQueue queue;
        std::optional<Cores::Kept> kept;
        for (unsigned seen = 0;; seen++) {
            await(starts_[thread].calls, seen, pause);
            if (!task_) return;
            if (!pinned())
                kept.reset();
            else if (!kept)
                kept.emplace(cores_, thread);
            measured(thread, queue);
            barrier();
        }
    }

    const int threads_;
    int active_;
    const Cores cores_;
    double elapsed_ = 0;
    const std::function<void(int)>* task_ = nullptr;
    alignas(64) std::atomic<unsigned> phase_{1};
    alignas(64) std::atomic<int> arrived_{0};
    std::vector<Slot> ranges_;
    std::vector<Start> starts_;
    std::vector<Waited> waited_;
    std::vector<std::thread> workers_;
};

}  // namespace headrace
