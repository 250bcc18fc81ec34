// SPDX-License-Identifier: Apache-2.0
//
// Steps that look at a variable as a whole, in two phases: against the same steps of whole tensors.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "cohort/coordinator/parameters/test_groups.h"
#include "cohort/coordinator/parameters/test_servers.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::coordinator {
namespace {

using variables::AdafactorStep;
using variables::LambStep;
using variables::WholeGradient;
using variables::WholeRows;
using variables::WholeRule;
using variables::WholeSums;

Tensor first_value(const Shape& shape) {
  return (arange(c10::multiply_integers(shape)).to(kFloat32) * 0.37).sin().reshape(shape);
}
Tensor gradient_of(int step, const Shape& shape) {
  return (arange(c10::multiply_integers(shape)).to(kFloat32) * step * 0.11).cos().reshape(shape);
}

ParameterHandle make(ParameterServers& servers, const std::string& name, const Shape& shape,
                     int parts) {
  const Tensor whole = first_value(shape);
  return servers.make_or_bind(
      {.name = name, .shape = shape, .parts = parts},
      [&](int64_t rows, int64_t first) { return whole.narrow(0, first, rows); });
}

/// The slots of a variable, of one rule.
void make_slots(ParameterServers& servers, const ParameterHandle& h, const WholeRule& rule) {
  const std::vector<variables::SlotForm> forms = variables::slot_forms(rule, h.shape);
  servers.make_slots(h, "set", std::vector<double>(forms.size(), 0), forms);
}

WholeRows first_rows(const Shape& shape, const WholeRule& rule) {
  WholeRows out{first_value(shape), {}};
  for (const auto& form : variables::slot_forms(rule, shape)) {
    out.slots.push_back(zeros(variables::shape_of(form, shape)));
  }
  return out;
}

WholePush push_of(const ParameterHandle& h, WholeRule rule, int step, const Tensor& rows) {
  WholePush out{h, {std::move(rule), 0.01, "set"}, {.gradient = gradient_of(step, h.shape)}};
  if (auto* const factored = std::get_if<AdafactorStep>(&out.step.rule)) {
    const Tensor squares = out.by.gradient.square();
    out.by.row_means = squares.mean(-1);
    out.by.column_means = squares.mean(-2);
    factored->rows_mean =
        variables::mean_of_rows(variables::moved(rows, out.by.row_means, factored->share));
  }
  return out;
}

void apply(ParameterServers& servers, WholePush push) {
  const WholeSums sums = servers.sums({push})[0];
  variables::resolve(push.step.rule, sums, push.by.gradient.numel());
  ParameterServers::Push one(servers);
  one.whole(push);
  one.wait();
}

void apply(WholeRows& at, WholePush push) {
  variables::resolve(push.step.rule,
                     variables::sums_of(push.step.rule, push.step.weight_decay, at, push.by),
                     push.by.gradient.numel());
  const WholeRows next = variables::stepped(push.step.rule, push.step.weight_decay, at, push.by);
  at.value = next.value;
  for (std::size_t s = 0; s < at.slots.size(); ++s) at.slots[s] = next.slots[s];
}

// The last has several messages for its shard, and columns that move once all the same.
TEST(WholeSteps, OfShardsAreThoseOfTheWhole) {
  const TestServers test(2);
  const auto servers = test.connect();
  for (const WholeRule& rule : {WholeRule(LambStep{}), WholeRule(AdafactorStep{.share = 0.5})}) {
    for (const Shape& shape : {Shape{7, 4}, {6, 3, 2}, {1100, 1000}}) {
      for (const int parts : {1, 3}) {
        if (parts > 1 && shape[0] > 1000) continue;
        const std::string name = std::to_string(shape[0]) + " in " + std::to_string(parts) +
                                 " by " + std::to_string(rule.index());
        const ParameterHandle h = make(*servers, name, shape, parts);
        make_slots(*servers, h, rule);
        WholeRows here = first_rows(shape, rule);
        for (int step = 1; step <= 2; ++step) {
          const WholePush push = push_of(h, rule, step, here.slots[0]);
          apply(*servers, push);
          apply(here, push);
        }
        EXPECT_TRUE(servers->pull(h).allclose(here.value, 1e-6, 1e-7)) << name;
        if (parts == 1 && shape[0] < 10) {
          EXPECT_TRUE(servers->pull(h).equal(here.value)) << name;
        }
        servers->drop(h);
      }
    }
  }
}

// The step is scaled by what was there, and is applied to what is there.
TEST(WholeSteps, LoseNothingThatOthersPushInBetween) {
  const TestServers test(2);
  const auto servers = test.connect();
  const ParameterHandle h = make(*servers, "w", {6, 2}, 3);
  make_slots(*servers, h, LambStep{});
  WholePush push = push_of(h, LambStep{}, 1, {});
  const WholeSums sums = servers->sums({push})[0];
  EXPECT_TRUE(servers->pull(h).equal(first_value({6, 2}))) << "the first phase writes nothing";
  {
    ParameterServers::Push other(*servers);
    other.dense(h, {.rule = update_rules::SgdStep{1}, .how = {}, .slots = {}}, full({6, 2}, -5.0));
    other.wait();
  }
  variables::resolve(push.step.rule, sums, 12);
  ParameterServers::Push one(*servers);
  one.whole(push);
  one.wait();
  WholeRows there = first_rows({6, 2}, LambStep{});
  there.value = there.value + 5.0;
  const WholeRows expected = variables::stepped(push.step.rule, 0.01, there, push.by);
  EXPECT_TRUE(servers->pull(h).equal(expected.value));
  EXPECT_TRUE(servers->pull(h, {.slots = "set", .slot = 1}).equal(expected.slots[1]));
}

// The primary of a shard dies between the phases: the backup has the same bits.
TEST(WholeSteps, GoOnWhenAServerDiesInTheMiddle) {
  const auto train = [](ParameterServers& servers, const auto& in_the_middle) {
    const ParameterHandle h = make(servers, "w", {6, 2}, 2);
    make_slots(servers, h, LambStep{});
    for (int step = 1; step <= 4; ++step) {
      WholePush push = push_of(h, LambStep{}, step, {});
      const WholeSums sums = servers.sums({push})[0];
      if (step == 3) in_the_middle(h);
      variables::resolve(push.step.rule, sums, 12);
      ParameterServers::Push one(servers);
      one.whole(push);
      one.wait();
    }
    return std::pair(servers.pull(h), servers.pull(h, {.slots = "set", .slot = 0}));
  };
  const TestServers alone(2);
  const auto expected = train(*alone.connect(), [](const ParameterHandle&) {});
  const cluster::StoreServer store{cluster::StoreServerOptions{}};
  TestGroups groups(store.address(), 1, std::chrono::milliseconds(1000));
  const auto servers = groups.connect();
  servers->begin(1);
  const auto got =
      train(*servers, [&](const ParameterHandle& h) { groups.stop(h.shards[0].place.server); });
  EXPECT_TRUE(got.first.equal(expected.first));
  EXPECT_TRUE(got.second.equal(expected.second));
}

TEST(WholeSteps, OfAFunctionThatCountsOnceCountWithIt) {
  const TestServers test(2);
  const auto servers = test.connect();
  const ParameterHandle h = make(*servers, "w", {6, 2}, 2);
  make_slots(*servers, h, LambStep{});
  WholeRows here = first_rows({6, 2}, LambStep{});
  const WholePush push = push_of(h, LambStep{}, 1, {});
  apply(here, push);
  std::vector<uint64_t> counts;
  {
    Transaction once(1, 1);
    apply(*servers, push);
    counts = once.counts();
  }
  EXPECT_TRUE(servers->pull(h).equal(first_value({6, 2})));
  std::vector<std::exception_ptr> errors;
  servers->settle({{.closure = 1, .attempt = 1, .counts = counts}}, 1, errors);
  EXPECT_TRUE(servers->pull(h).allclose(here.value, 1e-6, 1e-7));
}

TEST(WholeSteps, SlotsOfAllFormsAreInSnapshots) {
  const TestServers test(1);
  const auto servers = test.connect();
  const ParameterHandle h = make(*servers, "w", {6, 2}, 1);
  make_slots(*servers, h, AdafactorStep{});
  const WholeRows at = first_rows({6, 2}, AdafactorStep{});
  const WholePush push = push_of(h, AdafactorStep{}, 1, at.slots[0]);
  WholeRows here = at;
  apply(*servers, push);
  apply(here, push);
  test.services[0]->restore(test.services[0]->snapshot());
  ParameterHandle rows = h;
  rows.shape = {6};
  EXPECT_TRUE(servers->pull(h).equal(here.value));
  EXPECT_TRUE(servers->pull(rows, {.slots = "set", .slot = 0}).equal(here.slots[0]));
  EXPECT_TRUE(servers->pull(h, {.slots = "set", .slot = 2}).equal(here.slots[2]));
  ParameterHandle columns = h;
  columns.shape = {2};
  columns.shards[0].place.rows = 2;
  EXPECT_TRUE(servers->pull(columns, {.slots = "set", .slot = 1}).equal(here.slots[1]));
}

// A rule that goes element by element would read behind the end of such slots.
TEST(WholeSteps, RefuseSlotsOfAnotherForm) {
  const TestServers test(1);
  const auto servers = test.connect();
  const ParameterHandle h = make(*servers, "w", {6, 2}, 1);
  make_slots(*servers, h, AdafactorStep{});
  const auto push = [&](const auto& send) {
    ParameterServers::Push one(*servers);
    send(one);
    one.wait();
  };
  testing::expect_error<FailedPrecondition>({"slot 0", "\"set\"", "as large"}, [&] {
    push([&](ParameterServers::Push& one) {
      const UpdateStep adam{.rule = update_rules::AdamStep{}, .how = {}, .slots = "set"};
      one.dense(h, adam, ones({6, 2}));
    });
  });
  testing::expect_error<FailedPrecondition>({"\"set\"", "as a whole"}, [&] {
    push([&](ParameterServers::Push& one) { one.whole(push_of(h, LambStep{}, 1, {})); });
  });
  testing::expect_error<FailedPrecondition>({"\"set\"", "another process"},
                                            [&] { make_slots(*servers, h, LambStep{}); });
  testing::expect_error<FailedPrecondition>({"looks at a variable as a whole"}, [&] {
    variables::IdTableOptions options;
    options.map.capacity = 6;
    servers->make_table(h, options);
  });
  EXPECT_TRUE(servers->pull(h).equal(first_value({6, 2})));
}

}  // namespace
}  // namespace cohort::internal::coordinator
