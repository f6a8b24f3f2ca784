// A few threads that go through one function together.
//
// All of a step is one call of `run`: between two phases the threads wait for each other at a barrier, which is a few
// hundred nanoseconds when nobody is late. Work inside a phase is taken in small portions, so that a thread which the
// system has put aside for a while (the server and its clients want cores too) holds the others up by one portion only.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace headrace {

class Team {
  public:
    explicit Team(int threads) : threads_(threads) {
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
        if (threads_ == 1) {
            taken_[0] = taken_[1] = 0;
            return;
        }
        const unsigned phase = phase_.load(std::memory_order_acquire);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) == threads_ - 1) {
            arrived_.store(0, std::memory_order_relaxed);
            taken_[phase & 1].store(0, std::memory_order_relaxed);  // of the phase that ends; the next has the other
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

    // Where the part of 0 … count ends that is `thread`'s own in `share`: half of it all is.
    int own(int thread, int count) const { return (int)((long)count * thread / (2 * threads_)); }

    // Call `part(begin, end)` for portions of 0 … count. Half is shared out beforehand, the rest as threads come for it, in
    // ever smaller portions, `most` at most: so that all end at the same time. Once a phase.
    template <class Part>
    void share(int thread, int count, int most, Part part) {
        if (own(thread, count) < own(thread + 1, count)) part(own(thread, count), own(thread + 1, count));
        const int shared = own(threads_, count);
        std::atomic<int>& taken = taken_[phase_.load(std::memory_order_relaxed) & 1];
        int begin = shared + taken.load(std::memory_order_relaxed);
        while (begin < count) {
            const int portion = std::clamp((count - begin) / (2 * threads_), 1, most);
            int expected = begin - shared;
            if (taken.compare_exchange_weak(expected, expected + portion, std::memory_order_relaxed))
                part(begin, std::min(begin + portion, count));
            begin = shared + taken.load(std::memory_order_relaxed);
        }
    }

  private:
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
        for (unsigned seen = 0;; seen++) {
            await(started_, seen, pause);
            const auto* task = task_;
            if (!task) return;
            (*task)(thread);
            barrier();
        }
    }

    const int threads_;
    const std::function<void(int)>* task_ = nullptr;
    alignas(64) std::atomic<unsigned> started_{0};
    alignas(64) std::atomic<unsigned> phase_{0};
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<int> taken_[2]{};
    std::vector<std::thread> workers_;
};

}  // namespace headrace
