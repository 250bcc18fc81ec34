// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/core/internal/stage.h"

#include <algorithm>
#include <utility>

#include "cohort/data/core/internal/dataset_node.h"

namespace cohort::internal::data {
namespace {

using Clock = std::chrono::steady_clock;

struct ThreadState {
  Stage* stage = nullptr;
  int64_t inner_ns = 0;  ///< Of stages inside the running one.
};
ThreadState& state() {
  thread_local ThreadState state;
  return state;
}

int64_t since(Clock::time_point begin) {
  return std::chrono::nanoseconds(Clock::now() - begin).count();
}

void raise(std::atomic<int64_t>& most, int64_t value) {
  int64_t now = most;
  while (now < value && !most.compare_exchange_weak(now, value)) continue;
}

NodeReport report_of(const Stage& stage, int depth) {
  NodeReport out{.name = stage.name, .path = stage.path, .depth = depth};
  out.elements = stage.elements;
  out.own = std::chrono::nanoseconds(stage.own_ns);
  out.waited = std::chrono::nanoseconds(stage.waited_ns);
  out.threads = static_cast<int>(stage.threads);
  const int64_t samples = stage.buffer_samples;
  out.buffer_mean =
      samples == 0 ? 0 : static_cast<double>(stage.buffer_sum) / static_cast<double>(samples);
  out.buffer_max = stage.buffer_max;
  out.buffer_capacity = stage.buffer_capacity;
  return out;
}

void add_stages(const Stage& parent, int depth, std::vector<NodeReport>& out) {
  for (const auto& stage : parent.children) {
    out.push_back(report_of(*stage, depth));
    add_stages(*stage, depth + 1, out);
  }
}

/// Options are no step of their own.
bool is_input(const DatasetNode& reader, const DatasetNode& node) {
  return std::any_of(reader.inputs().begin(), reader.inputs().end(), [&](const NodePtr& input) {
    return input.get() == &node || (!input->is_step() && is_input(*input, node));
  });
}

/// Goes from a step to what its thread spends the most time with, through background threads, to
/// the step that computes.
class BottleneckSearch {
 public:
  explicit BottleneckSearch(const std::vector<NodeReport>& nodes) : nodes_(nodes) {}

  int of(std::size_t node) {
    best_ = {};
    look_at(node, true);
    const Found found = best_;
    return found.waits ? of(found.node) : static_cast<int>(found.node);
  }

 private:
  struct Found {
    std::size_t node = 0;
    int64_t ns = -1;
    bool waits = false;  ///< For background threads of the node.
  };

  /// Everything that the thread (or one of the threads) reading here spends its time with.
  void look_at(std::size_t node, bool first) {
    const NodeReport& report = nodes_[node];
    if (report.threads > 0 && !first) return offer({node, report.waited.count(), true});
    offer({node, report.own.count() / std::max(1, report.threads), false});
    for (std::size_t i = node + 1; i < nodes_.size() && nodes_[i].depth > report.depth; ++i) {
      if (nodes_[i].depth == report.depth + 1) look_at(i, false);
    }
  }
  void offer(const Found& found) {
    if (found.ns > best_.ns) best_ = found;
  }

  const std::vector<NodeReport>& nodes_;
  Found best_;
};

}  // namespace

void Stage::note_buffer(std::size_t ready, std::size_t capacity) {
  buffer_sum += static_cast<int64_t>(ready);
  ++buffer_samples;
  raise(buffer_max, static_cast<int64_t>(ready));
  raise(buffer_capacity, static_cast<int64_t>(capacity));
}

void Stage::note_threads(std::size_t count) { raise(threads, static_cast<int64_t>(count)); }

Stage& StageBook::stage_of(const DatasetNode& node, Stage* parent) {
  const base::MutexLock lock(mutex_);
  Stage& reader = parent != nullptr ? *parent : root_;
  // Nodes that a function made, or a file, go with what reads them: nobody looks at them later.
  const bool opened = reader.of_opened || (reader.node != nullptr && !is_input(*reader.node, node));
  for (const auto& stage : reader.children) {
    const bool same =
        opened ? stage->of_opened && stage->name == node.operation() : stage->node == &node;
    if (same) return *stage;
  }
  auto stage = std::make_unique<Stage>();
  stage->name = node.operation();
  stage->path = node.path();
  if (opened) {
    const std::string outer = reader.path.substr(0, reader.path.find(" > "));
    stage->path = outer + " > " + stage->path;
  }
  stage->node = &node;
  stage->parent = parent;
  stage->of_opened = opened;
  reader.children.push_back(std::move(stage));
  return *reader.children.back();
}

void StageBook::note_next(Clock::time_point begin, Clock::time_point end) {
  const base::MutexLock lock(mutex_);
  if (first_ == Clock::time_point{}) first_ = begin;
  last_ = end;
  waited_ += end - begin;
}

PipelineReport StageBook::report() const {
  const base::MutexLock lock(mutex_);
  PipelineReport out{.elapsed = last_ - first_, .waited = waited_};
  add_stages(root_, 0, out.nodes);
  constexpr int kEnough = 20;
  if (!out.nodes.empty() && kEnough * out.waited >= out.elapsed && out.elapsed.count() > 0) {
    out.bottleneck = BottleneckSearch(out.nodes).of(0);
  }
  return out;
}

StageTimer::StageTimer(Stage* stage) : stage_(stage) {
  if (stage_ == nullptr) return;
  before_ = std::exchange(state().stage, stage_);
  inner_before_ns_ = std::exchange(state().inner_ns, 0);
  begin_ = Clock::now();
}

StageTimer::~StageTimer() {
  if (stage_ == nullptr) return;
  const int64_t ns = since(begin_);
  stage_->waited_ns += ns;
  stage_->own_ns += ns - state().inner_ns;
  state() = {before_, inner_before_ns_ + ns};
}

WorkTimer::WorkTimer(Stage* stage, Kind kind) : stage_(stage), kind_(kind) {
  if (stage_ == nullptr) return;
  inner_before_ns_ = std::exchange(state().inner_ns, 0);
  begin_ = Clock::now();
}

WorkTimer::~WorkTimer() {
  if (stage_ == nullptr) return;
  const int64_t ns = since(begin_);
  if (kind_ == kOwn) stage_->own_ns += ns - state().inner_ns;
  state().inner_ns = inner_before_ns_ + ns;
}

NextTimer::NextTimer(StageBook* stages) : stages_(stages) {
  if (stages_ != nullptr) begin_ = Clock::now();
}
NextTimer::~NextTimer() {
  if (stages_ != nullptr) stages_->note_next(begin_, Clock::now());
}

Stage* current_stage() { return state().stage; }
Stage* exchange_stage(Stage* stage) { return std::exchange(state().stage, stage); }

}  // namespace cohort::internal::data
