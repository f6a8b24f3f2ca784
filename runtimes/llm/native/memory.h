// Large pieces of memory: zero at first, on large pages where the system has them.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <utility>

namespace headrace {

template <class T>
class Memory {
  public:
    Memory() = default;
    explicit Memory(size_t count) : bytes_(count * sizeof(T)) {
        if (!bytes_) return;
        void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
        madvise(at, bytes_, MADV_HUGEPAGE);
#endif
        at_ = static_cast<T*>(at);
    }
    Memory(Memory&& other) noexcept : at_(std::exchange(other.at_, nullptr)), bytes_(other.bytes_) {}
    Memory& operator=(Memory&& other) noexcept {
        std::swap(at_, other.at_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~Memory() {
        if (at_) munmap(at_, bytes_);
    }

    T* get() { return at_; }
    const T* get() const { return at_; }
    T& operator[](size_t i) { return at_[i]; }
    const T& operator[](size_t i) const { return at_[i]; }

    // Room for `count` at least; what was there is gone if it had to grow.
    void reserve(size_t count) {
        if (count * sizeof(T) > bytes_) *this = Memory(count + count / 4);
    }

  private:
    T* at_ = nullptr;
    size_t bytes_ = 0;
};

}  // namespace headrace
