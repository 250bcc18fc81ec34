// SPDX-License-Identifier: Apache-2.0
//
// prefetch and with_options: the elements stay as they are.
#include "cohort/base/check.h"
#include "cohort/data/core/internal/pass.h"
#include "cohort/data/pipeline/internal/step_node.h"
#include "cohort/data/pipeline/internal/threads/prefetch_stream.h"

namespace cohort::internal::data {
namespace {

/// `buffer_size` or kAutotune.
class PrefetchNode final : public StepNode<PrefetchNode, int64_t, KeepingNode> {
 public:
  PrefetchNode(std::vector<NodePtr> inputs, int64_t buffer_size)
      : StepNode(buffer_size, "prefetch", inputs) {}
  std::unique_ptr<ElementStream> make_stream() const override {
    PrefetchSetting setting{.consumer_wait =
                                std::make_shared<ConsumerWait>(current_consumer_wait())};
    if (params() == kAutotune) {
      setting.tuner.emplace(Pass::current()->options().autotune_memory_bytes);
    } else {
      setting.capacity = static_cast<std::size_t>(params());
    }
    const ConsumerWaitScope reads_for(setting.consumer_wait);
    auto elements = open_stream<Element>(input());
    return make_prefetch_stream(std::move(elements), std::move(setting));
  }
  bool gains_from_prefetch() const override { return false; }
  ShareOf share_of() const override { return ShareOf::kInput; }
};

class OptionsNode final : public StepNode<OptionsNode, DataOptions, KeepingNode> {
 public:
  OptionsNode(std::vector<NodePtr> inputs, DataOptions options)
      : StepNode(options, "with_options", inputs) {}
  std::unique_ptr<ElementStream> make_stream() const override {
    return open_stream<Element>(input());
  }
  std::shared_ptr<const RowSource> row_source() const override { return input().row_source(); }
  std::unique_ptr<RowStream> make_row_stream() const override { return input().make_row_stream(); }
  bool gains_from_prefetch() const override { return input().gains_from_prefetch(); }
  DataOptions options() const override { return params(); }
  bool is_step() const override { return false; }
  ShareOf share_of() const override { return ShareOf::kInput; }
};

}  // namespace
}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::prefetch(int64_t buffer_size) const {
  COHORT_CHECK_ARG(buffer_size >= 0 || buffer_size == kAutotune,
                   "[dataset.prefetch] expected a size of at least 0 or kAutotune, got ",
                   buffer_size);
  if (buffer_size == 0) return Dataset(node());
  return internal::data::with_step<internal::data::PrefetchNode>(node(), buffer_size);
}
Dataset Dataset::with_options(DataOptions options) const {
  COHORT_CHECK_ARG(options.threads >= 1 || options.threads == kAutotune,
                   "[dataset.with_options] expected at least 1 thread or kAutotune, got ",
                   options.threads);
  COHORT_CHECK_ARG(options.autotune_memory_bytes >= 0,
                   "[dataset.with_options] expected at least 0 bytes for kAutotune, got ",
                   options.autotune_memory_bytes);
  return internal::data::with_step<internal::data::OptionsNode>(node(), options);
}

}  // namespace cohort::data
