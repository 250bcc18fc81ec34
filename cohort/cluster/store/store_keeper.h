// SPDX-License-Identifier: Apache-2.0
//
// The process that keeps a job's store: its state, and the thread that ends waits and leases.
#pragma once

#include <functional>
#include <memory>

#include "cohort/cluster/store/store.h"

namespace cohort::internal::cluster {

/// Threads: thread-safe.
class StoreKeeper {
 public:
  using Answer = std::function<void(const StoreReply&)>;
  StoreKeeper();
  /// Does not end while a store() of it lives.
  ~StoreKeeper();
  StoreKeeper(const StoreKeeper&) = delete;
  StoreKeeper& operator=(const StoreKeeper&) = delete;

  /// `answer` is called once, on any thread, perhaps before ask() returns. Blocks: never.
  void ask(const StoreRequest& request, Answer answer);
  /// From here on everybody who asks or waits gets Unavailable with this text.
  void close(const std::string& why);
  /// Asks it as its keeper, who is no task.
  std::shared_ptr<Store> store() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace cohort::internal::cluster
