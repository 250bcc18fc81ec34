// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/pipeline/internal/replica_nodes.h"

#include <algorithm>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/rows/ragged.h"
#include "cohort/data/pipeline/internal/step_node.h"

namespace cohort::internal::data {
namespace {

// Whether components are known to have unlike numbers of rows. `rows`: of those before.
bool have_unlike_rows(const ElementSpec& spec, int64_t& rows) {
  if (spec.is_tuple() && !spec.is_ragged()) {
    for (std::size_t i = 0; i < spec.size(); ++i) {
      if (have_unlike_rows(spec[i], rows)) return true;
    }
    return false;
  }
  const int64_t own = spec.rows();
  if (rows == kUnknownDim) rows = own;
  return own != kUnknownDim && own != rows;
}

void check_has_rows(const ElementSpec& spec, const std::string& where) {
  for (const TensorSpec& leaf : spec.flat()) {
    COHORT_CHECK_ARG(!leaf.known_rank || !leaf.shape.empty(), where,
                     " expected batches, got elements ", spec.to_string(),
                     " with a scalar: call batch() first");
  }
  int64_t rows = kUnknownDim;
  COHORT_CHECK_ARG(!have_unlike_rows(spec, rows), where,
                   " expected batches, whose components have equally many rows, got elements ",
                   spec.to_string(), ": call batch() first");
}

/// A tuple of `part(component)` for the components of a tuple, with their names.
template <class Out, class Tree, class Part>
Out rebuild(const Tree& tuple, const Part& part) {
  std::vector<Out> parts;
  std::vector<std::pair<std::string, Out>> named;
  for (std::size_t i = 0; i < tuple.size(); ++i) {
    Out out = part(tuple[i]);
    if (tuple.names().empty()) {
      parts.push_back(std::move(out));
    } else {
      named.emplace_back(tuple.names()[i], std::move(out));
    }
  }
  return tuple.names().empty() ? Out::tuple(std::move(parts)) : Out::named(std::move(named));
}

ElementSpec step_spec(const ElementSpec& part, int replicas) {
  return ElementSpec::tuple(std::vector<ElementSpec>(static_cast<std::size_t>(replicas), part));
}

class SplitStream final : public ElementStream {
 public:
  SplitStream(const SplitPlan& plan, NodePtr node, const std::string& where)
      : plan_(plan),
        where_(where),
        node_(std::move(node)),
        full_rows_(node_->inputs()[0]->batch_rows()),
        input_(open_stream<Element>(*node_->inputs()[0])) {}

  bool next(Element& out) override {
    if (next_piece_ == pieces_.size() && !read_batch()) return false;
    // First, so that a batch that cannot be cut is not tried again.
    const std::size_t begin = next_piece_;
    next_piece_ += static_cast<std::size_t>(plan_.replicas);
    std::vector<Element> parts;
    parts.reserve(static_cast<std::size_t>(plan_.replicas));
    for (std::size_t i = begin; i < next_piece_; ++i) {
      parts.push_back(batch_.slice(pieces_[i].begin, pieces_[i].rows));
    }
    out = Element::tuple(std::move(parts));
    return true;
  }

  void start() override { input_->start(); }
  void save(StateWriter& out) override {
    if (!plan_.batch_is_step()) {
      const bool within = next_piece_ < pieces_.size();
      out.put_int(within ? 1 : 0);
      if (within) {
        out.put_int(static_cast<int64_t>(next_piece_));
        out.put_element(batch_);
      }
    }
    input_->save(out);
  }
  void restore(StateReader& in) override {
    if (!plan_.batch_is_step() && in.get_flag()) {
      const int64_t next_piece = in.get_count(plan_.all_replicas() - 1);
      batch_ = in.get_element();
      if (batch_.rows() < 0) StateReader::fail();
      pieces_ = pieces_of(batch_.rows(), full_rows_, plan_);
      next_piece_ = static_cast<std::size_t>(next_piece);
      if (next_piece % plan_.replicas != 0 || next_piece_ >= pieces_.size()) StateReader::fail();
    }
    input_->restore(in);
  }

 private:
  bool read_batch() {
    if (!input_->next(batch_)) return false;
    COHORT_CHECK_ARG(batch_.rows() >= 0, where_, " expected batches, got elements like ",
                     batch_.spec().to_string(), ": call batch() first");
    pieces_ = pieces_of(batch_.rows(), full_rows_, plan_);
    next_piece_ = 0;
    return true;
  }

  const SplitPlan& plan_;     ///< Owned by node_, as
  const std::string& where_;  ///< this is.
  const NodePtr node_;
  const int64_t full_rows_;
  const std::unique_ptr<ElementStream> input_;
  Element batch_;
  std::vector<Piece> pieces_;
  std::size_t next_piece_ = 0;  ///< Of pieces_.
};

struct SplitParams {
  SplitPlan plan;
  std::string where;  ///< Begins the texts of errors.
};

class SplitNode final : public StepNode<SplitNode, SplitParams> {
 public:
  SplitNode(std::vector<NodePtr> inputs, SplitParams params)
      : StepNode(params, "split",
                 step_spec(piece_spec(inputs[0]->spec(), params.plan), params.plan.replicas),
                 inputs) {}

  /// A position between batches says nothing of replicas: any number of them can go on there.
  std::string signature() const override {
    const SplitPlan& plan = params().plan;
    if (plan.batch_is_step()) return input().signature();
    return str_cat(input().signature(), ".split(", plan.index, " of ", plan.pipelines, "x",
                   plan.replicas, ")");
  }
  int64_t cardinality() const override {
    const int64_t batches = input().cardinality();
    if (params().plan.batch_is_step() || batches <= 0) return batches;
    return input().spec().rows() == kUnknownDim
               ? kUnknownCardinality
               : saturated_product(batches, params().plan.pipelines);
  }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<SplitStream>(params().plan, shared_from_this(), params().where);
  }
  int64_t batch_rows() const override { return kUnknownDim; }
};

class RoundStream final : public ElementStream {
 public:
  RoundStream(std::vector<std::unique_ptr<ElementStream>> inputs, std::size_t replicas, bool fill)
      : inputs_(std::move(inputs)), replicas_(replicas), fill_(fill) {}

  bool next(Element& out) override {
    // What is collected stays when an input throws: a reader may go on after an error.
    while (round_.size() < replicas_) {
      Element part;
      const std::size_t from = inputs_.size() == 1 ? 0 : round_.size();
      if (!inputs_[from]->next(part)) part = Element();
      round_.push_back(std::move(part));
    }
    std::vector<Element> parts = std::exchange(round_, {});
    if (!complete(parts)) return false;
    out = Element::tuple(std::move(parts));
    return true;
  }

  void start() override {
    for (const auto& input : inputs_) input->start();
  }
  // Between rounds the position is that of the inputs alone: of one input any number of replicas
  // can read on.
  void save(StateWriter& out) override {
    for (const auto& input : inputs_) input->save(out);
    if (round_.empty()) return;
    out.put_int(static_cast<int64_t>(round_.size()));
    for (const Element& part : round_) {
      out.put_int(part.has_value() ? 1 : 0);
      if (part.has_value()) out.put_element(part);
    }
  }
  void restore(StateReader& in) override {
    for (const auto& input : inputs_) input->restore(in);
    if (in.bytes_left() == 0) return;
    for (int64_t left = in.get_count(static_cast<int64_t>(replicas_) - 1); left > 0; --left) {
      round_.push_back(in.get_flag() ? in.get_element() : Element());
    }
  }

 private:
  /// False if there is no step.
  bool complete(std::vector<Element>& parts) const {
    const auto there = [](const Element& part) { return part.has_value(); };
    if (std::all_of(parts.begin(), parts.end(), there)) return true;
    const auto like = std::find_if(parts.begin(), parts.end(), there);
    if (!fill_ || like == parts.end() || like->rows() < 0) return false;
    const Element empty = without_rows(*like);
    std::replace_if(parts.begin(), parts.end(), std::not_fn(there), empty);
    return true;
  }

  const std::vector<std::unique_ptr<ElementStream>> inputs_;
  const std::size_t replicas_;
  const bool fill_;
  std::vector<Element> round_;  ///< What came before an input threw; without value: it has ended.
};

struct RoundParams {
  ElementSpec spec;  ///< Of a step.
  int replicas;
  bool fill;
};

class RoundNode final : public StepNode<RoundNode, RoundParams> {
 public:
  RoundNode(std::vector<NodePtr> inputs, RoundParams params)
      : StepNode(params, "round", params.spec, inputs) {}

  int64_t cardinality() const override {
    const auto& [spec, replicas, fill] = params();
    std::vector<int64_t> counts;
    for (const NodePtr& one : inputs()) counts.push_back(one->cardinality());
    if (counts.size() == 1) {
      const int64_t n = counts[0];
      return n < 0 ? n : n / replicas + (fill && n % replicas != 0 ? 1 : 0);
    }
    const auto any = [&](int64_t x) {
      return std::find(counts.begin(), counts.end(), x) != counts.end();
    };
    if (any(kUnknownCardinality)) return kUnknownCardinality;
    if (fill && any(kInfiniteCardinality)) return kInfiniteCardinality;
    std::erase(counts, kInfiniteCardinality);
    if (counts.empty()) return kInfiniteCardinality;
    return fill ? *std::max_element(counts.begin(), counts.end())
                : *std::min_element(counts.begin(), counts.end());
  }
  std::unique_ptr<ElementStream> make_stream() const override {
    std::vector<std::unique_ptr<ElementStream>> streams;
    for (const NodePtr& one : inputs()) streams.push_back(open_stream<Element>(*one));
    return std::make_unique<RoundStream>(
        std::move(streams), static_cast<std::size_t>(params().replicas), params().fill);
  }
  int64_t batch_rows() const override { return kUnknownDim; }
  std::string signature() const override {
    return inputs().size() == 1 ? input().signature() : DatasetNode::signature();
  }
};

}  // namespace

NodePtr make_split_node(NodePtr batches, SplitPlan plan, const std::string& where) {
  check_has_rows(batches->spec(), where);
  return std::make_shared<SplitNode>(std::vector{std::move(batches)},
                                     SplitParams{std::move(plan), where});
}

ElementSpec piece_spec(const ElementSpec& batch, const SplitPlan& plan) {
  const int64_t rows = batch.rows();
  const bool alike = plan.pipelines == 1 && plan.weights.empty() && rows != kUnknownDim &&
                     rows % plan.replicas == 0;
  return with_rows(batch, alike ? rows / plan.replicas : kUnknownDim);
}

NodePtr make_round_node(std::vector<NodePtr> inputs, const ElementSpec& part, int replicas,
                        bool fill) {
  return std::make_shared<RoundNode>(std::move(inputs),
                                     RoundParams{step_spec(part, replicas), replicas, fill});
}

Element without_rows(const Element& element) {
  if (!element.is_tuple() || element.is_ragged()) return element.slice(0, 0);
  return rebuild<Element>(element, [](const Element& part) { return without_rows(part); });
}

Element without_rows(const ElementSpec& spec, const std::string& where) {
  if (spec.is_ragged()) {
    return Element::ragged(without_rows(spec[0], where), zeros({1}, spec[1].leaf().dtype));
  }
  if (spec.is_tuple()) {
    return rebuild<Element>(spec,
                            [&](const ElementSpec& part) { return without_rows(part, where); });
  }
  const bool known = spec.is_leaf() && spec.leaf().known_rank && !spec.leaf().shape.empty() &&
                     (spec.leaf().is_string || spec.leaf().dtype != DType::Undefined);
  COHORT_CHECK_STATE(known, where,
                     " expected a known structure, dtype and rank, to make batches without rows "
                     "for a worker that never had any, got ",
                     spec.to_string(), ": set MapOptions::spec");
  Shape shape = spec.leaf().shape;
  shape[0] = 0;
  std::replace(shape.begin(), shape.end(), kUnknownDim, int64_t{0});
  if (spec.leaf().is_string) return Element({}, std::move(shape));
  return zeros(shape, spec.leaf().dtype);
}

}  // namespace cohort::internal::data
