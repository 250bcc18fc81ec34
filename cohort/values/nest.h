// SPDX-License-Identifier: Apache-2.0
//
// Nests: tensors, numbers and strings in any arrangement of tuples, pairs, arrays, vectors, maps
// with string keys (unordered ones in the order of their keys), optionals and plain structs.
//
//   struct Out { Tensor loss; std::vector<Tensor> logits; } out{scalar(1), {}};
//   for_each_leaf(out, [](auto& leaf) { ... });          // every leaf, in declaration order
//   Out doubled = map_leaves(out, [](const auto& leaf) { return leaf * 2; });
//
// A struct needs nothing: an aggregate of at most 16 members, without base class, C array or
// bit field. Any other class specialises NestTraits.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/values/internal/nest_parts.h"

namespace cohort {

/// Calls f(leaf) for every leaf, where f takes every leaf type of the nest by reference. Leaves:
/// numbers, std::string, Tensor, IndexedSlices, Gradient.
/// Order: declaration; maps by key; an empty optional has no leaves.
/// TF: tf.nest.flatten, without the list.
template <class T, class F>
void for_each_leaf(T& nest, F&& f) {
  using internal::values::NestKind;
  constexpr NestKind kind = internal::values::nest_kind<std::remove_const_t<T>>();
  static_assert(
      kind != NestKind::kNone,
      "[nest] not a nest: expected a tensor, number, string, IndexedSlices or Gradient, "
      "a tuple, pair, array, vector (not of bool), [unordered_]map<string, T>, optional or "
      "struct (aggregate, at most 16 members) of these, or a class with NestTraits");
  if constexpr (kind == NestKind::kLeaf) {
    f(nest);
  } else if constexpr (kind == NestKind::kTied) {
    std::apply([&](auto&... member) { (for_each_leaf(member, f), ...); },
               internal::values::members_of(nest));
  } else if constexpr (kind == NestKind::kWalked) {
    NestTraits<std::remove_const_t<T>>::for_each_leaf(nest, f);
  } else if constexpr (kind == NestKind::kRange) {
    for (auto& part : nest) for_each_leaf(part, f);
  } else if constexpr (kind == NestKind::kMap) {
    internal::values::for_each_entry(nest,
                                     [&](const auto&, auto& part) { for_each_leaf(part, f); });
  } else if constexpr (kind == NestKind::kOptional) {
    if (nest) for_each_leaf(*nest, f);
  }
}

/// A nest of the same structure with every leaf replaced by f(leaf), of the leaf's own type.
/// Tensors that f returns unchanged are shared. TF: tf.nest.map_structure.
template <class T, class F>
T map_leaves(const T& nest, F&& f) {
  T out = nest;
  for_each_leaf(out, [&](auto& leaf) { leaf = f(std::as_const(leaf)); });
  return out;
}

/// The Tensor leaves, in order; other leaves (numbers, Gradient...) are left out.
template <class T>
std::vector<Tensor> flatten(const T& nest) {
  std::vector<Tensor> out;
  for_each_leaf(nest, [&](const auto& leaf) {
    if constexpr (std::is_same_v<decltype(leaf), const Tensor&>) out.push_back(leaf);
  });
  return out;
}

namespace internal::values {

/// One leaf without its static type.
struct LeafRef {
  const void* type;
  const void* leaf;
};
template <class T>
inline constexpr char kTypeTag = 0;

template <class T>
std::vector<LeafRef> leaf_refs(const T& nest) {
  std::vector<LeafRef> out;
  for_each_leaf(nest, [&]<class L>(const L& leaf) { out.push_back({&kTypeTag<L>, &leaf}); });
  return out;
}

template <class T, class F>
bool zip_walked(const T& a, const T& b, F& f) {
  const std::vector<LeafRef> others = leaf_refs(b);
  std::size_t next = 0;
  bool all = true;
  for_each_leaf(a, [&]<class L>(const L& leaf) {
    const std::size_t i = next++;
    all = all && i < others.size() && others[i].type == &kTypeTag<L> &&
          f(leaf, *static_cast<const L*>(others[i].leaf));
  });
  return all && next == others.size();
}

/// True if a and b have one structure and f(leaf of a, leaf of b) is true for every pair. What is
/// no nest goes to f as a whole.
template <class T, class F>
bool zip_leaves(const T& a, const T& b, F& f) {
  constexpr NestKind kind = nest_kind<T>();
  if constexpr (kind == NestKind::kTied) {
    const auto left = members_of(a);
    const auto right = members_of(b);
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return (zip_leaves(std::get<I>(left), std::get<I>(right), f) && ...);
    }
    (std::make_index_sequence<std::tuple_size_v<decltype(left)>>());
  } else if constexpr (kind == NestKind::kWalked) {
    return zip_walked(a, b, f);
  } else if constexpr (kind == NestKind::kRange) {
    bool all = a.size() == b.size();
    for (std::size_t i = 0; all && i < a.size(); ++i) all = zip_leaves(a[i], b[i], f);
    return all;
  } else if constexpr (kind == NestKind::kMap) {
    bool all = a.size() == b.size();
    for_each_entry(a, [&](const auto& key, const auto& part) {
      const auto other = all ? b.find(key) : b.end();
      all = other != b.end() && zip_leaves(part, other->second, f);
    });
    return all;
  } else if constexpr (kind == NestKind::kOptional) {
    return a.has_value() == b.has_value() && (!a || zip_leaves(*a, *b, f));
  } else {
    return f(a, b);
  }
}

/// True if lengths, keys, empty optionals (and the leaf types of dynamic nests) agree.
template <class T>
bool same_structure(const T& a, const T& b) {
  auto any = [](const auto&, const auto&) { return true; };
  return zip_leaves(a, b, any);
}

inline const char* leaf_name(const Tensor&) { return "tensor"; }
inline const char* leaf_name(const std::string&) { return "text"; }
inline const char* leaf_name(const IndexedSlices&) { return "indexed slices"; }
inline const char* leaf_name(const Gradient& g) { return g.has_value() ? "gradient" : "none"; }
template <class N>
requires(std::is_arithmetic_v<N>) const char* leaf_name(const N&) { return "number"; }

/// "{a: tensor, b: [number, number]}", for error texts.
template <class T>
std::string structure_text(const T& nest) {
  constexpr NestKind kind = nest_kind<T>();
  std::string out;
  const auto add = [&out](const std::string& part) { out += (out.empty() ? "" : ", ") + part; };
  if constexpr (kind == NestKind::kLeaf) {
    return leaf_name(nest);
  } else if constexpr (kind == NestKind::kTied) {
    std::apply([&](const auto&... member) { (add(structure_text(member)), ...); },
               members_of(nest));
    return "(" + out + ")";
  } else if constexpr (kind == NestKind::kMap) {
    for_each_entry(nest, [&](const std::string& key, const auto& part) {
      add(key + ": " + structure_text(part));
    });
    return "{" + out + "}";
  } else if constexpr (kind == NestKind::kOptional) {
    return nest ? structure_text(*nest) : "none";
  } else {
    if constexpr (kind == NestKind::kRange) {
      for (const auto& part : nest) add(structure_text(part));
    } else if constexpr (kind == NestKind::kWalked) {
      for_each_leaf(nest, [&](const auto& leaf) { add(leaf_name(leaf)); });
    }
    return "[" + out + "]";
  }
}

/// A nest without its static type, to compare it with that of another replica.
struct NestRef {
  struct Type {
    bool (*same_structure)(const void* a, const void* b);
    std::string (*text)(const void* nest);
  };
  template <class T>
  static constexpr Type kType = {
      [](const void* a, const void* b) {
        return values::same_structure(*static_cast<const T*>(a), *static_cast<const T*>(b));
      },
      [](const void* nest) { return structure_text(*static_cast<const T*>(nest)); }};
  template <class T>
  static NestRef of(const T& nest) {
    return {&kType<T>, &nest};
  }

  /// Two without a nest are alike.
  bool has_structure_of(const NestRef& other) const {
    return type == other.type && (type == nullptr || type->same_structure(nest, other.nest));
  }
  std::string text() const { return type == nullptr ? "tensors" : type->text(nest); }

  const Type* type = nullptr;
  const void* nest = nullptr;
};

/// One nest out of several of the same structure: each leaf is f(parts), with `parts` a
/// std::span<const Leaf* const> of that leaf in every nest, in order; f returns a Leaf.
/// Errors: InvalidArgument if there are no nests or their structures differ.
template <class T, class F>
T combine_leaves(std::span<const T> nests, F&& f) {
  COHORT_CHECK_ARG(!nests.empty(), "[nest] expected at least 1 value, got none");
  std::vector<std::vector<LeafRef>> leaves;
  for (std::size_t i = 0; i < nests.size(); ++i) {
    COHORT_CHECK_ARG(i == 0 || same_structure(nests[0], nests[i]),
                     "[nest] expected values of the same structure (lengths, keys, empty "
                     "optionals), got ",
                     structure_text(nests[0]), " at 0 and ", structure_text(nests[i]), " at ", i);
    leaves.push_back(leaf_refs(nests[i]));
  }
  T out = nests[0];
  std::size_t next = 0;
  for_each_leaf(out, [&]<class L>(L& leaf) {
    std::vector<const L*> parts;
    for (const std::vector<LeafRef>& all : leaves) {
      parts.push_back(static_cast<const L*>(all[next].leaf));
    }
    ++next;
    leaf = f(std::span<const L* const>(parts));
  });
  return out;
}

}  // namespace internal::values
}  // namespace cohort
