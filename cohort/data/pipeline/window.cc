// SPDX-License-Identifier: Apache-2.0
//
// window: elements that are datasets. Windows over rows in memory hold row numbers, others their
// elements, so that whatever reads them has the index path.
#include <algorithm>
#include <deque>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/pass.h"
#include "cohort/data/core/internal/rows/batching.h"
#include "cohort/data/core/internal/rows/row_views.h"
#include "cohort/data/dataset.h"
#include "cohort/data/pipeline/internal/nodes.h"
#include "cohort/data/pipeline/internal/step_node.h"

namespace cohort::internal::data {
namespace {

/// Elements in memory that do not all look alike.
class ElementsStream final : public ElementStream {
 public:
  ElementsStream(NodePtr node, const std::vector<Element>& elements)
      : node_(std::move(node)), elements_(elements) {}
  bool next(Element& out) override {
    check_cancelled();
    if (next_ == elements_.size()) return false;
    out = elements_[next_++];
    return true;
  }
  void save(StateWriter& out) override { out.put_int(static_cast<int64_t>(next_)); }
  void restore(StateReader& in) override {
    next_ = static_cast<std::size_t>(in.get_count(static_cast<int64_t>(elements_.size())));
  }

 private:
  const NodePtr node_;
  const std::vector<Element>& elements_;  ///< Owned by node_.
  std::size_t next_ = 0;
};

constexpr const char* kOperation = "window";

class ElementsNode final : public DatasetNode {
 public:
  explicit ElementsNode(std::vector<Element> elements)
      : DatasetNode(kOperation, ElementSpec(), {}), elements_(std::move(elements)) {}
  int64_t cardinality() const override { return static_cast<int64_t>(elements_.size()); }
  ElementKind element_kind() const override { return ElementKind::kWindow; }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<ElementsStream>(shared_from_this(), elements_);
  }

 private:
  const std::vector<Element> elements_;
};

NodePtr make_window_rows(RowSourcePtr rows) {
  return make_rows_node(kOperation, std::move(rows), {}, ElementKind::kWindow);
}

/// A nest of datasets, as the rows are nests of components.
Element datasets_of_rows(const RowSourcePtr& rows) {
  const ElementSpec& spec = rows->spec();
  if (!spec.is_tuple() || spec.is_ragged()) return Dataset(make_window_rows(rows));
  std::vector<Element> parts;
  std::vector<std::pair<std::string, Element>> named;
  for (std::size_t i = 0; i < spec.size(); ++i) {
    parts.push_back(datasets_of_rows(make_component_rows(rows, i)));
    if (!spec.names().empty()) named.emplace_back(spec.names()[i], parts.back());
  }
  return named.empty() ? Element::tuple(std::move(parts)) : Element::named(std::move(named));
}

ElementSpec datasets_spec(const ElementSpec& spec) {
  if (spec.is_unknown()) return spec;
  if (!spec.is_tuple() || spec.is_ragged()) return ElementSpec::dataset(spec);
  std::vector<ElementSpec> parts;
  std::vector<std::pair<std::string, ElementSpec>> named;
  for (std::size_t i = 0; i < spec.size(); ++i) {
    parts.push_back(datasets_spec(spec[i]));
    if (!spec.names().empty()) named.emplace_back(spec.names()[i], parts.back());
  }
  return named.empty() ? ElementSpec::tuple(std::move(parts))
                       : ElementSpec::named(std::move(named));
}

/// Elements of which every pass takes `size`, `stride` apart, then moves on by `shift`.
struct WindowPlan {
  std::size_t size;
  std::size_t shift;
  std::size_t stride;
  bool drop_remainder;

  /// From the first element of a full window to its last one.
  std::size_t reach() const { return (size - 1) * stride + 1; }
};

/// Collects elements, or row numbers.
template <class T>
class WindowStream final : public ElementStream {
 public:
  WindowStream(NodePtr node, const WindowPlan& plan)
      : node_(std::move(node)),
        plan_(plan),
        source_(node_->inputs().front()->row_source()),
        input_(open_stream<T>(*node_->inputs().front())) {}

  bool next(Element& out) override {
    T value{};
    for (; skip_ > 0 && !ended_; --skip_) ended_ = !input_->next(value);
    while (!ended_ && ahead_.size() < plan_.reach()) {
      ended_ = !input_->next(value);
      if (!ended_) ahead_.push_back(std::move(value));
    }
    if (ahead_.empty() || (plan_.drop_remainder && ahead_.size() < plan_.reach())) return false;
    std::vector<T> window;
    for (std::size_t i = 0; i < ahead_.size() && i < plan_.reach(); i += plan_.stride) {
      window.push_back(ahead_[i]);
    }
    const std::size_t leaving = std::min(plan_.shift, ahead_.size());
    ahead_.erase(ahead_.begin(), ahead_.begin() + static_cast<std::ptrdiff_t>(leaving));
    skip_ = plan_.shift - leaving;
    out = datasets(std::move(window));
    return true;
  }
  void save(StateWriter& out) override {
    out.put_int(ended_ ? 1 : 0);
    out.put_int(static_cast<int64_t>(skip_));
    out.put_int(static_cast<int64_t>(ahead_.size()));
    for (const T& value : ahead_) out.put<T>(value);
    input_->save(out);
  }
  void restore(StateReader& in) override {
    ended_ = in.get_flag();
    skip_ = static_cast<std::size_t>(in.get_count(static_cast<int64_t>(plan_.shift)));
    for (int64_t left = in.get_count(in.bytes_left()); left > 0; --left) {
      ahead_.push_back(in.get<T>());
    }
    input_->restore(in);
  }

 private:
  Element datasets(std::vector<T> window) const {
    if constexpr (std::is_same_v<T, Element>) {
      return combine_elements(window, node_->tag(), [](std::span<const Element> leaves) {
        return Element(Dataset(make_elements_node({leaves.begin(), leaves.end()})));
      });
    } else {
      for (int64_t row : window) source_->check(row);
      return datasets_of_rows(make_subset_rows(source_, std::move(window)));
    }
  }

  const NodePtr node_;
  const WindowPlan& plan_;     ///< Owned by node_.
  const RowSourcePtr source_;  ///< Of row numbers.
  const std::unique_ptr<Stream<T>> input_;
  std::deque<T> ahead_;  ///< From the first element of the next window on.
  std::size_t skip_ = 0;
  bool ended_ = false;
};

class WindowNode final : public StepNode<WindowNode, WindowPlan> {
 public:
  WindowNode(std::vector<NodePtr> inputs, WindowPlan plan)
      : StepNode(plan, kOperation, datasets_spec(inputs[0]->spec()), inputs) {}

  int64_t cardinality() const override {
    const int64_t n = input().cardinality();
    const auto shift = static_cast<int64_t>(params().shift);
    if (n <= 0) return n;
    if (!params().drop_remainder) return n / shift + (n % shift != 0 ? 1 : 0);
    const auto reach = static_cast<int64_t>(params().reach());
    return n < reach ? 0 : (n - reach) / shift + 1;
  }
  std::unique_ptr<ElementStream> make_stream() const override {
    if (input().row_source() != nullptr) {
      return std::make_unique<WindowStream<int64_t>>(shared_from_this(), params());
    }
    return std::make_unique<WindowStream<Element>>(shared_from_this(), params());
  }
  int64_t batch_rows() const override { return kUnknownDim; }
  std::string arguments() const override {
    return str_cat(params().size, " ", params().shift, " ", params().stride,
                   params().drop_remainder ? " whole" : "");
  }
};

/// As zip; components of one window are the window again.
NodePtr make_tuple_node(std::vector<NodePtr> parts, const std::vector<std::string>& names) {
  std::vector<RowSourcePtr> rows;
  for (const NodePtr& part : parts) {
    if (part->element_kind() != ElementKind::kWindow || part->row_source() == nullptr ||
        part->cardinality() != parts.front()->cardinality()) {
      return make_zip_node(std::move(parts), names);
    }
    rows.push_back(part->row_source());
  }
  return make_window_rows(make_tuple_rows(std::move(rows), names));
}

}  // namespace

NodePtr make_elements_node(std::vector<Element> elements) {
  const ElementSpec spec = elements.empty() ? ElementSpec() : elements.front().spec();
  const bool alike = std::all_of(elements.begin(), elements.end(),
                                 [&](const Element& e) { return e.spec() == spec; });
  if (!alike || elements.empty()) return std::make_shared<ElementsNode>(std::move(elements));
  return make_window_rows(make_element_rows(std::move(elements), spec));
}

}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::window(int64_t size, WindowOptions options) const {
  const int64_t shift = options.shift.value_or(size);
  COHORT_CHECK_ARG(size >= 1, "[dataset.window] expected a size of at least 1, got ", size);
  COHORT_CHECK_ARG(shift >= 1, "[dataset.window] expected a shift of at least 1, got ", shift);
  COHORT_CHECK_ARG(options.stride >= 1, "[dataset.window] expected a stride of at least 1, got ",
                   options.stride);
  COHORT_CHECK_ARG(
      internal::data::saturated_product(size, options.stride) < std::numeric_limits<int64_t>::max(),
      "[dataset.window] expected a size times a stride below 2^63 - 1, got ", size, " times ",
      options.stride);
  return internal::data::with_step<internal::data::WindowNode>(
      node(),
      internal::data::WindowPlan{static_cast<std::size_t>(size), static_cast<std::size_t>(shift),
                                 static_cast<std::size_t>(options.stride), options.drop_remainder});
}

Element::Element(const Dataset& dataset) : value_(dataset.node()) {}

std::shared_ptr<const internal::data::DatasetNode> Element::dataset_node() const {
  const Element& self = resolved();
  if (const auto* node = std::get_if<internal::data::NodePtr>(&self.value_)) return *node;
  const Tuple* tuple = tuple_part();
  if (tuple == nullptr || tuple->parts.empty()) refuse("a dataset");
  std::vector<internal::data::NodePtr> parts;
  for (const Element& part : tuple->parts) parts.push_back(part.dataset_node());
  return internal::data::make_tuple_node(std::move(parts), tuple->names);
}

Dataset Element::dataset() const { return Dataset(dataset_node()); }

}  // namespace cohort::data
