// SPDX-License-Identifier: Apache-2.0
//
// What coordinator and workers say to each other.
#include "cohort/coordinator/internal/run_messages.h"
#include "tests/fuzz/parts.h"
#include "tests/fuzz/targets.h"

namespace cohort::fuzz {
namespace {

using namespace cohort::internal::coordinator;
using namespace cohort::internal::rpc;

struct Several {
  Tensor tensor = {};
  std::vector<std::pair<std::string, double>> pairs = {};
  std::map<std::string, std::optional<Tensor>> table = {};
  Gradient gradient = {};
  bool yes = false;
};

Several an_example() {
  return {.tensor = arange(500),
          .pairs = {{"a", 1}, {"", -2.5}},
          .table = {{"x", ones({2, 3}, kUint8)}, {"y", std::nullopt}},
          .gradient = IndexedSlices{zeros({1, 2}), arange(1), Shape{9, 2}},
          .yes = true};
}

EncodedValues an_encoded_example() {
  ValueWriter out;
  write_value(out, an_example());
  return std::move(out).finish();
}

std::string text_of(const Payload& payload) { return payload.text(); }

void read_again(const EncodedValues& values) {
  survives([&] {
    ValueReader in(values);
    const auto value = read_value<Several>(in);
    in.end();
    ValueWriter out;
    write_value(out, value);
  });
}

void fuzz_run_request(std::string_view bytes) {
  survives([&] {
    const RunRequest request = run_request_of(Payload(bytes));
    if (text_of(to_payload(request)) != bytes) broken("a request changed when it was written");
    for (const ResourceRecipe& each : request.made) read_again(each.arguments);
    for (const CallRequest& each : request.calls) read_again(each.arguments);
  });
}

void fuzz_run_answer(std::string_view bytes) {
  survives([&] {
    for (const CallAnswer& each : run_answer_of(Payload(bytes), "worker 1").calls) {
      read_again(each.value);
    }
  });
}

std::vector<std::string> request_seeds() {
  const RunRequest request{
      .session = 7,
      .dropped = {3},
      .made = {{.id = 1, .function = "make", .arguments = an_encoded_example()},
               {.id = 2, .kind = ResourceRecipe::Kind::kIterator, .dataset = 1}},
      .calls = {{.id = 4, .function = "step", .arguments = an_encoded_example()}}};
  return {text_of(to_payload(request))};
}

std::vector<std::string> answer_seeds() {
  RunAnswer answer{.nanoseconds = 9};
  answer.calls.push_back(
      {.id = 1, .state = CallAnswer::State::kValue, .value = an_encoded_example()});
  answer.calls.push_back({.id = 2,
                          .state = CallAnswer::State::kError,
                          .error = std::make_exception_ptr(InvalidArgument("bad"))});
  answer.calls.push_back({.id = 3});
  return {text_of(to_payload(std::move(answer)))};
}

}  // namespace

std::span<const Target> coordinator_targets() {
  static const Target targets[] = {{"run_request", fuzz_run_request, request_seeds},
                                   {"run_answer", fuzz_run_answer, answer_seeds}};
  return targets;
}

}  // namespace cohort::fuzz
