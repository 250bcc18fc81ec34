// SPDX-License-Identifier: Apache-2.0
//
// The variables of a strategy whose parameters are on servers.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/coordinator/internal/sync_pushes.h"
#include "cohort/coordinator/parameters/parameter_servers.h"
#include "cohort/coordinator/partitioners.h"
#include "cohort/variables/id_table.h"
#include "cohort/variables/local_variables.h"
#include "cohort/variables/parameter_store.h"

namespace cohort::internal::coordinator {

class RemoteVariable;

struct RemoteVariablesOptions {
  std::shared_ptr<ParameterServers> servers = {};
  Partitioner partitioner = {};  ///< Null: no variable is cut.
  /// This worker's number; unset in the coordinator, whose variables end with their last handle,
  /// and which may give two variables one name: the second one gets another.
  std::optional<int> worker = {};
  int workers = 1;
  /// In the coordinator: whether it goes on with another one's, and those that it finds are its
  /// own.
  bool is_resumed = false;
  SyncPushes sync_pushes = {};
  std::string owner = "no strategy";  ///< For error texts.
};

/// How many updates an optimizer had made, as this process has last asked before it read weights.
struct SeenUpdates {
  ParameterHandle counter = {};
  std::vector<ParameterHandle> variables = {};  ///< That it trains.
  std::string slots = {};                       ///< Its name for what they have of it.
  std::atomic<uint64_t> step = 0;
};

/// Threads: thread-safe.
class RemoteVariables final : public variables::ParameterStore,
                              public variables::IdTableStore,
                              public std::enable_shared_from_this<RemoteVariables> {
 public:
  explicit RemoteVariables(RemoteVariablesOptions options);

  /// Makes the variable on the servers, or finds the one of this name that another process has
  /// made. What is summed on read (metrics) is this process's own.
  /// Errors: as ParameterServers::make_or_bind; InvalidArgument for options that make no sense, and
  ///         in a worker for a variable without a name.
  std::shared_ptr<variables::VariableImpl> create(const InitialValue& initial,
                                                  const VariableOptions& options) override;
  /// The same in one piece on that server.
  std::shared_ptr<variables::VariableImpl> create_beside(int server, const InitialValue& initial,
                                                         const VariableOptions& options);
  /// One that somebody has made. Errors: InvalidArgument if nobody has.
  Variable bind(const std::string& name, bool trainable = true);
  /// Errors: InvalidArgument for variables of others, frozen ones, one listed twice, and a dtype
  ///         other than float32, float64, float16 and bfloat16; Unimplemented as the text says.
  std::shared_ptr<variables::Updater> make_updater(std::vector<Variable> variables,
                                                   variables::UpdaterOptions options) override;
  /// The same; Unimplemented with sync_replicas, where nobody has the sum of the gradients to take
  /// statistics of.
  std::shared_ptr<variables::WholeUpdater> make_whole_updater(
      std::vector<Variable> variables, const std::string& optimizer,
      std::vector<std::vector<variables::SlotForm>> forms) override;
  std::string owner() const override { return options_.owner; }
  bool is_remote() const override { return true; }
  bool aggregates_pushes(const Variable& variable) const override {
    return options_.sync_pushes.is_on() && variable.impl().remote() != nullptr;
  }
  void complete_updates(const Variable& iterations) override;
  /// Errors: Unimplemented where this thread has a Transaction (transaction.h).
  void check_reads_behind_writes(const std::string& operation,
                                 const std::string& what) const override;
  variables::IdTableStore* id_tables() override { return this; }
  bool renews_rows(const Variable& variable) const override;
  /// Errors: Unimplemented with sync_replicas, and for variables that are a process's own.
  std::shared_ptr<variables::IdTable> table_of(const Variable& rows,
                                               const variables::IdTableOptions& options,
                                               const char* why) override;

  ParameterServers& servers() { return *options_.servers; }
  const RemoteVariablesOptions& options() const { return options_; }
  bool is_coordinator() const { return !options_.worker.has_value(); }

  /// From here on variables are read anew, also those that a pass that somebody keeps has used.
  /// Those that the pass before has read are asked for, all at once.
  void begin_pass();
  /// The pass reads this variable as a whole.
  void note_read(const RemoteVariable& variable);
  uint64_t pass() const { return pass_.load(std::memory_order_relaxed); }

  /// While it lives, this thread's reads of a variable give what the first one gave.
  /// Errors: InvalidArgument inside another one.
  std::shared_ptr<void> cache_reads();
  /// Whether this thread has read the variable since its cache began; remembers that it has.
  bool is_cached(const variables::VariableImpl& variable, bool remember) const;

  /// What makes variables on the server of this one, in one piece.
  std::shared_ptr<variables::VariableCreator> beside(const Variable& variable);

  /// Of updates that `counter` counts (StoredParameter::count_push); from here on each pass asks
  /// anew, before it reads weights.
  std::shared_ptr<SeenUpdates> follow_updates(const ParameterHandle& counter,
                                              std::vector<ParameterHandle> variables,
                                              std::string slots);

  /// Under which an optimizer's slots are kept: in the coordinator one that no living one has.
  std::string take_slots_name(const std::string& optimizer);
  void free_slots_name(const std::string& name);
  void free_name(const std::string& name);

 private:
  std::vector<std::shared_ptr<SeenUpdates>> followed();
  void see_updates();
  /// Under which a variable is made: in the coordinator one that no living one has.
  std::string name_of(const VariableOptions& options);
  static std::string take_name(std::set<std::string>& taken, const std::string& name);
  std::shared_ptr<variables::VariableImpl> create_at(std::optional<int> server,
                                                     const InitialValue& initial,
                                                     const VariableOptions& options);
  std::shared_ptr<RemoteVariable> make(std::optional<int> server, const std::string& name,
                                       const InitialValue& initial, const VariableOptions& options);

  const RemoteVariablesOptions options_;
  const std::shared_ptr<variables::LocalVariables> local_;
  std::atomic<uint64_t> pass_ = 1;
  base::Mutex mutex_;
  std::vector<std::weak_ptr<variables::VariableImpl>> read_
      COHORT_GUARDED_BY(mutex_);                                                // in this pass
  std::set<const variables::VariableImpl*> is_read_ COHORT_GUARDED_BY(mutex_);  // the same
  std::vector<std::weak_ptr<SeenUpdates>> followed_ COHORT_GUARDED_BY(mutex_);
  std::set<std::string> names_ COHORT_GUARDED_BY(mutex_);
  std::set<std::string> slot_names_ COHORT_GUARDED_BY(mutex_);
};

/// While it lives, this thread reads what the servers have now, also where reads are cached.
class [[nodiscard]] WithoutReadCache {
 public:
  WithoutReadCache();
  ~WithoutReadCache();
  WithoutReadCache(const WithoutReadCache&) = delete;
  WithoutReadCache& operator=(const WithoutReadCache&) = delete;

 private:
  void* const before_;
};

}  // namespace cohort::internal::coordinator
