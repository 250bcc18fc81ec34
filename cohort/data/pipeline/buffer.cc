// SPDX-License-Identifier: Apache-2.0
//
// cache, prefetch and with_options: the elements stay as they are.
#include <algorithm>
#include <mutex>

#include "cohort/base/check.h"
#include "cohort/base/process_mark.h"
#include "cohort/data/core/internal/pass.h"
#include "cohort/data/pipeline/internal/nodes.h"
#include "cohort/data/pipeline/internal/threads/prefetch_stream.h"
#include "cohort/data/store/internal/element_store.h"

namespace cohort::internal {
namespace {

/// Elements of one complete pass, kept for all later ones. Threads: thread-safe.
class CacheMemory {
 public:
  using Elements = std::shared_ptr<const std::vector<Element>>;

  /// Errors: FailedPrecondition in a child of its process, where nobody may ever unlock it.
  Elements get() const {
    process_.check("dataset.cache", "a cache in memory");
    std::lock_guard lock(mutex_);
    return elements_;
  }
  /// The first complete pass wins.
  void publish(std::vector<Element> elements) {
    std::lock_guard lock(mutex_);
    if (!elements_) elements_ = std::make_shared<const std::vector<Element>>(std::move(elements));
  }

 private:
  const ProcessMark process_;
  mutable std::mutex mutex_;
  Elements elements_;
};

/// Fills the cache, or reads what another pass has filled by the time this one is made.
class CacheStream final : public ElementStream {
 public:
  CacheStream(NodePtr node, std::shared_ptr<CacheMemory> memory)
      : node_(std::move(node)), memory_(std::move(memory)), cached_(memory_->get()) {
    if (!cached_) input_ = open_stream<Element>(*node_->inputs().front());
  }

  bool next(Element& out) override {
    check_cancelled();
    if (cached_) {
      if (position_ == cached_->size()) return false;
      out = (*cached_)[position_++];
      return true;
    }
    if (input_ == nullptr) return false;
    bool more = false;
    try {
      more = input_->next(out);
      if (more) out = out.materialize();
    } catch (const Cancelled&) {
      throw;
    } catch (...) {
      complete_ = false;  // An element is missing: this pass is no cache.
      throw;
    }
    if (more) {
      seen_.push_back(out);
      return true;
    }
    input_.reset();
    if (!complete_) return false;
    memory_->publish(std::move(seen_));
    cached_ = memory_->get();
    position_ = cached_->size();
    return false;
  }

  /// The elements are part of the position: another process has no cache yet.
  void save(StateWriter& out) override {
    const std::vector<Element>& elements = cached_ ? *cached_ : seen_;
    out.put_int(cached_ ? 1 : 0);
    out.put_int(static_cast<int64_t>(elements.size()));
    for (const Element& element : elements) out.put_element(element);
    if (cached_) return out.put_int(static_cast<int64_t>(position_));
    out.put_int(complete_ ? 1 : 0);
    out.put_int(input_ != nullptr ? 1 : 0);
    if (input_ != nullptr) input_->save(out);
  }
  void restore(StateReader& in) override {
    const bool cached = in.get_flag();
    std::vector<Element> elements(static_cast<std::size_t>(in.get_count(in.bytes_left())));
    for (Element& element : elements) element = in.get_element();
    if (cached) {
      position_ = static_cast<std::size_t>(in.get_count(static_cast<int64_t>(elements.size())));
      memory_->publish(std::move(elements));
      cached_ = memory_->get();
      position_ = std::min(position_, cached_->size());
      input_.reset();
      return;
    }
    cached_.reset();
    seen_ = std::move(elements);
    complete_ = in.get_flag();
    input_.reset();
    if (!in.get_flag()) return;
    input_ = open_stream<Element>(*node_->inputs().front());
    input_->restore(in);
  }

 private:
  const NodePtr node_;
  const std::shared_ptr<CacheMemory> memory_;
  CacheMemory::Elements cached_;          ///< Null: this pass fills.
  std::size_t position_ = 0;              ///< In cached_.
  std::unique_ptr<ElementStream> input_;  ///< Null after its end.
  std::vector<Element> seen_;
  bool complete_ = true;
};

class CacheNode final : public DatasetNode {
 public:
  explicit CacheNode(const NodePtr& input) : DatasetNode("cache", input->spec(), {input}) {}
  int64_t cardinality() const override { return input().cardinality(); }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<CacheStream>(shared_from_this(), memory_);
  }
  int64_t batch_rows() const override { return input().batch_rows(); }

  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<CacheNode>(inputs[0]);
  }

 private:
  const std::shared_ptr<CacheMemory> memory_ = std::make_shared<CacheMemory>();
};

class PrefetchNode final : public DatasetNode {
 public:
  PrefetchNode(const NodePtr& input, int64_t buffer_size)
      : DatasetNode("prefetch", input->spec(), {input}), buffer_size_(buffer_size) {}
  int64_t cardinality() const override { return input().cardinality(); }
  std::unique_ptr<ElementStream> make_stream() const override {
    PrefetchSetting setting{.pressure = std::make_shared<Pressure>(current_pressure())};
    if (buffer_size_ == kAutotune) {
      setting.tuner.emplace(Pass::current()->options().autotune_memory_bytes);
    } else {
      setting.capacity = static_cast<std::size_t>(buffer_size_);
    }
    PressureScope pressure(setting.pressure);
    auto elements = open_stream<Element>(input());
    return make_prefetch_stream(std::move(elements), std::move(setting));
  }
  int64_t batch_rows() const override { return input().batch_rows(); }

  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<PrefetchNode>(inputs[0], buffer_size_);
  }

 private:
  const int64_t buffer_size_;  ///< Or kAutotune.
};

class OptionsNode final : public DatasetNode {
 public:
  OptionsNode(const NodePtr& input, DataOptions options)
      : DatasetNode(kOptionsOperation, input->spec(), {input}), options_(options) {}
  int64_t cardinality() const override { return input().cardinality(); }
  std::unique_ptr<ElementStream> make_stream() const override {
    return open_stream<Element>(input());
  }
  std::shared_ptr<const RowSource> row_source() const override { return input().row_source(); }
  std::unique_ptr<RowStream> make_row_stream() const override { return input().make_row_stream(); }
  int64_t batch_rows() const override { return input().batch_rows(); }
  DataOptions options() const override { return options_; }

  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<OptionsNode>(inputs[0], options_);
  }

 private:
  const DataOptions options_;
};

}  // namespace

NodePtr make_cache_node(NodePtr input, std::string file) {
  if (file.empty()) return std::make_shared<CacheNode>(input);
  return make_stored_node("cache", std::move(input), [file = std::move(file)](NodePtr elements) {
    return make_file_store(file, std::move(elements));
  });
}

NodePtr make_prefetch_node(NodePtr input, int64_t buffer_size) {
  COHORT_CHECK_ARG(buffer_size >= 0 || buffer_size == kAutotune,
                   "[dataset.prefetch] expected a size of at least 0 or kAutotune, got ",
                   buffer_size);
  if (buffer_size == 0) return input;
  return std::make_shared<PrefetchNode>(input, buffer_size);
}

NodePtr make_options_node(NodePtr input, DataOptions options) {
  COHORT_CHECK_ARG(options.threads >= 1 || options.threads == kAutotune,
                   "[dataset.with_options] expected at least 1 thread or kAutotune, got ",
                   options.threads);
  COHORT_CHECK_ARG(options.autotune_memory_bytes >= 0,
                   "[dataset.with_options] expected at least 0 bytes for kAutotune, got ",
                   options.autotune_memory_bytes);
  return std::make_shared<OptionsNode>(input, options);
}

}  // namespace cohort::internal
