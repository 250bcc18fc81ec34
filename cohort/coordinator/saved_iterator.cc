// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/saved_iterator.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/coordinator/parameters/remote_variables.h"
#include "cohort/coordinator/parameters/transaction.h"
#include "cohort/data/core/element.h"

namespace cohort {
namespace {

using internal::coordinator::Transaction;
using internal::coordinator::WithoutReadCache;

// Before the position: how long it is.
using PositionSize = uint32_t;

Tensor packed(const std::string& position, int64_t bytes) {
  const auto size = static_cast<PositionSize>(position.size());
  COHORT_CHECK_ARG(sizeof size + position.size() <= static_cast<std::size_t>(bytes),
                   "[SavedIterator] expected a position of at most ",
                   bytes - static_cast<int64_t>(sizeof size), " bytes, got ", position.size(),
                   "; give more .bytes, or shuffle and cache in files before");
  std::vector<uint8_t> out(static_cast<std::size_t>(bytes));
  std::memcpy(out.data(), &size, sizeof size);
  std::memcpy(out.data() + sizeof size, position.data(), position.size());
  return from_vector(out, {bytes});
}

std::string unpacked(const Tensor& value) {
  const std::vector<uint8_t> all = to_vector<uint8_t>(value);
  PositionSize size = 0;
  std::memcpy(&size, all.data(), sizeof size);
  COHORT_CHECK_STATE(sizeof size + size <= all.size(),
                     "[SavedIterator] expected a position that it has saved, got bytes that "
                     "something else has written into its variable");
  return {reinterpret_cast<const char*>(all.data()) + sizeof size, size};
}

Variable position_variable(const SavedIteratorOptions& options) {
  COHORT_CHECK_ARG(options.bytes >= static_cast<int64_t>(sizeof(PositionSize)),
                   "[SavedIterator] expected at least ", sizeof(PositionSize), " bytes, got ",
                   options.bytes);
  return Variable(zeros({options.bytes}, kUint8),
                  {.name = options.name, .trainable = false, .per_worker = true});
}

}  // namespace

SavedIterator::SavedIterator(data::Dataset data, const SavedIteratorOptions& options)
    : data_(std::move(data)), position_(position_variable(options)), rows_(data_.make_iterator()) {}

std::optional<data::Element> SavedIterator::next() {
  find_place();
  at_.reset();
  std::optional<data::Element> out;
  try {
    out = rows_.next();
  } catch (...) {
    keep_place();  // the next call goes on behind it, as data::Iterator does
    throw;
  }
  keep_place();
  return out;
}

// What this attempt has read itself is not saved before it counts.
void SavedIterator::find_place() {
  const Transaction* const once = Transaction::current();
  const auto reader = once == nullptr ? std::pair<uint64_t, uint64_t>() : once->attempt();
  if (at_ && once != nullptr && reader == reader_) return;
  const std::string saved = [&] {
    const WithoutReadCache now;  // this function may have moved it since it was read first
    return unpacked(position_.value());
  }();
  reader_ = reader;
  if (at_ == saved) return;
  at_.reset();
  if (saved.empty()) {
    rows_ = data_.make_iterator();
  } else {
    rows_.restore(saved);
  }
  at_ = saved;
}

void SavedIterator::keep_place() {
  at_ = rows_.save();
  position_.assign(packed(*at_, position_.shape()[0]));
}

}  // namespace cohort
