// SPDX-License-Identifier: Apache-2.0
//
// Where the elements of a pass are kept for later ones and other processes: cache(file), snapshot.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cohort/data/core/internal/dataset_node.h"

namespace cohort::internal::data {

/// The elements of one pass on their way to a store; the destructor leaves nothing of them.
class ElementSink {
 public:
  virtual ~ElementSink() = default;
  virtual void write(const Element& element) = 0;
  /// After the last one: from now on, the store has them. Errors: Error with the system's text.
  virtual void commit() = 0;
};

struct StoredElements {
  NodePtr dataset;  ///< Null: nothing is stored.
  std::string id;   ///< Of the pass that wrote them.
};

/// Threads: thread-safe.
class ElementStore {
 public:
  virtual ~ElementStore() = default;
  /// Errors: InvalidArgument if it was another pipeline's.
  virtual StoredElements find() const = 0;
  /// Errors: Error kAlreadyExists if another pass writes and only one can.
  virtual std::unique_ptr<ElementSink> begin() const = 0;
};

/// One file, written by one pass at a time, for the elements of `input`.
std::unique_ptr<const ElementStore> make_file_store(std::string path, NodePtr input);

/// The store of what `input` reads: another input has other elements.
using MakeElementStore = std::function<std::unique_ptr<const ElementStore>(const NodePtr& input)>;

struct StoredParams {
  std::string operation;
  MakeElementStore make_store;
  ShareOf share_of = ShareOf::kOutput;
};
/// Reads what the store has, else hands on its input's elements and stores a pass that is complete.
/// A pass that was restored in the middle stores nothing.
Dataset with_store(const NodePtr& input, StoredParams params);

}  // namespace cohort::internal::data
