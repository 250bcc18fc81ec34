// SPDX-License-Identifier: Apache-2.0
//
// All parameter servers of a job, as a worker or the coordinator sees them: variables by name,
// whose rows lie on one server or several.
//
//   ParameterServers servers({ps0, ps1});
//   ParameterHandle table = servers.make_or_bind({.name = "table", .shape = {1000, 8}, .parts = 2},
//                                                make_part);
//   Tensor rows = servers.pull_rows(table, ids);
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cohort/coordinator/parameters/directory.h"
#include "cohort/coordinator/parameters/message.h"
#include "cohort/coordinator/parameters/stored_parameter.h"
#include "cohort/coordinator/parameters/transaction.h"
#include "cohort/rpc/client.h"
#include "cohort/values/indexed_slices.h"
#include "cohort/variables/id_table.h"
#include "cohort/variables/row_sum.h"

namespace cohort::internal::coordinator {

class CallNumbers;
class Calls;
class Drops;

/// What a shard of a table whose rows belong to ids knows of them.
struct ShardIds {
  variables::IdTable::Counts counts = {};
  std::vector<int64_t> map = {};      ///< variables::IdMap::save().
  std::vector<int64_t> numbers = {};  ///< StoredTable::numbers.
  std::vector<std::pair<std::string, uint64_t>> slot_sets = {};
};

/// A shard of a variable and the number by which its server knows it.
struct BoundShard {
  Shard place = {};
  uint64_t id = 0;
};

/// Where a variable is. Value.
struct ParameterHandle {
  std::string name = {};
  DType dtype = kFloat32;
  Shape shape = {};
  uint64_t generation = 0;              ///< Tells it from others that have had its name.
  std::vector<BoundShard> shards = {};  ///< In the order of their rows; at least one.

  int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  std::size_t row_bytes() const;
  /// Of so many rows: the shape of a pull.
  Shape shape_of_rows(int64_t rows) const;
  /// "table/part_1", or the name of a variable that is in one piece.
  std::string shard_name(std::size_t shard) const;
};

/// What a step that looks at a variable as a whole brings for all of its rows, contiguous.
struct WholePush {
  ParameterHandle variable = {};
  WholeStep step = {};
  variables::WholeGradient by = {};
};

struct ParameterServersOptions {
  /// Of one message; and what a process waits for a variable that another one is making.
  std::chrono::milliseconds timeout = std::chrono::minutes(1);
  /// Each server is a group of replicas, which answers again when another one leads it.
  bool are_groups = false;
};

/// Errors, of all: what a server threw, of its class; Unavailable and DeadlineExceeded that name
/// the server. Where a connection breaks, calls are sent again for half a second, and are done once
/// all the same. Order: what one thread has written it reads, and so does everybody from then on.
/// Threads: thread-safe.
class ParameterServers {
 public:
  /// All of the job's, by their indices.
  explicit ParameterServers(std::vector<std::shared_ptr<rpc::RpcClient>> servers,
                            ParameterServersOptions options = {});
  /// Blocks: until servers have heard what has been dropped, a few seconds at the most.
  ~ParameterServers();
  ParameterServers(const ParameterServers&) = delete;
  ParameterServers& operator=(const ParameterServers&) = delete;

  int count() const { return static_cast<int>(servers_.size()); }

  /// Where servers are groups of replicas: another coordinator has come, whose variables are other
  /// ones, but in a group whose began in the session `origin`. True: all did. It may be said again,
  /// and without an origin then. Blocks: until all groups are whole.
  /// Errors: FailedPrecondition where a newer one has come.
  bool begin(uint64_t session, uint64_t origin = 0);

  /// Finds the variable, or places and makes it: `make_part(rows, first)` gives so many rows of its
  /// first value, from `first` on. `made`: whether it was this call.
  /// Blocks: while another process is making it.
  /// Errors: FailedPrecondition for a variable of this name that is another one.
  ParameterHandle make_or_bind(Declaration what,
                               const std::function<Tensor(int64_t rows, int64_t first)>& make_part,
                               bool* made = nullptr);
  /// Errors: InvalidArgument if nobody has made it.
  ParameterHandle bind(const std::string& name);
  /// Does not wait. Whether servers have heard of it or not, nothing that this process makes from
  /// here on under the name meets its values.
  void drop(const ParameterHandle& variable);
  /// From here on servers hear of what is dropped only when this process goes on: it makes
  /// something, or says so by release_drops(). What it drops last they never hear of.
  void hold_drops();
  void release_drops();

  /// The value, or a slot.
  Tensor pull(const ParameterHandle& variable, const StoredPlace& place = {});
  /// The values, or slots, of several variables, asked for at once.
  std::vector<Tensor> pull_all(const std::vector<const ParameterHandle*>& variables,
                               const StoredPlace& place = {});
  Tensor pull_range(const ParameterHandle& variable, const StoredPlace& place, RowRange range);
  /// Each row travels once, however often it is named. Shapes: rows [n], checked; result [n,
  /// rest...].
  Tensor pull_rows(const ParameterHandle& variable, const Tensor& rows);
  /// `x` has the variable's shape and dtype. Returns the new value, if it is small; else nothing.
  Tensor write(const ParameterHandle& variable, const StoredPlace& place, variables::Write kind,
               const Tensor& x);
  /// Checked slices of the variable's dtype.
  void scatter(const ParameterHandle& variable, variables::Scatter kind,
               const IndexedSlices& slices);

  /// A number for a function that counts once: the one behind the last, so that what servers
  /// remember of them is few ranges, and above those of a process before this one, whose functions
  /// may still run: what they send is refused. Threads: thread-safe.
  uint64_t next_closure() { return ++last_closure_; }
  /// Another coordinator has had those up to there.
  void begin_closures_behind(uint64_t last);
  /// What was prepared of these functions is done on all servers, or is dropped; from here on their
  /// effects are refused, and so are those of functions before `floor`. It may be said again.
  /// `errors`: what a server has met in doing it, for each of them; what is there stays.
  /// Blocks: until all servers have said so. Errors: of a server that could not be reached.
  void settle(const std::vector<ClosureSettlement>& all, uint64_t floor,
              std::vector<std::exception_ptr>& errors);

  /// The variable's rows belong to ids from here on, each to those of its shard (shard_of_id).
  void make_table(const ParameterHandle& variable, const variables::IdTableOptions& whole);
  /// variables::IdTable. Errors: Unimplemented for see_ids() in this thread's Transaction.
  int64_t see_ids(const ParameterHandle& variable, std::span<const int64_t> ids,
                  std::span<const int64_t> counts, bool begins_step);
  variables::IdTable::Found pull_ids(const ParameterHandle& variable, std::span<const int64_t> ids);
  enum class IdsPart { kCounts, kRowNumbers, kAll };
  /// Of each shard, up to what is asked for. Errors: FailedPrecondition where somebody trains while
  /// all is read.
  std::vector<ShardIds> read_ids(const ParameterHandle& variable, IdsPart part);
  void restore_ids(const ParameterHandle& variable, const std::vector<ShardIds>& all);

  /// Without `forms` all are like the variable. One that is shared is there once for each shard.
  void make_slots(const ParameterHandle& variable, const std::string& set,
                  const std::vector<double>& initial, std::vector<variables::SlotForm> forms = {});
  /// Does not wait.
  void drop_slots(const ParameterHandle& variable, const std::string& set);

  /// A push has arrived, which `counter` counts: StoredParameter::count_push. Nothing: this
  /// thread's Transaction will say so.
  std::optional<PushCount> count_push(const ParameterHandle& counter, const PushStamp& stamp);
  /// Updates by now, of each of these. Unset: the counter has been dropped.
  std::vector<std::optional<uint64_t>> push_steps(const std::vector<ParameterHandle>& counters);
  /// No more pushes come: of those that wait each variable makes an update, and then `counter`
  /// counts it, if any of its do. Returns how many there are by now.
  uint64_t complete_update(const std::vector<ParameterHandle>& variables, const std::string& set,
                           const ParameterHandle& counter);

  /// The first phase of steps that look at variables as a whole (variables/whole_step.h): sums over
  /// all rows of each, asked for at once, and added in the order of the rows. Nothing is written.
  /// What others push before the second phase (Push::whole) is not in them: the step is scaled by
  /// what was there, and is applied to what is there.
  std::vector<variables::WholeSums> sums(const std::vector<WholePush>& all);

  /// Gradients of one step, sent at once to all servers that have a part of them.
  class Push {
   public:
    explicit Push(ParameterServers& servers);
    ~Push();
    Push(const Push&) = delete;
    Push& operator=(const Push&) = delete;
    /// Has the variable's shape and dtype, is contiguous, and stays as it is until wait().
    void dense(const ParameterHandle& variable, const UpdateStep& step, const Tensor& gradient);
    /// Only these rows. others_too: what a gradient of zero does happens to the others.
    void rows(const ParameterHandle& variable, const UpdateStep& step,
              const variables::RowSum& gradient, bool others_too);
    /// Of these ids, each once. Errors: InvalidArgument for more of a shard than a message holds,
    /// where others_too; Unimplemented in this thread's Transaction.
    void ids(const ParameterHandle& variable, const UpdateStep& step,
             const variables::RowSum& gradient, bool others_too);
    /// By the rule as it is: as it is sent it has all its numbers.
    void whole(const WholePush& all);
    /// Ahead of the first accumulate(): one that is refused behind others would leave theirs in the
    /// sums. Errors: InvalidArgument for more of a shard than a message holds.
    static void check(const ParameterHandle& variable);
    static void check(const ParameterHandle& variable, const variables::RowSum& gradient);
    /// The same as parts of an update that several pushes make together (push_sum.h), checked.
    void accumulate(const ParameterHandle& variable, const UpdateStep& step, const PushStamp& stamp,
                    const Tensor& gradient);
    void accumulate_rows(const ParameterHandle& variable, const UpdateStep& step,
                         const PushStamp& stamp, const variables::RowSum& gradient,
                         bool others_too);
    /// Until all servers have applied them. Errors: the first server's.
    void wait();
    /// Behind wait(): of how many parts servers have said that they came too late to count.
    int late_parts() const;

   private:
    struct Impl;
    const std::unique_ptr<Impl> impl_;
  };

 private:
  rpc::RpcClient& at(const BoundShard& shard) {
    return *servers_[static_cast<std::size_t>(shard.place.server)];
  }
  CallNumbers& numbers_at(const BoundShard& shard) {
    return *numbers_[static_cast<std::size_t>(shard.place.server)];
  }
  /// Now, or when this thread's Transaction counts: `take` is not called then.
  void change(Calls& calls, const BoundShard& shard, const char* method,
              const rpc::Payload& request,
              const std::function<void(const rpc::Payload&)>& take = {});
  void pull_distinct(const ParameterHandle& variable, std::span<const int64_t> rows, std::byte* to);
  Tensor start_pull(Calls& calls, const ParameterHandle& variable, const StoredPlace& place,
                    RowRange range);
  /// Waits for a server that does not answer.
  rpc::Payload call(int server, const char* method, const rpc::Payload& request);
  rpc::Payload call_once(int server, const char* method, const rpc::Payload& request);
  void bind_shards(ParameterHandle& variable);
  void make_shard(const ParameterHandle& variable, std::size_t index,
                  const std::function<Tensor(int64_t, int64_t)>& make_part, BoundShard& shard);

  const std::vector<std::shared_ptr<rpc::RpcClient>> servers_;
  const std::vector<std::unique_ptr<CallNumbers>> numbers_;  // by server
  const ParameterServersOptions options_;
  const std::unique_ptr<Drops> drops_;
  std::atomic<uint64_t> last_closure_;
};

}  // namespace cohort::internal::coordinator
