/* loam.hpp - loam for C++17: memory resources, an allocator, owners of blocks and arenas.
 *
 *   loam::resource frames("frame.pixels");
 *   std::pmr::vector<float> pixels(1920 * 1080, &frames);
 *   std::vector<int, loam::allocator<int>> ids(loam::allocator<int>("frame.ids"));
 *   loam::block block("frame.row", 4096);
 * A site argument is a tag, a loam_site * (such as LOAM_SITE("tag")), or nothing, which means the
 * current scope. A failed allocation throws std::bad_alloc, as new does. Every other failure throws
 * loam::error, with the words of loam_error().
 *
 * This header adds lifetimes to loam.h, and no state: all functions of loam.h can be called too.
 *
 * Threads. The functions follow the rules of the loam.h functions that they call. One object is for
 * one thread at a time, unless the host guards it. Copies of a block may be in any threads. */
#ifndef LOAM_HPP
#define LOAM_HPP

#include <loam.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <memory_resource>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace loam {

/* A failure: its status, and the words of loam_error() as what(). */
class error : public std::runtime_error {
public:
  explicit error(loam_status status) : std::runtime_error(loam_error()), status_(status) {}
  loam_status status() const noexcept { return status_; }

private:
  loam_status status_;
};

/* Throws loam::error for a status that is a failure. */
inline void check(loam_status status) {
  if (status != LOAM_OK) throw error(status);
}

/* A site argument: converts from a tag, from a loam_site * or from nothing. Throws loam::error if
 * the tag is not valid. */
class site {
public:
  site() noexcept = default;
  site(loam_site *of) noexcept : site_(of) {}
  site(const char *tag) : site_(loam_site_get(tag)) {
    if (!site_) throw error(LOAM_EINVAL);
  }
  site(const std::string &tag) : site(tag.c_str()) {}
  loam_site *get() const noexcept { return site_; }

private:
  loam_site *site_ = nullptr;
};

/* A scope: while the object lives, allocations of its thread without a site use this site. */
class scope {
public:
  explicit scope(site of) noexcept { loam_scope_enter(of.get()); }
  ~scope() { loam_scope_leave(); }
  scope(const scope &) = delete;
  scope &operator=(const scope &) = delete;
};

/* Returns the owner of the block that a pointer points into; nothing if it is in no live block. */
inline std::optional<loam_owner_info> owner(const void *ptr) {
  loam_owner_info info;
  if (loam_owner(ptr, &info) != LOAM_OK) return std::nullopt;
  return info;
}

/* ---- Allocating --------------------------------------------------------------------------- */

namespace detail {

inline void *allocate(loam_site *site, std::size_t size, std::size_t alignment) {
  void *p = alignment <= 16 ? loam_malloc(site, size) : loam_aligned_alloc(site, alignment, size);
  if (!p) throw std::bad_alloc();
  return p;
}

} // namespace detail

/* A memory resource that allocates for a site, for containers of std::pmr. All resources are equal:
 * each can free the memory of the others. A resource must outlive the containers that use it, but
 * not their memory. */
class resource : public std::pmr::memory_resource {
public:
  explicit resource(site of = {}) noexcept : site_(of) {}
  loam_site *get_site() const noexcept { return site_.get(); }

private:
  void *do_allocate(std::size_t size, std::size_t alignment) override {
    return detail::allocate(site_.get(), size, alignment);
  }
  void do_deallocate(void *ptr, std::size_t, std::size_t) override { loam_free(ptr); }
  bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
    return dynamic_cast<const resource *>(&other) != nullptr;
  }

  site site_;
};

/* A standard allocator for a site. All allocators are equal, and each keeps its site: a container
 * that is assigned by a move takes the memory over and continues to allocate for its own site. */
template <class T> class allocator {
public:
  using value_type = T;
  using is_always_equal = std::true_type;

  allocator() noexcept = default;
  explicit allocator(site of) noexcept : site_(of) {}
  template <class U> allocator(const allocator<U> &other) noexcept : site_(other.get_site()) {}

  T *allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T))
      throw std::bad_array_new_length();
    return static_cast<T *>(detail::allocate(site_.get(), count * sizeof(T), alignof(T)));
  }
  void deallocate(T *ptr, std::size_t) noexcept { loam_free(ptr); }
  loam_site *get_site() const noexcept { return site_.get(); }

private:
  site site_;
};

template <class T, class U> bool operator==(const allocator<T> &, const allocator<U> &) noexcept {
  return true;
}
template <class T, class U> bool operator!=(const allocator<T> &, const allocator<U> &) noexcept {
  return false;
}

/* ---- Blocks ------------------------------------------------------------------------------- */

/* One reference to a loam_block, or none. A copy adds one reference. */
class block {
public:
  block() noexcept = default;
  block(site of, std::size_t size) : block(made(loam_block_new(of.get(), size))) {}

  static block zeroed(site of, std::size_t size) { return made(loam_block_zeroed(of.get(), size)); }
  static block aligned(site of, std::size_t alignment, std::size_t size) {
    return made(loam_block_aligned(of.get(), alignment, size));
  }

  /* Makes a block over memory that loam did not make. end(ptr, size) is called once, by the thread
   * that releases the last reference. If this throws, `end` is never called. */
  template <class F> static block wrap(site of, void *ptr, std::size_t size, F end) {
    auto kept = std::make_unique<F>(std::move(end));
    block wrapped = made(loam_block_wrap(of.get(), ptr, size, &call<F>, kept.get()));
    kept.release();
    return wrapped;
  }

  /* Takes over a reference from C code; adopt(nullptr) is an empty block. */
  static block adopt(loam_block *of) noexcept {
    block taken;
    taken.block_ = of;
    return taken;
  }

  block(const block &other) noexcept : block_(loam_block_retain(other.block_)) {}
  block(block &&other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  block &operator=(block other) noexcept {
    swap(other);
    return *this;
  }
  ~block() { loam_block_release(block_); }

  void swap(block &other) noexcept { std::swap(block_, other.block_); }
  void reset() noexcept { block().swap(*this); }
  /* Gives the reference to C code and leaves this object empty. */
  loam_block *release() noexcept { return std::exchange(block_, nullptr); }
  loam_block *get() const noexcept { return block_; }
  explicit operator bool() const noexcept { return block_ != nullptr; }

  void *data() const noexcept { return loam_block_data(block_); }
  template <class T> T *as() const noexcept { return static_cast<T *>(data()); }
  std::size_t size() const noexcept { return loam_block_size(block_); }
  std::size_t use_count() const noexcept { return loam_block_refcount(block_); }
  loam_block_kind kind() const noexcept { return loam_block_kind_of(block_); }
  const char *tag() const noexcept { return loam_block_tag(block_); }

  /* Returns a block over a part, which keeps the memory alive. Throws loam::error if the part does
   * not fit. */
  block slice(std::size_t offset, std::size_t size) const {
    bool fits = block_ && offset <= this->size() && size <= this->size() - offset;
    loam_block *part = loam_block_slice(block_, offset, size);
    if (!part && !fits) throw error(LOAM_EINVAL);
    return made(part);
  }

private:
  static block made(loam_block *of) {
    if (!of) throw std::bad_alloc();
    return adopt(of);
  }

  template <class F> static void call(void *ptr, std::size_t size, void *ctx) {
    std::unique_ptr<F> end(static_cast<F *>(ctx));
    (*end)(ptr, size);
  }

  loam_block *block_ = nullptr;
};

inline void swap(block &a, block &b) noexcept { a.swap(b); }

/* ---- Arenas ------------------------------------------------------------------------------- */

/* Many small pieces that end together, with the last copy of owner(). As a memory resource it frees
 * nothing earlier. Containers of std::pmr may live in it; they have to end before it. */
class arena : public std::pmr::memory_resource {
public:
  explicit arena(site of = {}, int flags = 0, std::size_t first = 0)
      : block_(block::adopt(loam_arena_new(of.get(), flags, first))) {
    if (!block_) throw std::bad_alloc();
  }

  /* Resizes a piece and returns its address: the last piece, or any piece with
   * LOAM_ARENA_RESIZABLE. Throws std::bad_alloc on any failure. */
  void *resize(void *piece, std::size_t size) {
    void *p = loam_arena_resize(block_.get(), piece, size);
    if (!p) throw std::bad_alloc();
    return p;
  }
  /* Frees all pieces. Throws loam::error while copies of owner() exist. */
  void clear() { check(loam_arena_reset(block_.get())); }
  /* Ends allocating and resizing, until clear(). */
  void finalize() { check(loam_arena_finalize(block_.get())); }
  std::size_t size() const noexcept { return block_.size(); }
  /* The arena's block. A copy of it keeps the pieces alive. */
  const block &owner() const noexcept { return block_; }

private:
  void *do_allocate(std::size_t size, std::size_t alignment) override {
    void *p = loam_arena_alloc(block_.get(), alignment, size);
    if (!p) throw std::bad_alloc();
    return p;
  }
  void do_deallocate(void *, std::size_t, std::size_t) override {}
  bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
    return this == &other;
  }

  block block_;
};

} // namespace loam

#endif
