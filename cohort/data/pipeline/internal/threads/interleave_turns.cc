// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/pipeline/internal/threads/interleave_turns.h"

#include <utility>

namespace cohort::internal::data {

InterleaveTurns::InterleaveTurns(int cycle_length, int64_t block_length, bool ordered)
    : block_length_(block_length),
      ordered_(ordered),
      turns_(static_cast<std::size_t>(cycle_length)) {}

InterleaveTurns::Step InterleaveTurns::step(SourcePtr& finished) {
  SourcePtr& turn = turns_[current_];
  if (turn != nullptr) {
    if (!turn->items.empty()) return Step::kElement;
    if (turn->ended) {
      finished = std::move(turn);
      free_turn(turn);
      return Step::kChanged;
    }
  } else if (!futures_.empty()) {
    take_future();
    return Step::kChanged;
  } else if (input_ended_) {
    if (open_ == 0) return Step::kEnd;
    advance();
    return Step::kAgain;
  }
  return !ordered_ && move_on() ? Step::kAgain : Step::kWait;
}

InterleaveTurns::Source::Item InterleaveTurns::take_item() {
  Source::Item item = turns_[current_]->items.pop_front();
  if (!item.error) count_element();
  return item;
}

void InterleaveTurns::count_element() {
  if (++taken_ == block_length_) advance();
}

void InterleaveTurns::advance() {
  current_ = current_ + 1 == turns_.size() ? 0 : current_ + 1;
  taken_ = 0;
}

void InterleaveTurns::free_turn(SourcePtr& turn) {
  turn.reset();
  --open_;
  advance();
}

void InterleaveTurns::take_future() {
  SourcePtr source = futures_.pop_front();
  if (source->no_source) std::rethrow_exception(std::exchange(source->no_source, nullptr));
  turns_[current_] = std::move(source);
  ++open_;
}

void InterleaveTurns::add(SourcePtr source) {
  if (source == nullptr) {
    input_ended_ = true;
  } else {
    futures_.push_back(std::move(source));
  }
}

/// Goes to the next turn at which there is something to do.
bool InterleaveTurns::move_on() {
  for (std::size_t i = 1; i < turns_.size(); ++i) {
    const std::size_t turn = (current_ + i) % turns_.size();
    if (turns_[turn] == nullptr && futures_.empty()) continue;
    if (!has_something(turn)) continue;
    current_ = turn;
    taken_ = 0;
    return true;
  }
  return false;
}

bool InterleaveTurns::has_something(std::size_t turn) const {
  const SourcePtr& source = turns_[turn];
  if (source == nullptr) return !futures_.empty() || input_ended_;
  return !source->items.empty() || source->ended;
}

bool InterleaveTurns::has_something() const {
  if (has_something(current_)) return true;
  if (ordered_) return false;
  for (std::size_t turn = 0; turn < turns_.size(); ++turn) {
    if (turns_[turn] == nullptr && futures_.empty()) continue;
    if (has_something(turn)) return true;
  }
  return false;
}

bool InterleaveTurns::wants_items(const Source& source, std::size_t ahead) {
  return !source.busy && !source.ended && !source.no_source && 2 * source.items.size() <= ahead;
}

InterleaveTurns::Job InterleaveTurns::find_job(std::size_t ahead, std::size_t spare,
                                               bool can_open) const {
  // First what the reader waits for, then what it comes to next, then what it opens next.
  const SourcePtr& current = turns_[current_];
  if (current != nullptr && wants_items(*current, ahead)) return {.source = current.get()};
  can_open = can_open && !input_ended_;
  const std::size_t free = turns_.size() - open_;
  if (can_open && futures_.size() < free) return {.open = true};
  for (std::size_t i = 1; i < turns_.size(); ++i) {
    const SourcePtr& turn = turns_[(current_ + i) % turns_.size()];
    if (turn != nullptr && wants_items(*turn, ahead)) return {.source = turn.get()};
  }
  for (std::size_t i = 0; i < futures_.size(); ++i) {
    if (wants_items(*futures_[i], ahead)) return {.source = futures_[i].get()};
  }
  return {.open = can_open && futures_.size() < free + spare};
}

void InterleaveTurns::save(StateWriter& out) const {
  out.put_int(static_cast<int64_t>(current_));
  out.put_int(taken_);
  out.put_int(input_ended_ ? 1 : 0);
  for (const SourcePtr& turn : turns_) {
    out.put_int(turn != nullptr ? 1 : 0);
    if (turn != nullptr) save_source(out, *turn);
  }
  out.put_int(static_cast<int64_t>(futures_.size()));
  for (std::size_t i = 0; i < futures_.size(); ++i) save_source(out, *futures_[i]);
}

void InterleaveTurns::restore(StateReader& in,
                              const std::function<SourcePtr(StateReader&)>& restore_one) {
  current_ = static_cast<std::size_t>(in.get_count(static_cast<int64_t>(turns_.size()) - 1));
  taken_ = in.get_int();
  input_ended_ = in.get_flag();
  for (SourcePtr& turn : turns_) {
    if (!in.get_flag()) continue;
    turn = restore_one(in);
    ++open_;
  }
  for (int64_t left = in.get_count(in.bytes_left()); left > 0; --left) {
    futures_.push_back(restore_one(in));
  }
}

}  // namespace cohort::internal::data
