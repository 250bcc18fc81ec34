// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/core/internal/pass.h"

#include <utility>

#include "cohort/base/error.h"
#include "cohort/data/core/internal/dataset_node.h"
#include "cohort/runtime/topology.h"

namespace cohort::internal::data {
namespace {

Pass*& pass_of_thread() {
  thread_local Pass* pass = nullptr;
  return pass;
}

std::shared_ptr<const ConsumerWait>& consumer_wait_of_thread() {
  thread_local std::shared_ptr<const ConsumerWait> consumer_wait;
  return consumer_wait;
}

class ObservedStream final : public ElementStream {
 public:
  ObservedStream(Stage& stage, std::unique_ptr<ElementStream> stream)
      : stage_(stage), stream_(std::move(stream)) {}

  bool next(Element& out) override {
    StageTimer timer(&stage_);
    if (!stream_->next(out)) return false;
    ++stage_.elements;
    return true;
  }
  void save(StateWriter& out) override { stream_->save(out); }
  void restore(StateReader& in) override {
    StageTimer timer(&stage_);
    stream_->restore(in);
  }
  void start() override { stream_->start(); }
  Stage* stage() const override { return &stage_; }

 private:
  Stage& stage_;
  const std::unique_ptr<ElementStream> stream_;
};

}  // namespace

Pass::Pass(const DataOptions& options)
    : options_(options),
      stages_(options.report ? std::make_unique<StageBook>() : nullptr),
      cores_(runtime::usable_cores(), options.threads) {}

std::shared_ptr<Pass> Pass::current() {
  Pass* const pass = pass_of_thread();
  return pass != nullptr ? pass->shared_from_this() : std::make_shared<Pass>(DataOptions{});
}

void Pass::check() const {
  if (stop_.stop_requested()) {
    throw Cancelled("[iterator.next] expected an iterator in use, got one that was cancelled");
  }
}

bool Pass::ended_by(const std::exception_ptr& error) const {
  if (error == nullptr || !stop_.stop_requested()) return false;
  try {
    std::rethrow_exception(error);
  } catch (const Cancelled&) {
    return true;
  } catch (...) {  // NOLINT: another error, which is not lost.
    return false;
  }
}

void check_cancelled() {
  if (const Pass* const pass = pass_of_thread()) pass->check();
}

std::shared_ptr<const ConsumerWait> current_consumer_wait() { return consumer_wait_of_thread(); }

ConsumerWaitScope::ConsumerWaitScope(std::shared_ptr<const ConsumerWait> consumer_wait)
    : before_(std::exchange(consumer_wait_of_thread(), std::move(consumer_wait))) {}
ConsumerWaitScope::~ConsumerWaitScope() { consumer_wait_of_thread() = std::move(before_); }

PassScope::PassScope(Pass* pass, Stage* stage, std::shared_ptr<const ConsumerWait> consumer_wait)
    : before_(std::exchange(pass_of_thread(), pass)),
      stage_before_(exchange_stage(stage)),
      consumer_wait_(std::move(consumer_wait)) {}
PassScope::~PassScope() {
  pass_of_thread() = before_;
  exchange_stage(stage_before_);
}

std::unique_ptr<ElementStream> open_element_stream(const DatasetNode& node) {
  const Pass* const pass = pass_of_thread();
  StageBook* const stages = pass == nullptr ? nullptr : pass->stages();
  if (stages == nullptr || !node.is_step()) return node.make_stream();
  Stage& stage = stages->stage_of(node, current_stage());
  Stage* const before = exchange_stage(&stage);
  std::unique_ptr<ElementStream> stream;
  try {
    stream = std::make_unique<ObservedStream>(stage, node.make_stream());
  } catch (...) {
    exchange_stage(before);
    throw;
  }
  exchange_stage(before);
  return stream;
}

}  // namespace cohort::internal::data
