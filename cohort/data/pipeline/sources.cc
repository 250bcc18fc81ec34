// SPDX-License-Identifier: Apache-2.0
//
// Where elements come from: memory and generators.
#include "cohort/base/check.h"
#include "cohort/data/core/internal/errors.h"
#include "cohort/data/core/internal/fingerprint.h"
#include "cohort/data/core/internal/pass.h"
#include "cohort/data/dataset.h"
#include "cohort/data/pipeline/internal/nodes.h"

namespace cohort::internal::data {
namespace {

class OneElementStream final : public ElementStream {
 public:
  explicit OneElementStream(Element element) : element_(std::move(element)) {}
  bool next(Element& out) override {
    check_cancelled();
    if (done_) return false;
    done_ = true;
    out = element_;
    return true;
  }
  void save(StateWriter& out) override { out.put_int(done_ ? 1 : 0); }
  void restore(StateReader& in) override { done_ = in.get_flag(); }

 private:
  const Element element_;
  bool done_ = false;
};

class TensorsNode final : public DatasetNode {
 public:
  explicit TensorsNode(Element element)
      : DatasetNode("from_tensors", element.spec(), {}), element_(std::move(element)) {}
  int64_t cardinality() const override { return 1; }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<OneElementStream>(element_);
  }
  std::string arguments() const override { return element_text(element_); }

 private:
  const Element element_;
};

class CountingStream final : public RowStream {
 public:
  explicit CountingStream(int64_t size) : size_(size) {}
  bool next(int64_t& out) override {
    if (row_ == size_) return false;
    out = row_++;
    return true;
  }
  void save(StateWriter& out) override { out.put_int(row_); }
  void restore(StateReader& in) override { row_ = in.get_count(size_); }

 private:
  const int64_t size_;
  int64_t row_ = 0;
};

class RowsNode final : public DatasetNode {
 public:
  RowsNode(std::string operation, std::shared_ptr<const RowSource> source, std::string arguments,
           ElementKind kind)
      : DatasetNode(std::move(operation), source->spec(), {}),
        source_(std::move(source)),
        arguments_(std::move(arguments)),
        kind_(kind) {}
  int64_t cardinality() const override { return source_->size(); }
  ElementKind element_kind() const override { return kind_; }
  std::shared_ptr<const RowSource> row_source() const override { return source_; }
  std::unique_ptr<RowStream> make_row_stream() const override {
    return std::make_unique<CountingStream>(source_->size());
  }
  std::unique_ptr<ElementStream> make_stream() const override {
    return stream_rows(source_, make_row_stream());
  }
  std::string arguments() const override {
    return arguments_.empty() ? rows_text(*source_) : arguments_;
  }
  /// Row numbers of a state must be rows of this source.
  std::string signature() const override {
    return str_cat(DatasetNode::signature(), "[", source_->size(), "]");
  }

 private:
  const std::shared_ptr<const RowSource> source_;
  const std::string arguments_;
  const ElementKind kind_;
};

using Generator = std::function<std::optional<Element>()>;

class GeneratorStream final : public ElementStream {
 public:
  GeneratorStream(NodePtr node, Generator generator)
      : node_(std::move(node)), generator_(std::move(generator)) {}

  bool next(Element& out) override {
    check_cancelled();
    if (generator_ == nullptr) return false;
    std::optional<Element> element = call();
    if (!element) {
      generator_ = nullptr;
      return false;
    }
    COHORT_CHECK_ARG(node_->spec().compatible_with(*element), node_->tag(), " element ", calls_ - 1,
                     ": expected ", node_->spec().to_string(), ", got ",
                     element->spec().to_string());
    out = std::move(*element);
    return true;
  }
  void save(StateWriter& out) override {
    out.put_int(generator_ == nullptr ? 1 : 0);
    out.put_int(calls_);
  }
  /// A function's own state is out of reach: it is called again as often as it was, and may throw
  /// again what it threw.
  void restore(StateReader& in) override {
    const bool ended = in.get_flag();
    const int64_t calls = in.get_count(std::numeric_limits<int64_t>::max());
    if (ended) generator_ = nullptr;
    while (!ended && calls_ < calls) {
      COHORT_CHECK_STATE(goes_on(), node_->tag(), " expected at least ", calls,
                         " elements again to restore an iterator, got ", calls_ - 1);
    }
  }

 private:
  std::optional<Element> call() {
    try {
      ++calls_;
      return generator_();
    } catch (...) {
      rethrow_with_context(str_cat(node_->tag(), " element ", calls_ - 1));
    }
  }
  bool goes_on() {
    try {
      return call().has_value();
    } catch (...) {  // NOLINT: the reader has seen it.
      return true;
    }
  }

  const NodePtr node_;
  Generator generator_;
  int64_t calls_ = 0;
};

class GeneratorNode final : public DatasetNode {
 public:
  GeneratorNode(std::function<Generator()> make, ElementSpec spec, int64_t cardinality)
      : DatasetNode("from_generator", std::move(spec), {}),
        make_(std::move(make)),
        cardinality_(cardinality) {}
  int64_t cardinality() const override { return cardinality_; }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<GeneratorStream>(shared_from_this(), make_());
  }

 private:
  const std::function<Generator()> make_;
  const int64_t cardinality_;
};

}  // namespace

NodePtr make_rows_node(std::string operation, std::shared_ptr<const RowSource> source,
                       std::string arguments, ElementKind kind) {
  return std::make_shared<RowsNode>(std::move(operation), std::move(source), std::move(arguments),
                                    kind);
}

}  // namespace cohort::internal::data

namespace cohort::data {

namespace {

void check_tensors(const char* operation, const Element& element) {
  if (element.uncomputed() != nullptr) return;
  if (element.is_tensor()) internal::runtime::check_defined(operation, element.tensor());
  if (!element.is_tuple()) return;
  for (std::size_t i = 0; i < element.size(); ++i) check_tensors(operation, element[i]);
}

}  // namespace

Dataset Dataset::from_tensors(Element element) {
  check_tensors("[dataset.from_tensors] ", element);
  COHORT_CHECK_ARG(element.has_value(), "[dataset.from_tensors] expected an element, got none");
  return Dataset(std::make_shared<internal::data::TensorsNode>(std::move(element)));
}

Dataset Dataset::from_tensor_slices(Element element) {
  check_tensors("[dataset.from_tensor_slices] ", element);
  return Dataset(internal::data::make_rows_node("from_tensor_slices",
                                                internal::data::make_tensor_rows(element)));
}

Dataset Dataset::range(int64_t end) { return range(0, end); }

Dataset Dataset::range(int64_t begin, int64_t end, int64_t step) {
  return Dataset(internal::data::make_rows_node("range",
                                                internal::data::make_range_rows(begin, end, step),
                                                str_cat(begin, " to ", end, " by ", step)));
}

Dataset Dataset::do_generate(std::function<std::function<std::optional<Element>()>()> make,
                             ElementSpec spec, int64_t cardinality) {
  COHORT_CHECK_ARG(make != nullptr, "[dataset.from_generator] expected a function, got none");
  return Dataset(std::make_shared<internal::data::GeneratorNode>(std::move(make), std::move(spec),
                                                                 cardinality));
}

}  // namespace cohort::data
