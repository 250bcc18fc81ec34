// SPDX-License-Identifier: Apache-2.0
//
// One restore: sets the values that are there, and waits for those that objects make later.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/checkpoint/internal/object_graph.h"
#include "cohort/checkpoint/internal/saved_values.h"

namespace cohort::internal::checkpoint {

/// Objects that may still grow own it (TrackedObject::wait_for) until the last value has come.
class RestoreSession : public std::enable_shared_from_this<RestoreSession> {
 public:
  /// `source`: the checkpoint's path, for texts.
  RestoreSession(Roots roots, SavedValues saved, std::string source, bool allow_partial);

  /// Sets all values that are there; objects that may grow wait for the rest.
  /// Errors: InvalidArgument that lists what does not agree; nothing was set then.
  void match_now();
  /// The same for values that have come since.
  void match_later();

  /// The saved values that nothing has taken yet, by all their paths.
  std::map<std::string, Tensor> waiting() const;
  /// The one that will be the value `name` of an object that may still grow; undefined: none.
  Tensor waiting_value(const TrackedObject& object, const std::string& name) const;
  /// Paths of what was there to be set, and was not saved.
  std::vector<std::string> not_saved() const;
  const std::string& source() const { return source_; }

 private:
  struct Pair {
    const LiveValue* live;
    Tensor saved;
  };
  void match(bool first) COHORT_REQUIRES(mutex_);
  std::vector<Pair> pairs_of(const ObjectGraph& graph, bool first,
                             std::vector<std::string>& differences) const COHORT_REQUIRES(mutex_);
  void compare(const LiveValue& live, const Tensor& saved,
               std::vector<std::string>& differences) const COHORT_REQUIRES(mutex_);
  void find_leftovers(const ObjectGraph& graph, const std::vector<Pair>& pairs,
                      std::vector<std::string>& differences) const COHORT_REQUIRES(mutex_);
  void take(const LiveValue& live) COHORT_REQUIRES(mutex_);
  void drop_aliases(const ObjectGraph& graph, const std::set<const void*>& taken)
      COHORT_REQUIRES(mutex_);
  void attach(const ObjectGraph& graph, bool first) COHORT_REQUIRES(mutex_);
  bool has_saved_below(const std::string& path) const COHORT_REQUIRES(mutex_);
  bool is_done(const LiveValue& live) const COHORT_REQUIRES(mutex_);
  /// Whether `path` belongs to an object that might not have had it yet when it was saved.
  bool may_be_new(const std::string& path) const;

  const Roots roots_;
  const std::string source_;
  const bool allow_partial_;
  const std::set<std::string> unfinished_;

  mutable base::Mutex mutex_;
  std::map<std::string, Tensor> saved_ COHORT_GUARDED_BY(mutex_);  // by every path
  std::vector<std::string> not_saved_ COHORT_GUARDED_BY(mutex_);
  std::set<std::string> done_ COHORT_GUARDED_BY(mutex_);  // live paths that have been seen to
};

}  // namespace cohort::internal::checkpoint
