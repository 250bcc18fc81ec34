// SPDX-License-Identifier: Apache-2.0
//
// The positions of iterators.
#include "cohort/data/core/internal/state.h"

#include "tests/fuzz/parts.h"
#include "tests/fuzz/targets.h"

namespace cohort::fuzz {
namespace {

using internal::data::StateReader;
using internal::data::StateWriter;

void fuzz_state(std::string_view bytes) {
  survives([&] {
    StateReader in(bytes);
    while (in.bytes_left() > 0) {
      const auto kind = static_cast<uint64_t>(in.get_int()) % 4;
      if (kind == 0) in.get_text();
      if (kind == 1) in.get_error();
      if (kind == 2) in.get_count(100);
      if (kind != 3) continue;
      StateWriter out;
      out.put_element(in.get_element());
      const std::string again = std::move(out).take();
      StateReader reader(again);
      StateWriter twice;
      twice.put_element(reader.get_element());
      if (std::move(twice).take() != again) broken("an element changed when it was written");
    }
  });
}

std::vector<std::string> state_seeds() {
  StateWriter out;
  out.put_int(0);
  out.put_text("text");
  out.put_int(1);
  out.put_error(std::make_exception_ptr(DataLoss("lost")));
  out.put_int(2);
  out.put_int(99);
  for (const Element& element :
       {Element(arange(3)), Element(std::string("s")), Element(std::vector<std::string>{"a", ""}),
        Element({Element(scalar(1)), Element(zeros({0, 2}, kUint8))}),
        Element::named({{"x", Element(ones({2}, kFloat64))}}),
        Element::ragged(arange(3), arange(4)),
        Element::named({{"values", arange(3)}, {"row_splits", arange(4)}}), Element()}) {
    out.put_int(3);
    out.put_element(element);
  }
  return {std::move(out).take()};
}

}  // namespace

std::span<const Target> state_targets() {
  static const Target targets[] = {{"state", fuzz_state, state_seeds}};
  return targets;
}

}  // namespace cohort::fuzz
