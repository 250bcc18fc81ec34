// SPDX-License-Identifier: Apache-2.0
//
// prefetch, on the host and to a device, and with_options: the elements stay as they are.
#include "cohort/base/check.h"
#include "cohort/data/core/internal/pass.h"
#include "cohort/data/core/internal/rows/upload.h"
#include "cohort/data/pipeline/internal/nodes.h"
#include "cohort/data/pipeline/internal/step_node.h"
#include "cohort/data/pipeline/internal/threads/prefetch_stream.h"
#include "cohort/runtime/device_backend.h"

namespace cohort::internal::data {
namespace {

/// The elements of another stream, each as `make` makes it. Positions are that stream's.
class MadeStream final : public ElementStream {
 public:
  using Make = Element (*)(const Device& device, const Element& element);
  MadeStream(std::unique_ptr<ElementStream> input, Make make, Device device)
      : input_(std::move(input)), make_(make), device_(std::move(device)) {}

  bool next(Element& out) override {
    if (!input_->next(out)) return false;
    out = make_(device_, out);
    return true;
  }
  void start() override { input_->start(); }
  void save(StateWriter& out) override { input_->save(out); }
  void restore(StateReader& in) override { input_->restore(in); }
  Stage* stage() const override { return input_->stage(); }

 private:
  const std::unique_ptr<ElementStream> input_;
  const Make make_;
  const Device device_;
};

/// `buffer_size`: or kAutotune.
template <class Open>
std::unique_ptr<ElementStream> read_ahead(int64_t buffer_size, const Open& open) {
  PrefetchSetting setting{.consumer_wait = std::make_shared<ConsumerWait>(current_consumer_wait())};
  if (buffer_size == kAutotune) {
    setting.tuner.emplace(Pass::current()->options().autotune_memory_bytes);
  } else {
    setting.capacity = static_cast<std::size_t>(buffer_size);
  }
  const ConsumerWaitScope reads_for(setting.consumer_wait);
  auto elements = open();
  return make_prefetch_stream(std::move(elements), std::move(setting));
}

/// `buffer_size` or kAutotune.
class PrefetchNode final : public StepNode<PrefetchNode, int64_t, KeepingNode> {
 public:
  PrefetchNode(std::vector<NodePtr> inputs, int64_t buffer_size)
      : StepNode(buffer_size, "prefetch", inputs) {}
  std::unique_ptr<ElementStream> make_stream() const override {
    return read_ahead(params(), [&] { return open_stream<Element>(input()); });
  }
  bool gains_from_prefetch() const override { return false; }
  ShareOf share_of() const override { return ShareOf::kInput; }
};

struct ToDevice {
  Device device;
  int64_t buffer_size;
};

/// Reads ahead into memory for uploads; an element is uploaded when it is asked for, which waits
/// for nothing.
class PrefetchToDeviceNode final : public StepNode<PrefetchToDeviceNode, ToDevice, KeepingNode> {
 public:
  PrefetchToDeviceNode(std::vector<NodePtr> inputs, ToDevice to)
      : StepNode(std::move(to), "prefetch_to_device", inputs) {}
  std::unique_ptr<ElementStream> make_stream() const override {
    const Device& device = params().device;
    const auto open = [&] {
      return std::make_unique<MadeStream>(open_stream<Element>(input()), staged, device);
    };
    return std::make_unique<MadeStream>(read_ahead(params().buffer_size, open), uploaded, device);
  }
  bool gains_from_prefetch() const override { return false; }
  ShareOf share_of() const override { return ShareOf::kInput; }
};

/// In memory for uploads to a device. Positions are the input's.
class StagingNode final : public StepNode<StagingNode, Device, KeepingNode> {
 public:
  StagingNode(std::vector<NodePtr> inputs, Device device)
      : StepNode(std::move(device), "staging", inputs) {}
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<MadeStream>(open_stream<Element>(input()), staged, params());
  }
  std::string signature() const override { return input().signature(); }
  bool is_step() const override { return false; }
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

NodePtr make_staging_node(NodePtr input, const Device& device) {
  return std::make_shared<StagingNode>(std::vector{std::move(input)}, device);
}

}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::prefetch(int64_t buffer_size) const {
  COHORT_CHECK_ARG(buffer_size >= 0 || buffer_size == kAutotune,
                   "[dataset.prefetch] expected a size of at least 0 or kAutotune, got ",
                   buffer_size);
  if (buffer_size == 0) return Dataset(node());
  return internal::data::with_step<internal::data::PrefetchNode>(node(), buffer_size);
}
Dataset Dataset::prefetch_to_device(const Device& device, int64_t buffer_size) const {
  constexpr const char* kOperation = "[dataset.prefetch_to_device] ";
  internal::runtime::check_supported(kOperation, "devices", device);
  COHORT_CHECK_ARG(buffer_size >= 1 || buffer_size == kAutotune, kOperation,
                   "expected a size of at least 1 or kAutotune, got ", buffer_size);
  return internal::data::with_step<internal::data::PrefetchToDeviceNode>(
      node(), internal::data::ToDevice{device, buffer_size});
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
