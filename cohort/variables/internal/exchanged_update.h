// SPDX-License-Identifier: Apache-2.0
//
// A fused update with several workers. Every worker updates a slice of every run:
//
//   local replicas sum their gradients | slices travel | the rule, on the own slice, beside the
//   live one | new parameters travel | commit | they become live
//
// Workers add in rank order what each has added in the order of its replicas, so the bits depend on
// their numbers alone; W workers of one replica have those of one process with W replicas. Slots
// exist for the own slice only. Where workers share memory, nothing is sent: gradients and new
// parameters are read where the others have them: gradients of a worker's only replica where its
// backward pass has left them, if that is its arena (exchanged_loans.cc).
// Gradients go in buckets of limited bytes, each as
// soon as the local replicas have summed it; where a step says before its backward pass that it
// will apply what comes out of it (expect()), while the pass still runs.
// They may be rounded for their way (rounded_gradients.h).
//
// Where the others cannot read them in place, new parameters travel during that pass, too: when the
// gradients of a turn (departures.h) have come from all workers, it is updated, and its parameters
// leave, by a place in the order of operations that was reserved, for on another worker they may
// leave sooner or later. It is expected then that all workers bring what they brought in the step
// before; where that was wrong, which all see alike behind the pass, all turns are updated again.
// Whoever announces a gradient moves bytes, and between two of them a thread that looks every
// millisecond (progress_thread.h), so that a link is busy however long a layer computes.
//
// Of a table whose gradient is rows only these travel, and the new values of them
// (exchanged_rows.h). Until a step has shown which tables these are, they travel whole, to no end.
//
// A step is whole or was not: the rule writes parameters and slots beside the live ones, and these
// become live behind Communicator::commit, by what cannot fail.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cohort/collectives/communicator.h"
#include "cohort/variables/final_gradients.h"
#include "cohort/variables/internal/clipped_update.h"
#include "cohort/variables/internal/departures.h"
#include "cohort/variables/internal/exchanged_rows.h"
#include "cohort/variables/internal/progress_thread.h"
#include "cohort/variables/internal/rounded_gradients.h"
#include "cohort/variables/internal/slice_image.h"
#include "cohort/variables/internal/worker_agreement.h"

namespace cohort::internal::variables {

/// Calls body, which is an update: what it throws on one worker all workers throw, with where it
/// came from. What only follows another local replica's failure is thrown as it is.
void guard_update(collectives::Communicator& communicator, base::FunctionRef<void()> body);

constexpr const char* kApplyGradients = "optimizer.apply_gradients";

/// Threads: run() on all local replicas' threads at once, on all workers.
class ExchangedUpdate final : public FinalGradients {
 public:
  ExchangedUpdate(const UpdateLayout& layout, const UpdaterOptions& options,
                  std::shared_ptr<collectives::Communicator> communicator);

  /// As Updater::expect_gradients(). `stamp`: tells passes apart, the same on all replicas.
  FinalGradients* expect(int replica, uint64_t stamp, base::FunctionRef<RuleOfStep()> rule);
  void on_final(Component& leaf, const Tensor& gradient) override;
  void on_over() noexcept override;
  void on_failure(const std::exception_ptr& error) noexcept override;

  /// Order: an operation of the communicator; replica 0 calls it.
  /// Errors: whatever fails on any worker, on all workers alike, with nothing written.
  void run(Posts posts, int replica, runtime::ReplicaGroup* group, const update_rules::Rule& rule,
           double weight_decay);
  /// Whether the last run() changed a variable: some worker had a gradient of it.
  bool has_changed(std::size_t variable) const { return agreement_.is_present(variable); }

  /// Order: an operation of the communicator. Cross-replica.
  Tensor read_slot(std::size_t variable, int slot);
  /// As Updater::slot_pieces(). Cross-replica.
  std::vector<TrackedPiece> slot_pieces(std::size_t variable, int slot) const;
  /// The same value on every worker. Cross-replica.
  void write_slot(std::size_t variable, int slot, const Tensor& value);

 private:
  using Memory = std::shared_ptr<std::byte>;
  using Seen = std::vector<collectives::ConstBytes>;  // [bucket][worker]
  using Sources = UpdateRun::Sources;
  struct Step {
    Posts posts;
    int replica;
    runtime::ReplicaGroup* group;
    const update_rules::Rule& rule;
    double weight_decay;
    std::optional<std::size_t> turns_left;        // during the pass; unset: it was not expected
    std::optional<std::size_t> turns_ahead = {};  // are updated already; unset: none goes ahead
    bool leads() const { return replica == 0; }
    void meet() const;
  };
  // What is updated while a pass goes on.
  struct Ahead {
    RuleOfStep by;
    uint64_t first_place = 0;  // of gradients and parameters of each bucket
    std::size_t turns = 0;     // so many,
    std::vector<collectives::Communicator::Pending> parameters = {};  // [bucket] of them
  };
  struct OperationCount {
    uint64_t generation = 0;
    uint64_t operations = 0;
  };
  // What replica 0 has under way.
  struct Flight {
    collectives::Communicator::Pending agreement = {};
    std::vector<collectives::Communicator::Pending> gradients = {};   // [bucket]
    std::vector<collectives::Communicator::Pending> parameters = {};  // [bucket]
  };

  void exchange_gradients(const Step& step, Flight& flight);
  void update_slices(const Step& step, Flight& flight);
  void update_turn(const Step& step, Flight& flight, std::size_t turn);
  void update_again(Step step, Flight& flight);
  void move_on();
  void move_on_beside();
  void leave_in_turn();
  void leave(std::size_t turn);
  void go_ahead();
  /// Whose place in the order of operations is reserved, if any is.
  std::optional<uint64_t> place_of(std::size_t bucket, bool of_parameters, bool is_ahead) const;
  void take_over(const Step& step, Flight& flight);
  void conclude_departures();
  void pack(const Step& step, std::size_t bucket);
  void pack_for(std::size_t worker, Posts posts, Range bytes);
  void find_loans(Posts posts, std::size_t turn);
  const std::byte* gradients_in_a_row(const Post& post, std::size_t worker, Range bytes) const;
  const std::byte*& loan(std::size_t bucket, std::size_t worker) {
    return loans_[bucket * sent_.size() + worker];
  }
  void sum(Posts posts, const UpdateRun& run, Range elements, std::byte* out) const;
  bool has_own_in_place(const Step& step) const;
  collectives::Communicator::Pending send(std::size_t bucket, bool is_ahead);
  void receive(collectives::Communicator::Pending& gradients, std::size_t bucket);
  std::span<collectives::ConstBytes> seen(Seen& all, std::size_t bucket) const;
  /// Every worker has every gradient at its place: whole runs are updated at once.
  bool is_full() const { return agreement_.full() && rows_.empty(); }
  NormBlocks* norm_blocks();
  void share_norms(const Step& step);
  void square_own_blocks(const Step& step, NormBlocks& blocks);
  void set_scales();
  void update(const Step& step, Range bytes);
  void update_rows(const Step& step);
  void update_beside(const Step& step, std::size_t run, Range elements, std::size_t at);
  void update_copy(const Step& step, std::size_t run, Range elements, std::size_t at);
  void copy_parameters(const Step& step, std::size_t run, Range elements, std::size_t at);
  RangeUpdate copies_at(std::size_t run, Range elements, const Sources& sources,
                        std::size_t at) const;
  void apply_rule(const Step& step, const UpdateRun& run, const RangeUpdate& call,
                  double scale) const;
  Sources sources(const Step& step, std::size_t run, std::size_t element,
                  const std::size_t* variable) const;
  collectives::Communicator::Pending gather(std::size_t bucket, bool is_ahead);
  void find_parameters(Flight& flight);
  void adopt(const Step& step);

  void make_slots(std::size_t count);
  void cut_buckets();
  void note_rows();
  std::size_t buckets() const { return buckets_; }
  std::size_t turns() const { return first_buckets_.size() - 1; }
  Range bucket_of(const std::vector<Range>& buckets, std::size_t bucket) const {
    return bucket < buckets.size() ? buckets[bucket] : Range{};
  }
  /// Elements of the variable's run that a worker has slots of.
  Range slot_part(std::size_t variable, int worker) const;
  std::byte* slot_data(int slot, int set) const;
  std::byte* slot_place(int slot, int set, std::size_t run, std::size_t element) const;
  std::byte* fresh(int worker) const;

  const UpdateLayout& layout_;
  const UpdaterOptions options_;
  const std::shared_ptr<collectives::Communicator> communicator_;
  const int worker_;
  const int workers_;
  const std::size_t bucket_bytes_;  // to or from one worker
  const WorkerShares shares_;
  std::vector<SliceImage> sent_;  // [worker]: gradients, with what its blocks of norms need
  std::vector<SliceImage> kept_;  // [worker]: parameters and slots
  std::vector<std::vector<Range>> sent_buckets_;  // [worker]: what travels of sent_
  std::vector<std::vector<Range>> kept_buckets_;  // [worker]: and of kept_
  std::size_t buckets_ = 0;
  std::vector<std::size_t> first_buckets_;  // [turn]; then buckets_. See Departures.

  // Written by local replicas in parts, or by replica 0; meetings stand in between. What is lent to
  // other workers is written again only behind the commit of its step (gradients), or the gradients
  // of the next one (parameters): they have read it by then.
  Memory send_;                                // sent_ of all workers, one behind the other
  std::vector<std::byte*> to_;                 // [worker], in send_
  std::vector<const std::byte*> loans_;        // [bucket][worker]: instead of to_; null: in to_
  Memory receive_;                             // of each other worker what sent_ has of this one
  std::vector<std::byte*> into_;               // [worker], in receive_
  std::vector<const std::byte*> from_;         // [worker]: where its gradients can be read
  std::unique_ptr<RoundedGradients> rounded_;  // what travels instead; null: gradients as they are
  Memory fresh_;                               // new parameters: kept_ of all workers
  std::vector<const std::byte*> fresh_at_;     // [worker]: where they can be read
  Seen gradients_seen_;
  Seen parameters_seen_;
  std::array<std::vector<Memory>, 2> slots_;  // [set][slot], as kept_ of this worker
  int live_ = 0;                              // the set of slots that counts
  WorkerAgreement agreement_;
  ExchangedRows rows_;
  std::vector<bool> by_rows_;  // [variable]: not in the buckets; the same on every worker
  Departures departures_;
  std::vector<collectives::Communicator::Pending> left_;  // by whose turn it is; then replica 0's
  std::optional<Ahead> ahead_ = {};                       // so is this
  const bool can_go_ahead_;
  bool may_leave_ = false;  // by replica 0, between meetings; as the rest:
  bool goes_ahead_ = false;
  std::optional<OperationCount> before_pass_ = {};
  uint64_t operations_at_run_ = 0;
  std::size_t operations_in_pass_ = 0;  // of departures
  std::unique_ptr<NormBlocks> of_runs_;
  std::unique_ptr<NormBlocks> of_variables_;
  double scale_ = 1;            // global_clipnorm
  std::vector<double> scales_;  // [variable]: clipnorm

  using Clock = std::chrono::steady_clock;
  Clock::time_point pass_began_ = {};  // by replica 0; so is
  Clock::duration pass_took_ = {};     // the last one
  // Last: its thread uses the rest.
  const std::shared_ptr<ProgressThread> progress_;
};

}  // namespace cohort::internal::variables
