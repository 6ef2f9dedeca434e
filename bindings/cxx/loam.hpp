/* loam.hpp - loam for C++17: memory resources, an allocator, operator new by tag, owners of blocks
 * and arenas.
 *
 *   loam::resource frames("frame.pixels");
 *   std::pmr::vector<float> pixels(1920 * 1080, &frames);
 *   std::vector<int, loam::allocator<int>> ids(loam::allocator<int>("frame.ids"));
 *   loam::block block("frame.row", 4096);
 *   class mesh : public loam::tagged<"scene.mesh"> {};      C++20: `new mesh` allocates for the tag
 *   std::unique_ptr<shader, loam::deleter> kept(new (loam::at("scene.shader")) shader);
 * A site argument is a tag, a loam_site * (such as LOAM_SITE("tag")), or nothing, which means the
 * current scope. A failed allocation throws std::bad_alloc, as new does, also where an argument was
 * wrong: loam_error() says why. An allocator that is asked for more objects than there are
 * addresses throws std::bad_array_new_length instead, as std::allocator does. Every other failure
 * throws loam::error, with the words of loam_error().
 *
 * This header adds lifetimes to loam.h, and no state: all functions of loam.h can be called too.
 *
 * Threads. The functions follow the rules of the loam.h functions that they call. One object is for
 * one thread at a time, unless the host guards it. Copies of a block may be in any threads. */
#ifndef LOAM_HPP
#define LOAM_HPP

#if __cplusplus < 201703L
#error "loam.hpp needs C++17 or later: -std=c++17"
#elif !defined(__cpp_exceptions)
#error "loam.hpp needs exceptions; with -fno-exceptions, use loam.h"
#endif

#include <loam.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
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
 * the tag is not valid (LOAM_EINVAL), or if there is no memory for the site (LOAM_ENOMEM). */
class site {
public:
  site() noexcept = default;
  site(loam_site *of) noexcept : site_(of) {}
  site(const char *tag) : site_(loam_site_get(tag)) {
    bool is_long = tag && std::strlen(tag) > 255; /* else there is no memory for the site */
    if (!site_) throw error(is_long ? LOAM_EINVAL : LOAM_ENOMEM);
  }
  site(const std::string &tag) : site(tag.c_str()) {}
  loam_site *get() const noexcept { return site_; }

private:
  loam_site *site_ = nullptr;
};

/* A scope: while the object lives, allocations of its thread without a site use this site. It may
 * not live across a co_await: until the coroutine goes on, other code of the thread would use the
 * site, and the coroutine may go on in another thread. */
class scope {
public:
  [[nodiscard]] explicit scope(site of) noexcept { loam_scope_enter(of.get()); }
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
 * each can free the memory of the others. With -fno-rtti a resource cannot know that another one is
 * of loam and equals only itself: containers then copy where they could hand memory over. In a
 * program with RTTI, resources of a plugin with -fno-rtti must not be compared: that crashes. A
 * resource must outlive the containers that use it, but not their memory. */
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
#ifdef __cpp_rtti
    return dynamic_cast<const resource *>(&other) != nullptr;
#else
    return this == &other;
#endif
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

/* ---- operator new ------------------------------------------------------------------------- */

namespace detail {

/* Like ::operator new: while memory cannot be had, calls the handler of std::set_new_handler.
 * Throws std::bad_alloc if there is no handler. */
inline void *make(loam_site *site, std::size_t size, std::size_t alignment) {
  for (;;) {
    void *p = alignment <= 16 ? loam_malloc(site, size) : loam_aligned_alloc(site, alignment, size);
    if (p) return p;
    std::new_handler handler = std::get_new_handler();
    if (!handler) throw std::bad_alloc();
    handler();
  }
}

/* The site of a tag that is a type; looked up once. Throws loam::error if the tag is not valid. */
template <class Tag> loam_site *site_of() {
  static loam_site *const found = site(Tag::tag).get();
  return found;
}

template <class Tag> void *make_or_null(std::size_t size, std::size_t alignment) noexcept {
  try {
    return make(site_of<Tag>(), size, alignment);
  } catch (...) {
    return nullptr;
  }
}

} // namespace detail

/* The argument of `new (loam::at("tag")) T`: the site for which one object is allocated. `delete`
 * does not know that the memory is loam's: end the object by loam::destroy, or give it to a
 * std::unique_ptr<T, loam::deleter>. There is no such form for arrays: use std::vector with
 * loam::allocator. */
class at {
public:
  explicit at(site of) noexcept : site_(of) {}
  loam_site *get_site() const noexcept { return site_.get(); }

private:
  site site_;
};

/* A base class: `new` allocates objects of a class that derives from it, and arrays of them, for a
 * tag. Tag is a type that names the tag:
 *
 *   struct mesh_tag { static constexpr const char *tag = "scene.mesh"; };
 *   class mesh : public loam::tagged_by<mesh_tag> {};
 *
 * The base class adds no member and no virtual function. Classes that derive from `mesh` have its
 * tag; the site of `new (loam::at(site)) mesh` goes before it. `delete` tells loam the size of an
 * object, unless the object needs a greater alignment than a plain `new` gives. So if a derived
 * class is deleted through a base class without a virtual destructor, that becomes an event
 * (BAD_FREE) where loam_free_sized sees the difference. std::make_shared and containers do not call
 * a class's operator new: use std::allocate_shared with loam::allocator.
 *
 * A promise type whose coroutines have their frames under the tag needs operators of its own.
 * Without them, C++ takes the form with a place for a coroutine whose only parameter is a pointer:
 * the frame then overwrites what the pointer points to.
 *
 *   struct promise_type : loam::tagged<"query.task"> {
 *     static void *operator new(std::size_t size) { return tagged::operator new(size); }
 *     static void operator delete(void *p, std::size_t size) noexcept { loam_free_sized(p, size); }
 */
template <class Tag> class tagged_by {
public:
  static void *operator new(std::size_t size) {
    return detail::make(detail::site_of<Tag>(), size, 1);
  }
  static void *operator new(std::size_t size, std::align_val_t alignment) {
    return detail::make(detail::site_of<Tag>(), size, static_cast<std::size_t>(alignment));
  }
  static void *operator new(std::size_t size, const std::nothrow_t &) noexcept {
    return detail::make_or_null<Tag>(size, 1);
  }
  static void *operator new(std::size_t size, std::align_val_t alignment,
                            const std::nothrow_t &) noexcept {
    return detail::make_or_null<Tag>(size, static_cast<std::size_t>(alignment));
  }
  static void *operator new(std::size_t, void *place) noexcept { return place; }
  static void *operator new(std::size_t size, const at &where) {
    return detail::make(where.get_site(), size, 1);
  }
  static void *operator new(std::size_t size, std::align_val_t alignment, const at &where) {
    return detail::make(where.get_site(), size, static_cast<std::size_t>(alignment));
  }

  static void *operator new[](std::size_t size) {
    return detail::make(detail::site_of<Tag>(), size, 1);
  }
  static void *operator new[](std::size_t size, std::align_val_t alignment) {
    return detail::make(detail::site_of<Tag>(), size, static_cast<std::size_t>(alignment));
  }
  static void *operator new[](std::size_t size, const std::nothrow_t &) noexcept {
    return detail::make_or_null<Tag>(size, 1);
  }
  static void *operator new[](std::size_t size, std::align_val_t alignment,
                              const std::nothrow_t &) noexcept {
    return detail::make_or_null<Tag>(size, static_cast<std::size_t>(alignment));
  }
  static void *operator new[](std::size_t, void *place) noexcept { return place; }

  static void operator delete(void *ptr, std::size_t size) noexcept { loam_free_sized(ptr, size); }
  /* Without a size: GCC would not call a sized form if a constructor throws. */
  static void operator delete(void *ptr, std::align_val_t) noexcept { loam_free(ptr); }
  static void operator delete[](void *ptr) noexcept { loam_free(ptr); }
  static void operator delete[](void *ptr, std::align_val_t) noexcept { loam_free(ptr); }

  /* Called if a constructor throws in an expression with std::nothrow, loam::at or a place. */
  static void operator delete(void *ptr, const std::nothrow_t &) noexcept { loam_free(ptr); }
  static void operator delete(void *ptr, std::align_val_t, const std::nothrow_t &) noexcept {
    loam_free(ptr);
  }
  static void operator delete(void *, void *) noexcept {}
  static void operator delete(void *ptr, const at &) noexcept { loam_free(ptr); }
  static void operator delete(void *ptr, std::align_val_t, const at &) noexcept { loam_free(ptr); }
  static void operator delete[](void *ptr, const std::nothrow_t &) noexcept { loam_free(ptr); }
  static void operator delete[](void *ptr, std::align_val_t, const std::nothrow_t &) noexcept {
    loam_free(ptr);
  }
  static void operator delete[](void *, void *) noexcept {}

protected:
  tagged_by() noexcept = default;
  ~tagged_by() = default;
};

#if defined(__cpp_nontype_template_args) && __cpp_nontype_template_args >= 201911L
namespace detail {

/* A string literal as an argument of a template. */
template <std::size_t Size> struct literal {
  char text[Size] = {};
  consteval literal(const char (&from)[Size]) {
    static_assert(Size <= 256, "a tag of loam has at most 255 bytes");
    for (std::size_t i = 0; i < Size; i++) text[i] = from[i];
  }
};

template <literal Text> struct literal_tag { static constexpr const char *tag = Text.text; };

} // namespace detail

/* loam::tagged<"scene.mesh"> is loam::tagged_by with the tag in the place of a type. It needs C++20
 * with class types as arguments of templates, as in GCC 12; elsewhere it is not declared. */
template <detail::literal Text> class tagged : public tagged_by<detail::literal_tag<Text>> {
protected:
  tagged() noexcept = default;
  ~tagged() = default;
};
#endif

/* Ends an object that `new (loam::at(site)) T` made; nullptr does nothing. The pointer may point to
 * a base class, if that has a virtual destructor. */
template <class T> void destroy(T *object) noexcept {
  if (!object) return;
  auto changeable = const_cast<std::remove_cv_t<T> *>(object);
  void *start = changeable;
  if constexpr (std::is_polymorphic_v<T>) start = dynamic_cast<void *>(changeable);
  object->~T();
  loam_free(start);
}

/* Calls loam::destroy, for std::unique_ptr. */
struct deleter {
  template <class T> void operator()(T *object) const noexcept { destroy(object); }
};

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

/* Allocates the object of `new (loam::at(site)) T`. Throws std::bad_alloc, as new does. */
inline void *operator new(std::size_t size, const loam::at &where) {
  return loam::detail::make(where.get_site(), size, 1);
}
inline void *operator new(std::size_t size, std::align_val_t alignment, const loam::at &where) {
  return loam::detail::make(where.get_site(), size, static_cast<std::size_t>(alignment));
}
void *operator new[](std::size_t size, const loam::at &where) = delete;
void *operator new[](std::size_t size, std::align_val_t alignment, const loam::at &where) = delete;

/* Called if the constructor throws in `new (loam::at(site)) T`. */
inline void operator delete(void *ptr, const loam::at &) noexcept { loam_free(ptr); }
inline void operator delete(void *ptr, std::align_val_t, const loam::at &) noexcept {
  loam_free(ptr);
}

#endif
