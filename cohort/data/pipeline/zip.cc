// SPDX-License-Identifier: Apache-2.0
//
// zip, concatenate and enumerate.
#include "cohort/base/check.h"
#include "cohort/data/core/internal/rows/padding.h"
#include "cohort/data/pipeline/internal/counted_stream.h"
#include "cohort/data/pipeline/internal/nodes.h"
#include "cohort/data/pipeline/internal/step_node.h"

namespace cohort::internal::data {
namespace {

template <class T>
std::vector<std::pair<std::string, T>> with_names(const std::vector<std::string>& names,
                                                  std::vector<T> parts) {
  std::vector<std::pair<std::string, T>> out;
  for (std::size_t i = 0; i < parts.size(); ++i) out.emplace_back(names[i], std::move(parts[i]));
  return out;
}

class ZipStream final : public ElementStream {
 public:
  ZipStream(std::vector<std::unique_ptr<ElementStream>> inputs, std::vector<std::string> names)
      : inputs_(std::move(inputs)), names_(std::move(names)) {}

  bool next(Element& out) override {
    if (ended_) return false;
    while (parts_.size() < inputs_.size() && !ended_) read_part();
    std::vector<Element> parts = std::exchange(parts_, {});
    if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
    if (ended_) return false;
    out = names_.empty() ? Element::tuple(std::move(parts))
                         : Element::named(with_names<Element>(names_, std::move(parts)));
    return true;
  }
  void save(StateWriter& out) override {
    out.put_int(ended_ ? 1 : 0);
    out.put_error(error_);
    put_elements(out, parts_);
    for (const auto& input : inputs_) input->save(out);
  }
  void restore(StateReader& in) override {
    ended_ = in.get_flag();
    error_ = in.get_error();
    parts_ = get_elements(in);
    for (const auto& input : inputs_) input->restore(in);
  }

 private:
  void read_part() {
    Element part;
    try {
      ended_ = !inputs_[parts_.size()]->next(part);
    } catch (const Cancelled&) {
      throw;  // Nothing was read: the parts so far stay.
    } catch (...) {
      // The other inputs go on, or elements would meet others' from here on.
      if (error_ == nullptr) error_ = std::current_exception();
    }
    parts_.push_back(std::move(part));
  }

  const std::vector<std::unique_ptr<ElementStream>> inputs_;
  const std::vector<std::string> names_;
  std::vector<Element> parts_;  ///< Of the next element.
  std::exception_ptr error_;    ///< What reading one of them threw.
  bool ended_ = false;
};

ElementSpec zip_spec(const std::vector<NodePtr>& inputs, const std::vector<std::string>& names) {
  std::vector<ElementSpec> parts;
  for (const NodePtr& input : inputs) parts.push_back(input->spec());
  return names.empty() ? ElementSpec::tuple(std::move(parts))
                       : ElementSpec::named(with_names(names, std::move(parts)));
}

using Names = std::vector<std::string>;  ///< Of the components; empty without.

class ZipNode final : public StepNode<ZipNode, Names> {
 public:
  ZipNode(std::vector<NodePtr> inputs, Names names)
      : StepNode(names, "zip", zip_spec(inputs, names), inputs) {}

  int64_t cardinality() const override {
    int64_t least = kInfiniteCardinality;
    for (const NodePtr& part : inputs()) {
      const int64_t n = part->cardinality();
      if (n == kUnknownCardinality) return n;
      if (n != kInfiniteCardinality) least = least < 0 ? n : std::min(least, n);
    }
    return least;
  }
  std::unique_ptr<ElementStream> make_stream() const override {
    std::vector<std::unique_ptr<ElementStream>> streams;
    for (const NodePtr& part : inputs()) streams.push_back(open_stream<Element>(*part));
    return std::make_unique<ZipStream>(std::move(streams), params());
  }
  int64_t batch_rows() const override {
    const int64_t rows = inputs().front()->batch_rows();
    for (const NodePtr& part : inputs()) {
      if (part->batch_rows() != rows) return kUnknownDim;
    }
    return rows;
  }
};

class ConcatenateStream final : public ElementStream {
 public:
  ConcatenateStream(NodePtr first, NodePtr second)
      : first_(std::move(first)),
        second_(std::move(second)),
        current_(open_stream<Element>(*first_)) {}

  bool next(Element& out) override {
    if (current_->next(out)) return true;
    if (reads_second_) return false;
    go_on();
    return current_->next(out);
  }
  /// With the seeds of the other one's passes to come.
  void save(StateWriter& out) override {
    out.put_int(reads_second_ ? 1 : 0);
    current_->save(out);
    (reads_second_ ? first_ : second_)->save_shared(out);
  }
  void restore(StateReader& in) override {
    if (in.get_flag()) go_on();
    current_->restore(in);
    (reads_second_ ? first_ : second_)->restore_shared(in);
  }

 private:
  void go_on() {
    current_ = open_stream<Element>(*second_);
    reads_second_ = true;
  }

  const NodePtr first_;
  const NodePtr second_;
  std::unique_ptr<ElementStream> current_;
  bool reads_second_ = false;
};

class ConcatenateNode final : public StepNode<ConcatenateNode, NoParams> {
 public:
  ConcatenateNode(std::vector<NodePtr> inputs, NoParams params)
      : StepNode(params, "concatenate",
                 ElementSpec::common("[dataset.concatenate]", inputs[0]->spec(), inputs[1]->spec()),
                 inputs) {}

  int64_t cardinality() const override {
    const int64_t a = inputs()[0]->cardinality();
    const int64_t b = inputs()[1]->cardinality();
    if (a == kInfiniteCardinality || b == kInfiniteCardinality) return kInfiniteCardinality;
    return a < 0 || b < 0 ? kUnknownCardinality : saturated_sum(a, b);
  }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<ConcatenateStream>(inputs()[0], inputs()[1]);
  }
  int64_t batch_rows() const override {
    const int64_t rows = inputs()[0]->batch_rows();
    return rows == inputs()[1]->batch_rows() ? rows : kUnknownDim;
  }
};

class EnumerateStream final : public CountedStream<Element> {
 public:
  using CountedStream::CountedStream;

  bool next(Element& out) override {
    Element element;
    if (!read(element)) return false;
    out = Element::tuple({from_vector<int64_t>({count_}, Shape{}), std::move(element)});
    // Wraps round, as in TensorFlow.
    count_ = static_cast<int64_t>(static_cast<uint64_t>(count_) + 1);
    return true;
  }
};

class EnumerateNode final : public StepNode<EnumerateNode, int64_t> {
 public:
  EnumerateNode(std::vector<NodePtr> inputs, int64_t start)
      : StepNode(start, "enumerate",
                 ElementSpec::tuple({TensorSpec{{}, kInt64}, inputs[0]->spec()}), inputs) {}
  int64_t cardinality() const override { return input().cardinality(); }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<EnumerateStream>(open_stream<Element>(input()), params());
  }
  std::string arguments() const override { return std::to_string(params()); }
};

}  // namespace

NodePtr make_zip_node(std::vector<NodePtr> inputs, std::vector<std::string> names) {
  COHORT_CHECK_ARG(!inputs.empty(), "[dataset.zip] expected at least 1 dataset, got none");
  return std::make_shared<ZipNode>(std::move(inputs), std::move(names));
}

}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::zip(std::vector<Dataset> parts) {
  std::vector<internal::data::NodePtr> nodes;
  for (const Dataset& part : parts) nodes.push_back(part.node());
  return Dataset(internal::data::make_zip_node(std::move(nodes)));
}
Dataset Dataset::zip(std::vector<std::pair<std::string, Dataset>> parts) {
  std::vector<internal::data::NodePtr> nodes;
  std::vector<std::string> names;
  for (auto& [name, part] : parts) {
    nodes.push_back(part.node());
    names.push_back(std::move(name));
  }
  return Dataset(internal::data::make_zip_node(std::move(nodes), std::move(names)));
}
Dataset Dataset::concatenate(const Dataset& other) const {
  return Dataset(std::make_shared<internal::data::ConcatenateNode>(
      std::vector{node(), other.node()}, internal::data::NoParams()));
}
Dataset Dataset::enumerate(int64_t start) const {
  return internal::data::with_step<internal::data::EnumerateNode>(node(), start);
}

}  // namespace cohort::data
