// SPDX-License-Identifier: Apache-2.0
//
// The base of streams over one input whose position is a number besides the input's.
#pragma once

#include <memory>
#include <utility>

#include "cohort/data/core/internal/dataset_node.h"

namespace cohort::internal::data {

template <class T>
class CountedStream : public Stream<T> {
 public:
  CountedStream(std::unique_ptr<Stream<T>> input, int64_t count)
      : count_(count), input_(std::move(input)) {}

  void save(StateWriter& out) final {
    out.put_int(count_);
    input_->save(out);
  }
  void restore(StateReader& in) final {
    count_ = in.get_int();
    input_->restore(in);
  }

 protected:
  bool read(T& out) { return input_->next(out); }

  int64_t count_;  ///< Of what, the derived class says.

 private:
  const std::unique_ptr<Stream<T>> input_;
};

}  // namespace cohort::internal::data
