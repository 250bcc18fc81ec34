// SPDX-License-Identifier: Apache-2.0
//
// Every difference between the LibTorch versions that Cohort builds with.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/headeronly/version.h>

#if __has_include(<ATen/NodeCreationHooks.h>)
#include <ATen/NodeCreationHooks.h>
#endif

#include <memory>

namespace torch::autograd {
struct Node;
void deleteNode(Node* function);  // of older versions
}  // namespace torch::autograd

namespace cohort::internal::runtime {

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 12)
/// How LibTorch owns an autograd node: intrusive in newer versions, std::shared_ptr in older.
template <class T>
using GraphNodePtr = c10::intrusive_ptr<T>;
template <class T, class... A>
GraphNodePtr<T> make_node(A&&... args) {
  return c10::make_intrusive<T>(std::forward<A>(args)...);
}
/// Another owner of a node that is owned already.
template <class T>
GraphNodePtr<T> owner_of(T* node) {
  return GraphNodePtr<T>::reclaim_copy(node);
}
#else
template <class T>
using GraphNodePtr = std::shared_ptr<T>;
template <class T, class... A>
GraphNodePtr<T> make_node(A&&... args) {
  return std::shared_ptr<T>(new T(std::forward<A>(args)...), torch::autograd::deleteNode);
}
template <class T>
GraphNodePtr<T> owner_of(T* node) {
  return std::static_pointer_cast<T>(node->shared_from_this());
}
#endif

/// Whether a thread has hooks on the nodes that it makes; older versions have no such hooks.
inline bool has_node_creation_hooks() {
#if __has_include(<ATen/NodeCreationHooks.h>)
  return !at::impl::NodeCreationHooks::empty();
#else
  return false;
#endif
}

/// A flag of c10::AutogradState that older versions do not have.
template <class State>
bool enforces_grad_layout(const State& state) {
  if constexpr (requires { state.get_grad_layout_enforcement_enabled(); }) {
    return state.get_grad_layout_enforcement_enabled();
  } else {
    return false;
  }
}

}  // namespace cohort::internal::runtime
