// A few threads that go through one function together.
//
// All of a step is one call of `run`: between two phases the threads wait for each other at a barrier, which is a few
// hundred nanoseconds when nobody is late. Work inside a phase is taken in small portions, so that a thread which the
// system has put aside for a while (the server and its clients want cores too) holds the others up by one portion only.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "cores.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace headrace {

class Team {
  public:
    explicit Team(int threads) : threads_(threads), cores_(threads), ranges_(threads) {
        for (int i = 1; i < threads; i++) workers_.emplace_back([this, i] { work(i); });
    }

    ~Team() {
        task_ = nullptr;
        started_.fetch_add(1);
        started_.notify_all();
        for (auto& worker : workers_) worker.join();
    }

    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int threads() const { return threads_; }

    // Call `task(thread)` on every thread, the caller's own among them; returns when all have returned.
    void run(const std::function<void(int)>& task) {
        const Cores::Kept kept(cores_, 0);
        task_ = &task;
        if (threads_ > 1) {
            started_.fetch_add(1);
            started_.notify_all();
        }
        task(0);
        barrier();
    }

    // Wait until every thread of the team is here, and call `meanwhile` for as long as it waits.
    template <class Meanwhile>
    void barrier(Meanwhile meanwhile) {
        const unsigned phase = phase_.load(std::memory_order_acquire);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) == threads_ - 1) {
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
    int own(int thread, int count) const { return (int)((long)count * thread / threads_); }

    // Call `part(begin, end)` for portions of 0 … count, `most` at most. Every thread goes through a part of its own, so that
    // in every step it reads the same memory in the same order, and then takes from the ends of those of the others that
    // are late. Once a phase.
    template <class Part>
    void share(int thread, int count, int most, Part part) {
        for (int i = 0; i < threads_; i++) {
            const int whose = (thread + i) % threads_;
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
        const Cores::Kept kept(cores_, thread);
        for (unsigned seen = 0;; seen++) {
            await(started_, seen, pause);
            const auto* task = task_;
            if (!task) return;
            (*task)(thread);
            barrier();
        }
    }

    const int threads_;
    const Cores cores_;
    const std::function<void(int)>* task_ = nullptr;
    alignas(64) std::atomic<unsigned> started_{0};
    alignas(64) std::atomic<unsigned> phase_{1};
    alignas(64) std::atomic<int> arrived_{0};
    std::vector<Slot> ranges_;
    std::vector<std::thread> workers_;
};

}  // namespace headrace
