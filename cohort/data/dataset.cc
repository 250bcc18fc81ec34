// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/dataset.h"

#include <ostream>

#include "cohort/base/check.h"
#include "cohort/base/crc32c.h"
#include "cohort/base/process_mark.h"
#include "cohort/checkpoint/trackable.h"
#include "cohort/data/core/internal/dataset_node.h"
#include "cohort/data/core/internal/pass.h"

namespace cohort::data {
namespace {

constexpr std::string_view kStateMagic = "cohort.iterator.1";

std::string_view checked_body(std::string_view state) {
  constexpr std::size_t kChecksum = 4;
  if (state.size() < kStateMagic.size() + kChecksum || !state.starts_with(kStateMagic)) {
    internal::data::StateReader::fail();
  }
  const std::string_view body = state.substr(0, state.size() - kChecksum);
  uint32_t stored = 0;
  for (std::size_t i = 0; i < kChecksum; ++i) {
    stored |= uint32_t{static_cast<uint8_t>(state[body.size() + i])} << (8 * i);
  }
  if (stored != internal::base::masked_crc32c(body)) {
    throw DataLoss("[iterator.restore] expected the state as it was saved, got changed bytes");
  }
  return body.substr(kStateMagic.size());
}

}  // namespace

/// One pass, which a handle moves and a checkpoint looks at.
class Iterator::State {
 public:
  explicit State(std::shared_ptr<const internal::data::DatasetNode> node)
      : node_(std::move(node)), pass_(std::make_shared<internal::data::Pass>(node_->options())) {}
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void start();
  std::optional<Element> next();
  std::string save();
  void restore(std::string_view state);
  void cancel();
  PipelineReport report() const;

 private:
  std::unique_ptr<internal::data::ElementStream> open() const {
    return internal::data::open_stream<Element>(*node_);
  }
  /// At a saved position; null: at the end.
  std::unique_ptr<internal::data::ElementStream> open_at(std::string_view state) const;

  static constexpr const char* kWhat = "an iterator";

  const internal::base::ProcessMark process_;
  const std::shared_ptr<const internal::data::DatasetNode> node_;
  const std::shared_ptr<internal::data::Pass> pass_;
  std::unique_ptr<internal::data::ElementStream> stream_;  // null after the end
};

Iterator::State::~State() {
  if (!process_.is_ours()) {
    // Its threads wait in another process, and the files that it writes are that one's.
    static_cast<void>(stream_.release());
    return;
  }
  // Threads that wait for others end at once, not when these have delivered.
  pass_->cancel();
}

void Iterator::State::cancel() {
  process_.check("iterator.cancel", kWhat);
  pass_->cancel();
}

void Iterator::State::start() {
  internal::data::PassScope scope(pass_.get());
  stream_ = open();
  stream_->start();
}

std::optional<Element> Iterator::State::next() {
  process_.check("iterator.next", kWhat);
  Element element;
  if (stream_ == nullptr) return std::nullopt;
  pass_->check();
  internal::data::PassScope scope(pass_.get());
  internal::data::NextTimer timer(pass_->stages());
  if (stream_->next(element)) return element;
  stream_.reset();
  return std::nullopt;
}

std::string Iterator::State::save() {
  process_.check("iterator.save", kWhat);
  internal::data::PassScope scope(pass_.get());
  internal::data::StateWriter out;
  out.put_text(node_->signature());
  out.put_int(stream_ != nullptr ? 1 : 0);
  // Behind the end, too, the next pass is to have the order that it would have had.
  stream_ != nullptr ? stream_->save(out) : node_->save_shared(out);
  std::string state = std::string(kStateMagic) + std::move(out).take();
  const uint32_t crc = internal::base::masked_crc32c(state);
  for (int shift = 0; shift < 32; shift += 8) state += static_cast<char>(crc >> shift);
  return state;
}

void Iterator::State::restore(std::string_view state) {
  process_.check("iterator.restore", kWhat);
  if (stream_ != nullptr) {
    static_cast<void>(open_at(state));  // What throws leaves the position as it was.
    // Threads that read ahead would begin passes, whose orders the restored ones are to have.
    stream_.reset();
  }
  stream_ = open_at(state);
  if (stream_ == nullptr) return;
  internal::data::PassScope scope(pass_.get());
  stream_->start();
}

std::unique_ptr<internal::data::ElementStream> Iterator::State::open_at(
    std::string_view state) const {
  internal::data::StateReader in(checked_body(state));
  const std::string_view saved_by = in.get_text();
  COHORT_CHECK_ARG(saved_by == node_->signature(),
                   "[iterator.restore] expected a state of the pipeline ", node_->signature(),
                   ", got one of ", saved_by);
  internal::data::PassScope scope(pass_.get());
  std::unique_ptr<internal::data::ElementStream> stream;
  if (in.get_flag()) {
    stream = open();
    stream->restore(in);
  } else if (in.bytes_left() > 0) {  // older states end here
    node_->restore_shared(in);
  }
  in.expect_end();
  return stream;
}

PipelineReport Iterator::State::report() const {
  if (pass_->stages() == nullptr) {
    throw FailedPrecondition(
        "[iterator.report] expected DataOptions::report to be true, got false; set it with "
        "with_options");
  }
  return pass_->stages()->report();
}

Iterator::Iterator(std::shared_ptr<const internal::data::DatasetNode> node)
    : state_(std::make_shared<State>(std::move(node))) {}

void Iterator::start() { state_->start(); }
std::optional<Element> Iterator::next() { return internal::base::held(state_, "Iterator")->next(); }
std::string Iterator::save() { return internal::base::held(state_, "Iterator")->save(); }
void Iterator::restore(std::string_view state) {
  internal::base::held(state_, "Iterator")->restore(state);
}
void Iterator::cancel() { internal::base::held(state_, "Iterator")->cancel(); }
PipelineReport Iterator::report() const {
  return internal::base::held(state_, "Iterator")->report();
}
std::shared_ptr<Trackable> Iterator::trackable() const {
  return trackable_position<State>(internal::base::held(state_, "Iterator"));
}

Dataset::Dataset(std::shared_ptr<const internal::data::DatasetNode> node)
    : node_(std::move(node)) {}

const ElementSpec& Dataset::element_spec() const { return node()->spec(); }
const ElementSpec& Dataset::spec_for(const char* operation) const {
  return node(operation)->spec();
}
int64_t Dataset::cardinality() const { return node()->cardinality(); }
int64_t Dataset::batch_rows() const { return node()->batch_rows(); }
DataOptions Dataset::options() const { return node()->options(); }

Iterator Dataset::make_iterator() const {
  Iterator iterator(node());
  iterator.start();
  return iterator;
}
Iterator Dataset::make_iterator(std::string_view state) const {
  Iterator iterator(node());
  iterator.restore(state);
  return iterator;
}
internal::data::RangeIterator<Element, Iterator> Dataset::begin() const {
  node();
  return internal::data::RangeIterator<Element, Iterator>(make_iterator());
}

Element Dataset::get_single_element() const {
  Iterator it = make_iterator();
  std::optional<Element> element = it.next();
  COHORT_CHECK_ARG(element, "[dataset.get_single_element] expected one element, got none");
  COHORT_CHECK_ARG(!it.next(), "[dataset.get_single_element] expected one element, got more");
  return std::move(*element);
}

std::ostream& operator<<(std::ostream& out, const Dataset& dataset) {
  return out << dataset.node("print")->to_string();
}

}  // namespace cohort::data
