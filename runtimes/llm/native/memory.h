// Large pieces of memory: zero at first, on large pages where the system has them.
//
// Under the address sanitizer they are the allocator's and as large as was asked for, so that it sees their ends.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace headrace {

template <class T>
class Memory {
  public:
    Memory() = default;
    explicit Memory(size_t count) : bytes_(count * sizeof(T)) {
        if (!bytes_) return;
#ifdef __SANITIZE_ADDRESS__
        if (posix_memalign(reinterpret_cast<void**>(&at_), 64, bytes_)) throw std::bad_alloc();
        std::memset(static_cast<void*>(at_), 0, bytes_);
#else
        void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
        madvise(at, bytes_, MADV_HUGEPAGE);
#endif
        at_ = static_cast<T*>(at);
#endif
    }
    Memory(Memory&& other) noexcept : at_(std::exchange(other.at_, nullptr)), bytes_(other.bytes_) {}
    Memory& operator=(Memory&& other) noexcept {
        std::swap(at_, other.at_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~Memory() {
#ifdef __SANITIZE_ADDRESS__
        std::free(at_);
#else
        if (at_) munmap(at_, bytes_);
#endif
    }

    T* get() { return at_; }
    const T* get() const { return at_; }
    T& operator[](size_t i) { return at_[i]; }
    const T& operator[](size_t i) const { return at_[i]; }

    // Room for `count` at least; what was there is gone if it had to grow.
    void reserve(size_t count) {
        if (count * sizeof(T) > bytes_) *this = Memory(count + (SPARE ? count / 4 : 0));
    }

  private:
#ifdef __SANITIZE_ADDRESS__
    static constexpr bool SPARE = false;
#else
    static constexpr bool SPARE = true;
#endif
    T* at_ = nullptr;
    size_t bytes_ = 0;
};

}  // namespace headrace
