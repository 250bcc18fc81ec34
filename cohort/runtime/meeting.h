// SPDX-License-Identifier: Apache-2.0
//
// What replicas bring to a meeting, with its type.
//
//   const Request mine{...};
//   auto made = group.merge("variable.create", mine, [&](Brought<Request> all) {
//     for (const Request& one : all) ...;          // in replica order
//     return std::make_shared<Impl>(...);          // what every replica gets
//   });
#pragma once

#include <cstddef>
#include <cstring>
#include <iterator>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "cohort/base/function_ref.h"

namespace cohort::internal::runtime {

/// One address per type.
template <class T>
inline constexpr char type_tag = 0;

/// What tells meetings apart: replicas that meet have brought the same.
struct MeetingKind {
  const char* name = "";        ///< A literal, for error texts.
  const void* types = nullptr;  ///< Of argument and result.

  bool operator==(const MeetingKind& other) const {
    return types == other.types && (name == other.name || std::strcmp(name, other.name) == 0);
  }
};

/// The arguments of all replicas, in their order. They stay valid until the meeting's end.
template <class A>
class Brought {
 public:
  explicit Brought(std::span<const void* const> all) : all_(all) {}

  std::size_t size() const { return all_.size(); }
  const A& operator[](std::size_t replica) const { return *static_cast<const A*>(all_[replica]); }

  class Iterator {
   public:
    using value_type = A;
    using reference = const A&;
    using pointer = const A*;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::forward_iterator_tag;
    Iterator() = default;
    explicit Iterator(const void* const* at) : at_(at) {}
    const A& operator*() const { return *static_cast<const A*>(*at_); }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    Iterator operator++(int) { return Iterator(at_++); }
    bool operator==(const Iterator&) const = default;

   private:
    const void* const* at_ = nullptr;
  };
  Iterator begin() const { return Iterator(all_.data()); }
  Iterator end() const { return Iterator(all_.data() + all_.size()); }

 private:
  std::span<const void* const> all_;
};

/// A merge's function without its types.
using MergeBody = base::FunctionRef<std::shared_ptr<void>(std::span<const void* const> arguments)>;

/// The typed door of a merge: calls door(kind, argument, body), which is one without types. Returns
/// std::shared_ptr<const R> of what fn(Brought<A>) returns, or void.
template <class A, class Fn, class Door>
auto typed_merge(const char* name, const A& argument, const Fn& fn, const Door& door) {
  using R = std::remove_cvref_t<std::invoke_result_t<const Fn&, Brought<A>>>;
  const MeetingKind kind{name, &type_tag<std::pair<A*, R*>>};
  const auto body = [&](std::span<const void* const> all) -> std::shared_ptr<void> {
    if constexpr (std::is_void_v<R>) {
      fn(Brought<A>(all));
      return nullptr;
    } else {
      return std::make_shared<R>(fn(Brought<A>(all)));
    }
  };
  const std::shared_ptr<void> result = door(kind, std::addressof(argument), MergeBody(body));
  if constexpr (!std::is_void_v<R>) return std::static_pointer_cast<const R>(result);
}

}  // namespace cohort::internal::runtime
