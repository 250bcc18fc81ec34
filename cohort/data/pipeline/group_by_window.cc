// SPDX-License-Identifier: Apache-2.0
//
// group_by_window: windows of elements of one key, and the datasets a function makes of them.
#include <map>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/errors.h"
#include "cohort/data/core/internal/rows/padding.h"
#include "cohort/data/pipeline/internal/nodes.h"
#include "cohort/data/pipeline/internal/step_node.h"

namespace cohort::internal::data {
namespace {

using WindowFunction = std::function<Dataset(int64_t, const Dataset&)>;

/// Of all windows, or what a function says of a key.
struct WindowSize {
  int64_t of_all = 1;
  std::function<int64_t(int64_t)> of_key = {};
};

struct GroupParams {
  std::function<int64_t(const Element&)> key;
  WindowFunction reduce;
  WindowSize size;
};

class GroupNode final : public StepNode<GroupNode, GroupParams> {
 public:
  GroupNode(std::vector<NodePtr> inputs, GroupParams params)
      : StepNode(std::move(params), "group_by_window", ElementSpec(), inputs) {}
  int64_t cardinality() const override {
    return input().cardinality() == 0 ? 0 : kUnknownCardinality;
  }
  std::unique_ptr<ElementStream> make_stream() const override;
  int64_t batch_rows() const override { return kUnknownDim; }
  std::string arguments() const override {
    const WindowSize& size = params().size;
    return size.of_key == nullptr ? std::to_string(size.of_all) : "";
  }

  int64_t key(const Element& element, int64_t index) const {
    try {
      return params().key(element);
    } catch (...) {
      rethrow_with_context(str_cat(tag(), " element ", index, " of ", path()));
    }
  }
  NodePtr reduce(int64_t key, const std::vector<Element>& window) const {
    try {
      return params().reduce(key, Dataset(make_elements_node(window))).node("group_by_window");
    } catch (...) {
      rethrow_with_context(str_cat(tag(), " window of key ", key, " of ", path()));
    }
  }
  std::size_t window_size(int64_t key) const {
    const WindowSize& window = params().size;
    if (window.of_key == nullptr) return static_cast<std::size_t>(window.of_all);
    try {
      const int64_t size = window.of_key(key);
      COHORT_CHECK_ARG(size >= 1, "expected windows of at least 1 element, got ", size);
      return static_cast<std::size_t>(size);
    } catch (...) {
      rethrow_with_context(str_cat(tag(), " window of key ", key, " of ", path()));
    }
  }
};

class GroupStream final : public ElementStream {
 public:
  explicit GroupStream(std::shared_ptr<const GroupNode> node)
      : node_(std::move(node)), input_(open_stream<Element>(*node_->inputs().front())) {}

  bool next(Element& out) override {
    while (true) {
      if (reading_ != nullptr && reading_->next(out)) return true;
      reading_.reset();
      if (!fill()) return false;
    }
  }
  void save(StateWriter& out) override {
    out.put_int(index_);
    out.put_int(input_ended_ ? 1 : 0);
    out.put_int(static_cast<int64_t>(windows_.size()));
    for (const auto& [key, window] : windows_) {
      out.put_int(key);
      put_elements(out, window.elements);
    }
    out.put_int(reading_ != nullptr ? 1 : 0);
    if (reading_ != nullptr) {
      out.put_int(key_);
      put_elements(out, window_);
      reading_->save(out);
    }
    input_->save(out);
  }
  void restore(StateReader& in) override {
    index_ = in.get_int();
    input_ended_ = in.get_flag();
    for (int64_t left = in.get_count(in.bytes_left()); left > 0; --left) {
      const int64_t key = in.get_int();
      windows_[key] = {node_->window_size(key), get_elements(in)};
    }
    if (in.get_flag()) {
      key_ = in.get_int();
      window_ = get_elements(in);
      reading_ = open_stream<Element>(*node_->reduce(key_, window_));
      reading_->restore(in);
    }
    input_->restore(in);
  }

 private:
  /// Opens the next window; false after the last one.
  bool fill() {
    Element element;
    while (!input_ended_) {
      if (!input_->next(element)) {
        input_ended_ = true;
        break;
      }
      const int64_t key = node_->key(element, index_++);
      auto found = windows_.find(key);
      if (found == windows_.end()) {
        found = windows_.emplace(key, Window{node_->window_size(key), {}}).first;
      }
      Window& window = found->second;
      window.elements.push_back(std::move(element));
      if (window.elements.size() == window.size) return open(key);
    }
    return !windows_.empty() && open(windows_.begin()->first);
  }
  bool open(int64_t key) {
    key_ = key;
    window_ = std::move(windows_[key].elements);
    windows_.erase(key);
    reading_ = open_stream<Element>(*node_->reduce(key_, window_));
    reading_->start();
    return true;
  }

  struct Window {
    std::size_t size = 0;
    std::vector<Element> elements;  ///< Fewer.
  };

  const std::shared_ptr<const GroupNode> node_;
  const std::unique_ptr<ElementStream> input_;
  std::map<int64_t, Window> windows_;       ///< By their keys.
  std::unique_ptr<ElementStream> reading_;  ///< Null: the next window is to be filled.
  int64_t key_ = 0;                         ///< Of what is read.
  std::vector<Element> window_;             ///< What that was made of.
  int64_t index_ = 0;
  bool input_ended_ = false;
};

std::unique_ptr<ElementStream> GroupNode::make_stream() const {
  return std::make_unique<GroupStream>(self());
}

}  // namespace
}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::do_group(std::function<int64_t(const Element&)> key,
                          std::function<Dataset(int64_t, const Dataset&)> reduce,
                          int64_t window_size,
                          std::function<int64_t(int64_t)> window_size_of_key) const {
  static constexpr const char* kOperation = "[dataset.group_by_window]";
  COHORT_CHECK_ARG(reduce != nullptr, kOperation, " expected a function, got an empty one");
  COHORT_CHECK_ARG(window_size >= 1, kOperation, " expected windows of at least 1 element, got ",
                   window_size);
  return internal::data::with_step<internal::data::GroupNode>(
      node(), internal::data::GroupParams{
                  std::move(key), std::move(reduce), {window_size, std::move(window_size_of_key)}});
}

}  // namespace cohort::data
