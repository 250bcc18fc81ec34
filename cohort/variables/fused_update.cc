// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/fused_update.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/cross_device_ops/cross_device_ops.h"
#include "cohort/runtime/float_mode.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/internal/clipped_update.h"
#include "cohort/variables/internal/exchanged_update.h"
#include "cohort/variables/internal/post.h"
#include "cohort/variables/internal/summed_gradients.h"
#include "cohort/variables/internal/update_layout.h"
#include "cohort/variables/local_variables.h"
#include "cohort/variables/recorded_rule.h"

namespace cohort::internal::variables {

using update_rules::Rule;

namespace {

// A post is never written while another replica still reads it: an update passes at most two
// meetings before its last read, so if the next one's stamp is not one or two higher, all have met
// since.
constexpr uint64_t kPostSets = 3;

runtime::ReplicaGroup* meeting_group() {
  runtime::ReplicaGroup* group = runtime::current_replica_group();
  return group != nullptr && group->size() > 1 ? group : nullptr;
}

}  // namespace

class FusedUpdate::State {
 public:
  State(std::vector<Variable> variables, UpdaterOptions options)
      : layout(std::move(variables), options),
        update_(layout, std::move(options)),
        writer_(layout, update_.options()) {
    const auto replicas = static_cast<std::size_t>(layout.replicas());
    posts_.assign(kPostSets * replicas, Post(layout.variables().size()));
    own_posts_.assign(replicas, Post(layout.variables().size()));
    updates_.assign(replicas, 0);
    if (layout.communicator() == nullptr) return;
    if (layout.is_staged()) {
      summed_ = std::make_unique<SummedGradients>(layout, *layout.communicator());
      return;
    }
    exchange_ = std::make_unique<ExchangedUpdate>(layout, update_.options(), layout.communicator());
  }

  /// What apply() does here.
  void apply_any(const Gradients& gradients, const Rule& rule, double weight_decay);

  void apply(const Gradients& gradients, const Rule& rule, double weight_decay);
  /// The same, with other workers, each of which has a part of the slots.
  void apply_exchanged(const Gradients& gradients, const Rule& rule, double weight_decay);
  void apply_reduced(const Gradients& gradients, const Rule& rule, double weight_decay,
                     CrossDeviceOps& ops);
  /// With other workers, where every replica has slots of its own.
  void apply_summed(const Gradients& gradients, const Rule& rule, double weight_decay);
  void apply_own(const Gradients& gradients, const Rule& rule, double weight_decay);

  void check_context() const;
  FinalGradients* expect_gradients(base::FunctionRef<RuleOfStep()> rule);

  void note_update() { ++updates_[place_of(current_replica())]; }
  int64_t updates(int replica) const { return updates_[place_of(replica)]; }
  void renew_rows(std::size_t variable, const Tensor& rows) {
    layout.fill_slot_rows(variable, rows, update_.options().slot_initial);
  }

  /// Null: one worker, or replicas have slots of their own.
  ExchangedUpdate* exchange() const { return exchange_.get(); }

  UpdateLayout layout;

 private:
  std::size_t place_of(int replica) const {
    return std::min(static_cast<std::size_t>(std::max(0, replica)), updates_.size() - 1);
  }
  using Step = PostWriter::Step;
  /// This replica's post at its place and all replicas' at the meeting.
  Posts meet(const Gradients& gradients, const Step& step, runtime::ReplicaGroup* group,
             int replica);
  static void check_posts(Posts posts, int replica);
  void bump_version(std::size_t variable, int replica);
  void bump_versions(Posts posts, int replica);
  void forget_copies(Posts posts, int replica);
  /// Under the sharded schedule: makes the copies whole. True if nobody reads posts any more.
  bool finish(Posts posts, int replica, runtime::ReplicaGroup* group);
  void push_own_slice(Posts posts, int replica);
  void push(const UpdateRun& run, Range range, int replica);
  void push_rows(Posts posts, const UpdateRun& run, std::size_t variable, Range range, int replica);
  void split_slots();
  void gather_slots();
  /// What this replica brings to what workers exchange where a user's ops add up the replicas'
  /// gradients: replica 0 has their sums and the others nothing.
  Gradients reduced_by(CrossDeviceOps& ops, const Gradients& gradients) const;

  ClippedUpdate update_;
  const PostWriter writer_;
  std::unique_ptr<ExchangedUpdate> exchange_;  // null: one worker, or replicas have own slots
  std::unique_ptr<SummedGradients> summed_;    // several workers whose replicas have own slots
  std::vector<Post> posts_;                    // [stamp % kPostSets][replica]
  std::vector<Post> own_posts_;                // [replica]
  std::vector<int64_t> updates_;               // [replica], each counts its own
  uint64_t expected_ = 0;                      // passes, where replicas do not count meetings
};

// A pass is told from others by what the replicas have counted alike before it.
FinalGradients* FusedUpdate::State::expect_gradients(base::FunctionRef<RuleOfStep()> rule) {
  const bool in_place = exchange_ != nullptr && layout.cross_device_ops() == nullptr;
  if (!in_place || current_replica() < 0 || current_replica_count() != layout.replicas()) {
    return nullptr;
  }
  runtime::ReplicaGroup* const group = meeting_group();
  const int replica = group != nullptr ? current_replica() : 0;
  return exchange_->expect(replica, group != nullptr ? group->epoch(replica) : ++expected_, rule);
}

void FusedUpdate::State::check_posts(Posts posts, int replica) {
  for (std::size_t r = 0; r < posts.size(); ++r) {
    COHORT_CHECK_STATE(posts[r].stamp == posts[static_cast<std::size_t>(replica)].stamp,
                       "[optimizer.apply_gradients] expected every replica to apply the same "
                       "optimizer here, got another one on replica ",
                       r);
  }
}

void FusedUpdate::State::push(const UpdateRun& run, Range range, int replica) {
  if (range.empty()) return;
  const std::size_t begin = range.begin * run.element_size;
  for (int other = 0; other < layout.replicas(); ++other) {
    if (other == replica) continue;
    runtime::copy_memory(run.device(other), run.parameters(other) + begin, run.device(replica),
                         run.parameters(replica) + begin, range.size() * run.element_size);
  }
}

// The rows that were written, of each replica in turn: some twice, but never the whole table.
void FusedUpdate::State::push_rows(Posts posts, const UpdateRun& run, std::size_t variable,
                                   Range range, int replica) {
  const std::size_t width = layout.row_width(variable);
  const std::size_t begin = layout.offset_in_run(variable);
  for (const Post& post : posts) {
    const RowSum* const rows = post.rows_of(variable);
    if (rows == nullptr) continue;
    for (const int64_t row : rows->rows) {
      const std::size_t at = begin + static_cast<std::size_t>(row) * width;
      push(run, range.intersect({at, at + width}), replica);
    }
  }
}

void FusedUpdate::State::push_own_slice(Posts posts, int replica) {
  const bool some_rows = has_rows(posts);
  for (const UpdateRun& run : layout.runs()) {
    const Range slice = layout.slice(run, replica);
    if (!some_rows) {
      push(run, slice, replica);
      continue;
    }
    for (const std::size_t v : run.members) {
      const Range range = slice.intersect(layout.range_of(v));
      if (is_by_rows(posts, v)) {
        push_rows(posts, run, v, range, replica);
      } else {
        push(run, range, replica);
      }
    }
  }
}

bool FusedUpdate::State::finish(Posts posts, int replica, runtime::ReplicaGroup* group) {
  if (group == nullptr) return true;
  const bool sharded = layout.schedule() == UpdateSchedule::kSharded;
  // Between the meetings nobody reads parameters but for its own slice: behind the second one
  // every copy is whole, and its replica may write it.
  if (sharded && !layout.shares_parameters()) push_own_slice(posts, replica);
  // A gradient that a program holds it may write from here on, but others may still be reading.
  const bool held =
      std::any_of(posts.begin(), posts.end(), [](const Post& post) { return post.held; });
  if (!sharded && !held) return false;
  group->barrier();
  return true;
}

// Written through raw pointers: a backward pass over changed weights must be LibTorch's error.
void FusedUpdate::State::bump_version(std::size_t variable, int replica) {
  Leaf& leaf = layout.variables()[variable].impl().leaf_of(replica);
  leaf.tensor.unsafeGetTensorImpl()->bump_version();
}

void FusedUpdate::State::forget_copies(Posts posts, int replica) {
  const auto offset = static_cast<std::size_t>(posts.data() - posts_.data());
  Post& post = posts_[offset + static_cast<std::size_t>(replica)];
  post.copies.clear();
  post.rows.clear();
}

void FusedUpdate::State::bump_versions(Posts posts, int replica) {
  const auto& variables = layout.variables();
  for (std::size_t v = 0; v < variables.size(); ++v) {
    if (has_gradient(posts, v)) bump_version(v, replica);
  }
}

Posts FusedUpdate::State::meet(const Gradients& gradients, const Step& step,
                               runtime::ReplicaGroup* group, int replica) {
  const uint64_t stamp = group != nullptr ? group->epoch(replica) + 1 : 1;
  const auto replicas = static_cast<std::size_t>(layout.replicas());
  Post* first = posts_.data() + (stamp % kPostSets) * replicas;
  const bool shown = group != nullptr;
  const uint64_t readable_until = shown ? stamp + (update_.shares_norm() ? 1 : 0) : 0;
  writer_.fill(first[replica], gradients, step, stamp, readable_until);
  if (group != nullptr) group->barrier();
  const Posts posts(first, replicas);
  check_posts(posts, replica);
  return posts;
}

void FusedUpdate::State::apply(const Gradients& gradients, const Rule& rule, double weight_decay) {
  const runtime::FlushDenormals flush;
  runtime::ReplicaGroup* group = meeting_group();
  const int replica = group != nullptr ? current_replica() : 0;
  const Posts posts = meet(gradients, {rule, weight_decay}, group, replica);
  update_.run(posts, replica, group, rule, weight_decay);
  bump_versions(posts, replica);
  if (finish(posts, replica, group)) forget_copies(posts, replica);
}

Gradients FusedUpdate::State::reduced_by(CrossDeviceOps& ops, const Gradients& gradients) const {
  const auto reduced = reduce_gradients(layout, gradients, ops);
  std::vector<GradientAndVariable> pairs;
  if (current_replica() > 0) return pairs;
  for (std::size_t v = 0; v < reduced->size(); ++v) {
    if ((*reduced)[v].size() > 0) pairs.push_back({(*reduced)[v][0], layout.variables()[v]});
  }
  return pairs;
}

void FusedUpdate::State::apply_exchanged(const Gradients& gradients, const Rule& rule,
                                         double weight_decay) {
  const runtime::FlushDenormals flush;
  runtime::ReplicaGroup* group = meeting_group();
  const int replica = group != nullptr ? current_replica() : 0;
  const Posts posts = meet(gradients, {rule, weight_decay}, group, replica);
  exchange_->run(posts, replica, group, rule, weight_decay);
  for (std::size_t v = 0; v < layout.variables().size(); ++v) {
    if (exchange_->has_changed(v)) bump_version(v, replica);
  }
  forget_copies(posts, replica);
}

void FusedUpdate::State::apply_reduced(const Gradients& gradients, const Rule& rule,
                                       double weight_decay, CrossDeviceOps& ops) {
  const runtime::FlushDenormals flush;
  const auto reduced = reduce_gradients(layout, gradients, ops);
  const int replica = std::max(0, current_replica());
  Post post(layout.variables().size());
  std::vector<Tensor> keep;
  for (std::size_t v = 0; v < reduced->size(); ++v) {
    if ((*reduced)[v].size() == 0) continue;
    const Gradient& gradient = (*reduced)[v][(*reduced)[v].size() > 1 ? replica : 0];
    if (gradient.is_sparse() && writer_.takes_rows({rule, weight_decay}, v)) {
      writer_.put_rows(post, gradient.slices(), v);
      continue;
    }
    const Leaf& own = layout.variables()[v].impl().leaf_of(replica);
    keep.push_back(layout.pad(v, gradient.as_tensor().to(own.tensor.device())));
    post.gradients[v] = static_cast<const std::byte*>(keep.back().const_data_ptr());
  }
  const Posts posts(&post, 1);
  update_.run(posts, replica, nullptr, rule, weight_decay);
  bump_versions(posts, replica);
  finish(posts, replica, meeting_group());
}

void FusedUpdate::State::apply_summed(const Gradients& gradients, const Rule& rule,
                                      double weight_decay) {
  const runtime::FlushDenormals flush;
  runtime::ReplicaGroup* group = meeting_group();
  const int replica = group != nullptr ? current_replica() : 0;
  const Posts posts = meet(gradients, {rule, weight_decay}, group, replica);
  if (replica == 0) summed_->exchange(posts, rule, weight_decay);
  if (group != nullptr) group->barrier();
  const Posts sum(&summed_->post(), 1);
  update_.run(sum, replica, nullptr, rule, weight_decay);
  bump_versions(sum, replica);
  forget_copies(posts, replica);
}

void FusedUpdate::State::apply_any(const Gradients& gradients, const Rule& rule,
                                   double weight_decay) {
  CrossDeviceOps* const ops = layout.cross_device_ops();
  const auto with_others = [&](const Gradients& mine) {
    exchange_ != nullptr ? apply_exchanged(mine, rule, weight_decay)
                         : apply_summed(mine, rule, weight_decay);
  };
  if (const auto& workers = layout.communicator()) {
    return guard_update(*workers, [&] {
      check_context();
      ops != nullptr ? with_others(reduced_by(*ops, gradients)) : with_others(gradients);
    });
  }
  check_context();
  ops != nullptr ? apply_reduced(gradients, rule, weight_decay, *ops)
                 : apply(gradients, rule, weight_decay);
}

// Every worker's part of every slot, to all replicas.
void FusedUpdate::State::gather_slots() {
  std::vector<std::vector<Tensor>> slots(layout.variables().size());
  for (std::size_t v = 0; v < slots.size(); ++v) {
    for (int s = 0; s < layout.slot_count(); ++s) slots[v].push_back(exchange_->read_slot(v, s));
  }
  summed_ = std::make_unique<SummedGradients>(layout, *layout.communicator());
  layout.make_own_slots();
  for (std::size_t v = 0; v < slots.size(); ++v) {
    for (int s = 0; s < layout.slot_count(); ++s) {
      layout.write_slot(v, s, slots[v][static_cast<std::size_t>(s)]);
    }
  }
  exchange_.reset();
}

void FusedUpdate::State::split_slots() {
  runtime::ReplicaGroup* group = meeting_group();
  const auto split = [&] { exchange_ != nullptr ? gather_slots() : layout.split_slots(); };
  if (group == nullptr && exchange_ != nullptr) return split();
  const bool is_split = exchange_ == nullptr && layout.schedule() == UpdateSchedule::kPull;
  if (group == nullptr || is_split) return;
  group->merge("optimizer.split_slots", *this, [&](runtime::Brought<State> updates) {
    for (const State& other : updates) {
      COHORT_CHECK_STATE(&other == this,
                         "[optimizer.apply_gradients] expected every replica to apply the same "
                         "optimizer here, got another one");
    }
    split();
  });
}

void FusedUpdate::State::apply_own(const Gradients& gradients, const Rule& rule,
                                   double weight_decay) {
  const runtime::FlushDenormals flush;
  split_slots();
  const int replica = std::max(0, current_replica());
  Post& post = own_posts_[static_cast<std::size_t>(replica)];
  writer_.fill(post, gradients, {rule, weight_decay}, 0, 0);
  const Posts posts(&post, 1);
  update_.run(posts, replica, nullptr, rule, weight_decay);
  bump_versions(posts, replica);
  post.copies.clear();
  post.rows.clear();
}

void FusedUpdate::State::check_context() const {
  COHORT_CHECK_STATE(layout.replicas() == 1 || current_replica() >= 0,
                     "[optimizer.apply_gradients] expected to be inside strategy.run, got "
                     "cross-replica context of a strategy with ",
                     layout.replicas(), " replicas");
  COHORT_CHECK_STATE(current_replica() < 0 || current_replica_count() == layout.replicas(),
                     "[optimizer.apply_gradients] expected a replica of the variables' strategy (",
                     layout.replicas(), " replicas), got one of a strategy with ",
                     current_replica_count());
}

FusedUpdate::FusedUpdate(std::vector<Variable> variables, UpdaterOptions options)
    : state_(std::make_unique<State>(std::move(variables), std::move(options))) {}
FusedUpdate::~FusedUpdate() = default;

void FusedUpdate::apply(const Gradients& gradients, const Rule& rule, double weight_decay) {
  const at::NoGradGuard no_grad;
  state_->apply_any(gradients, rule, weight_decay);
  state_->note_update();
}

FinalGradients* FusedUpdate::expect_gradients(base::FunctionRef<RuleOfStep()> rule) {
  return state_->expect_gradients(rule);
}

void FusedUpdate::apply_own(const Gradients& gradients, const Rule& rule, double weight_decay) {
  const at::NoGradGuard no_grad;
  state_->check_context();
  if (state_->layout.shares_parameters() && state_->layout.replicas() > 1) {
    throw Unimplemented(
        "[optimizer.apply_gradients] expected gradients that are summed over replicas, got "
        "skip_gradients_aggregation for variables that all replicas share one copy of: what one "
        "replica alone applies would change it for all; leave it out, or use MirroredStrategy");
  }
  state_->apply_own(gradients, rule, weight_decay);
  state_->note_update();
}

const std::vector<Variable>& FusedUpdate::variables() const { return state_->layout.variables(); }
int FusedUpdate::slot_count() const { return state_->layout.slot_count(); }
Tensor FusedUpdate::slot(std::size_t variable, int slot) const {
  state_->layout.check_slot(variable, slot);
  if (state_->exchange() != nullptr) return state_->exchange()->read_slot(variable, slot);
  return state_->layout.read_slot(variable, slot);
}
std::vector<TrackedPiece> FusedUpdate::slot_pieces(std::size_t variable, int slot) const {
  state_->layout.check_slot(variable, slot);
  if (state_->exchange() != nullptr) return state_->exchange()->slot_pieces(variable, slot);
  return {};
}
void FusedUpdate::set_slot(std::size_t variable, int slot, const Tensor& value) {
  state_->layout.check_slot(variable, slot);
  if (state_->exchange() != nullptr) return state_->exchange()->write_slot(variable, slot, value);
  state_->layout.write_slot(variable, slot, value);
}

void FusedUpdate::renew_rows(const Variable& variable, const Tensor& rows) {
  const at::NoGradGuard no_grad;
  const std::optional<std::size_t> index = state_->layout.find(variable);
  if (index) state_->renew_rows(*index, rows);
}

int64_t FusedUpdate::updates_of(const Variable& variable, int replica) const {
  return state_->layout.find(variable) ? state_->updates(replica) : 0;
}

}  // namespace cohort::internal::variables
