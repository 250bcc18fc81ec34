// SPDX-License-Identifier: Apache-2.0
//
// cache: the elements of one complete pass, in memory or in a file, for all later ones.
#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/base/mutex.h"
#include "cohort/base/process_mark.h"
#include "cohort/data/core/internal/pass.h"
#include "cohort/data/pipeline/internal/step_node.h"
#include "cohort/data/store/internal/element_store.h"

namespace cohort::internal::data {
namespace {

/// Elements of one complete pass, kept for all later ones. Threads: thread-safe.
class CacheMemory {
 public:
  using Elements = std::shared_ptr<const std::vector<Element>>;

  /// Errors: FailedPrecondition in a child of its process, where nobody may ever unlock it.
  Elements get() const {
    process_.check("dataset.cache", "a cache in memory");
    const base::MutexLock lock(mutex_);
    return elements_;
  }
  /// The first complete pass wins.
  void publish(std::vector<Element> elements) {
    const base::MutexLock lock(mutex_);
    if (!elements_) elements_ = std::make_shared<const std::vector<Element>>(std::move(elements));
  }

 private:
  const base::ProcessMark process_;
  mutable base::Mutex mutex_;
  Elements elements_ COHORT_GUARDED_BY(mutex_);
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

class CacheNode final : public StepNode<CacheNode, NoParams, KeepingNode> {
 public:
  CacheNode(std::vector<NodePtr> inputs, NoParams params) : StepNode(params, "cache", inputs) {}
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<CacheStream>(shared_from_this(), memory_);
  }
  ShareOf share_of() const override { return ShareOf::kInputAnyOrder; }

 private:
  const std::shared_ptr<CacheMemory> memory_ = std::make_shared<CacheMemory>();
};

}  // namespace
}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::cache(const std::string& file) const {
  if (file.empty()) return internal::data::with_step<internal::data::CacheNode>(node());
  return internal::data::with_store(node(), {.operation = "cache",
                                             .make_store =
                                                 [file](internal::data::NodePtr elements) {
                                                   return internal::data::make_file_store(
                                                       file, std::move(elements));
                                                 },
                                             .share_of = internal::data::ShareOf::kInputAnyOrder});
}

}  // namespace cohort::data
