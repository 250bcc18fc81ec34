// SPDX-License-Identifier: Apache-2.0
//
// Which variables a job's parameter servers have, and where: the first server keeps it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/rpc/wire.h"
#include "cohort/runtime/tensor.h"

namespace cohort::internal::coordinator {

/// Rows of a variable on one server. A number alone is one row.
struct Shard {
  int server = 0;
  int64_t first = 0;
  int64_t rows = 0;
  bool operator==(const Shard&) const = default;
};

/// What somebody asks for.
struct Declaration {
  std::string name = {};
  DType dtype = kFloat32;
  Shape shape = {};
  int64_t parts = 1;
  std::optional<int> server = {};  ///< Beside another variable: all of it there.
  int servers = 1;
  /// The one of this name that who asks has ended, and all before it, are there no more, whatever
  /// has become of the messages that said so.
  uint64_t ended = 0;
};

/// Threads: thread-safe.
class Directory {
 public:
  struct Found {
    bool is_new = false;      ///< Who asked has to make it.
    uint64_t generation = 0;  ///< Tells the variable from others that have had its name.
    std::vector<Shard> shards = {};
  };
  /// Finds the variable, or places it: the shards on one server after the other, from the one
  /// behind that of the variable before. Errors: InvalidArgument for a declaration that makes no
  /// sense; FailedPrecondition for a
  ///         variable of this name that has another shape or dtype.
  Found find_or_place(const Declaration& asked);
  /// Errors: InvalidArgument if there is none.
  Declaration find(const std::string& name, Found* found) const;
  /// Unless another one has its name by now.
  void forget(const std::string& name, uint64_t generation);
  void clear();

  void save(rpc::MessageWriter& out) const;
  /// What save() has written, instead of what there is. Errors: DataLoss.
  void load(rpc::MessageReader& in);

 private:
  struct Entry {
    Declaration what;
    uint64_t generation = 0;
    std::vector<Shard> shards;
  };
  mutable base::Mutex mutex_;
  std::map<std::string, Entry> entries_ COHORT_GUARDED_BY(mutex_);
  uint64_t placed_ COHORT_GUARDED_BY(mutex_) = 0;
  uint64_t generations_ COHORT_GUARDED_BY(mutex_) = 0;  // never less, also behind clear()
};

}  // namespace cohort::internal::coordinator
