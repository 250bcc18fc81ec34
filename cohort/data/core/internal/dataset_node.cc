// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/core/internal/dataset_node.h"

#include "cohort/base/check.h"
#include "cohort/data/core/internal/pass.h"

namespace cohort::internal::data {
namespace {

class RowElementStream final : public ElementStream {
 public:
  RowElementStream(std::shared_ptr<const RowSource> source, std::unique_ptr<RowStream> order)
      : source_(std::move(source)), order_(std::move(order)) {}

  bool next(Element& out) override {
    check_cancelled();
    int64_t row = 0;
    if (!order_->next(row)) return false;
    source_->check(row);
    out = source_->row(row);
    return true;
  }
  void save(StateWriter& out) override { order_->save(out); }
  void restore(StateReader& in) override { order_->restore(in); }

 private:
  const std::shared_ptr<const RowSource> source_;
  const std::unique_ptr<RowStream> order_;
};

}  // namespace

DatasetNode::DatasetNode(std::string operation, ElementSpec spec, std::vector<NodePtr> inputs)
    : operation_(std::move(operation)), spec_(std::move(spec)), inputs_(std::move(inputs)) {}

std::string DatasetNode::path() const {
  return inputs_.empty() ? operation_ : inputs_.front()->path() + "." + operation_;
}

std::string DatasetNode::signature() const {
  if (inputs_.empty()) return operation_;
  if (inputs_.size() == 1) return inputs_.front()->signature() + "." + operation_;
  std::string out = operation_ + "(";
  for (const NodePtr& input : inputs_) out += input->signature() + ",";
  out.back() = ')';
  return out;
}

std::string DatasetNode::to_string() const {
  return str_cat("<Dataset ", signature(), " of ", spec_.to_string(), ">");
}

std::unique_ptr<RowStream> DatasetNode::make_row_stream() const {
  throw Internal(str_cat(tag(), " expected rows in memory, got a pipeline without them"));
}

void DatasetNode::save_shared(StateWriter& out) const {
  for (const NodePtr& input : inputs_) input->save_shared(out);
}

void DatasetNode::restore_shared(StateReader& in) const {
  for (const NodePtr& input : inputs_) input->restore_shared(in);
}

std::unique_ptr<ElementStream> DatasetNode::make_batch_stream(int64_t /*size*/,
                                                              bool /*drop_remainder*/) const {
  return nullptr;
}

void DatasetNode::save_as_element(StateWriter& out) const {
  if (element_kind() != ElementKind::kWindow) {
    throw Unimplemented(
        str_cat("[iterator.save] expected elements without datasets, or with those of window, got ",
                signature(), " in an element"));
  }
  out.put_int(0);
  out.put_int(cardinality());
  const PassScope no_pass(nullptr);  // One that was cancelled has a position, too.
  const auto stream = make_stream();
  for (Element part; stream->next(part);) out.put_element(part);
}

NodePtr DatasetNode::with_files(std::vector<std::string> /*files*/) const {
  throw Internal(str_cat(tag(), " expected a step that reads files, got one that reads none"));
}

NodePtr DatasetNode::with_inputs(std::vector<NodePtr> inputs) const {
  COHORT_CHECK(inputs_.empty() && inputs.empty(), tag(), " does not take other inputs");
  return shared_from_this();
}

int64_t DatasetNode::batch_rows() const { return spec_.rows(); }

DataOptions DatasetNode::options() const {
  return inputs_.empty() ? DataOptions{} : inputs_.front()->options();
}

std::unique_ptr<ElementStream> stream_rows(std::shared_ptr<const RowSource> source,
                                           std::unique_ptr<RowStream> order) {
  return std::make_unique<RowElementStream>(std::move(source), std::move(order));
}

}  // namespace cohort::internal::data
