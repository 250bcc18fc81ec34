// SPDX-License-Identifier: Apache-2.0
//
// Elements meet functions: what map, filter and as<> accept, and what they say when they do not.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <stdexcept>

#include "cohort/data/dataset.h"
#include "cohort/data/test_values.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::error_text;
using testing::Numbers;
using testing::values;

Dataset pairs() {
  return Dataset::from_tensor_slices(
      Element::named({{"image", full({6, 28, 28}, 3, kUint8)}, {"label", arange(6)}}));
}

struct Sample {
  Tensor image;
  int64_t label = 0;
};
int64_t label_of(const Tensor&, const Tensor& label) { return label.item<int64_t>(); }

TEST(Map, TakesComponentsStructsTuplesAndElements) {
  EXPECT_EQ(values(pairs().map([](const Tensor&, const Tensor& y) { return y * 2; })),
            (Numbers{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(values(pairs().map([](const Sample& s) { return s.label + s.image.size(0); })),
            (Numbers{28, 29, 30, 31, 32, 33}));
  EXPECT_EQ(
      values(pairs().map([](const std::tuple<Tensor, int64_t>& t) { return std::get<1>(t); })),
      (Numbers{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(values(pairs().map([](const Element& e) { return e["label"]; }).take(1)), Numbers{0});
  EXPECT_EQ(values(pairs().map(label_of).skip(5)), Numbers{5});
  EXPECT_EQ(values(pairs().map(
                [](Tensor, int64_t y, std::optional<Tensor> weight) { return weight ? -1 : y; })),
            (Numbers{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(values(Dataset::range(2).map([n = 0](int64_t x) mutable { return x + 10 * n++; })),
            (Numbers{0, 11}));
}

TEST(Map, GenericLambdasAreRefusedWhenCompiling) {
  auto generic = [](const auto& x) { return x; };
  auto typed = [](const Tensor& x) { return x; };
  static_assert(!internal::data::HasSignature<decltype(generic)>);
  static_assert(internal::data::HasSignature<decltype(typed)>);
  static_assert(internal::data::HasSignature<decltype(label_of)>);
  static_assert(internal::data::HasSignature<std::function<Tensor(Tensor)>>);
}

TEST(Map, ReturnsAnyNest) {
  auto spec = [](auto f) { return Dataset::range(1).map(f).element_spec().to_string(); };
  EXPECT_EQ(spec([](const Tensor& x) { return x; }), "?");
  EXPECT_EQ(spec([](const Tensor& x) { return std::tuple(x, 1.5F); }), "(?, float32[])");
  EXPECT_EQ(spec([](const Tensor& x) { return Sample{x, 3}; }), "(?, int64[])");
  EXPECT_EQ(spec([](const Tensor&) { return std::string("a"); }), "string[]");
  auto it = Dataset::range(1)
                .map([](const Tensor& x) {
                  return std::map<std::string, Tensor>{{"a", x}, {"b", x + 1}};
                })
                .make_iterator();
  EXPECT_EQ(it.next()->spec().to_string(), "(a int64[], b int64[])");
  auto vectors = Dataset::range(1).map([](int64_t) { return std::vector<float>{1, 2}; });
  EXPECT_EQ(vectors.make_iterator().next()->spec().to_string(), "float32[2]");
}

TEST(Map, MismatchIsKnownWhenThePipelineIsBuilt) {
  EXPECT_EQ(error_text([] {
              pairs().map([](const Tensor& a, const Tensor&, const Tensor&) { return a; });
            }),
            "[dataset.map] function takes 3 components, element has 2 (image uint8[28,28], label "
            "int64[])");
  EXPECT_EQ(error_text([] { pairs().filter([](const Tensor&) { return true; }); }),
            "[dataset.filter] function takes 1 component, element has 2 (image uint8[28,28], label "
            "int64[])");
  EXPECT_EQ(error_text([] {
              Dataset::range(3).map(
                  [](const Tensor& a, const Tensor&, std::optional<Tensor>) { return a; });
            }),
            "[dataset.map] function takes 2 to 3 components, element has 1 int64[]");
  // A map function that returns an Element says nothing about it: known when it runs.
  auto blind =
      pairs().map([](const Element& e) { return e; }).map([](const Tensor& x) { return x; });
  EXPECT_EQ(error_text([&] { values(blind); }),
            "[dataset.map] element 0 of from_tensor_slices.map.map: function takes 1 component, "
            "element has 2 (image uint8[28,28], label int64[])");
}

TEST(Map, ErrorsNameElementAndNodeAndKeepTheirClass) {
  auto failing = [](auto thrower) {
    return Dataset::range(5).map([thrower](int64_t x) {
      if (x == 2) thrower();
      return x;
    });
  };
  auto ds = failing([] { throw DataLoss("bad record"); });
  auto it = ds.make_iterator();
  it.next();
  it.next();
  const std::string text = error_text<DataLoss>([&] {
    try {
      it.next();
    } catch (const DataLoss& e) {
      EXPECT_THROW(std::rethrow_if_nested(e), DataLoss);
      throw;
    }
  });
  EXPECT_EQ(text, "[dataset.map] element 2 of range.map: bad record");
  EXPECT_EQ(it.next()->as<int64_t>(), 3);
  auto plain = failing([] { throw std::runtime_error("oops"); });
  EXPECT_EQ(error_text([&] { values(plain); }), "[dataset.map] element 2 of range.map: oops");
}

TEST(Map, DeclaredResultIsChecked) {
  auto right = Dataset::range(2).map([](const Tensor& x) { return x; },
                                     {.spec = ElementSpec(TensorSpec{{}, kInt64})});
  EXPECT_EQ(right.element_spec().to_string(), "int64[]");
  EXPECT_EQ(values(right), (Numbers{0, 1}));
  auto wrong = Dataset::range(2).map([](const Tensor& x) { return x; },
                                     {.spec = ElementSpec(TensorSpec{{3}, kInt64})});
  EXPECT_EQ(error_text([&] { values(wrong); }),
            "[dataset.map] element 0 of range.map: expected a result like int64[3], got int64[]");
}

TEST(Map, RefusesToReturnNothing) {
  auto it = Dataset::range(3)
                .map([](int64_t x) { return x == 1 ? Element() : Element(scalar(1)); })
                .make_iterator();
  it.next();
  EXPECT_EQ(error_text<InvalidArgument>([&] { it.next(); }),
            "[dataset.map] element 1 of range.map: expected a result, got an element without a "
            "value");
  EXPECT_TRUE(it.next());
}

TEST(Map, IntegersAreNotRounded) {
  const auto first = [](const Tensor& x, const auto& fn) {
    return Dataset::from_tensors(x).map(fn).make_iterator().next();
  };
  const auto wide = [](int64_t x) { return x; };
  const auto narrow = [](int8_t x) { return int64_t{x}; };
  const auto natural = [](uint32_t x) { return static_cast<int64_t>(x); };
  EXPECT_EQ(first(scalar(3.0), wide)->as<int64_t>(), 3);
  EXPECT_EQ(first(scalar(-128, kInt64), narrow)->as<int64_t>(), -128);
  EXPECT_THROW(first(scalar(2.7), wide), InvalidArgument);
  EXPECT_THROW(first(scalar(1e30), wide), InvalidArgument);
  EXPECT_THROW(first(scalar(300, kInt64), narrow), InvalidArgument);
  EXPECT_THROW(first(scalar(-1, kInt64), natural), InvalidArgument);
}

TEST(Map, RecordsNoGradientsOnAnyThread) {
  Tensor weight = ones({2});
  weight.requires_grad_(true);
  const auto fn = [weight](int64_t x) { return weight * static_cast<double>(x); };
  const Dataset plain = Dataset::range(3).map(fn);
  for (const Dataset& ds : {plain, plain.prefetch(2), plain.batch(2).unbatch(),
                            Dataset::range(3).map(fn, {.parallel_calls = 2})}) {
    const auto e = ds.make_iterator().next();
    ASSERT_TRUE(e);
    EXPECT_FALSE(e->tensor().requires_grad());
  }
  EXPECT_TRUE((weight * 2).requires_grad());  // The reader's own mode is what it was.
}

TEST(Filter, BoolOrTensorPredicates) {
  EXPECT_EQ(values(Dataset::range(6).filter([](int64_t x) { return x % 2 == 0; })),
            (Numbers{0, 2, 4}));
  EXPECT_EQ(values(Dataset::range(6).filter([](const Tensor& x) { return x > 3; })),
            (Numbers{4, 5}));
  auto throwing = Dataset::range(6).filter([](int64_t x) {
    if (x == 1) throw std::runtime_error("oops");
    return true;
  });
  EXPECT_EQ(error_text([&] { values(throwing); }),
            "[dataset.filter] element 1 of range.filter: oops");
}

TEST(ParallelMap, KeepsOrderAndRunsCallsAtOnce) {
  // Both calls must be under way before either can end.
  std::latch both(2);
  auto ds = Dataset::range(2).map(
      [&both](int64_t x) {
        both.arrive_and_wait();
        return x * 10;
      },
      {.parallel_calls = 2});
  EXPECT_EQ(values(ds), (Numbers{0, 10}));
  Numbers squares;
  for (int64_t i = 0; i < 500; ++i) squares.push_back(i * i);
  auto many = Dataset::range(500).map([](int64_t x) { return x * x; }, {.parallel_calls = 4});
  EXPECT_EQ(values(many), squares);
  EXPECT_EQ(values(many), squares);
}

TEST(ParallelMap, ErrorsKeepTheirPlaceAndCancellingIsClean) {
  auto ds = Dataset::range(100).map(
      [](int64_t x) {
        if (x == 7) throw InvalidArgument("seven");
        return x;
      },
      {.parallel_calls = 3});
  auto it = ds.make_iterator();
  for (int64_t i = 0; i < 7; ++i) EXPECT_EQ(it.next()->as<int64_t>(), i);
  EXPECT_EQ(error_text([&] { it.next(); }), "[dataset.map] element 7 of range.map: seven");
  EXPECT_EQ(it.next()->as<int64_t>(), 8);
  EXPECT_THROW(ds.map([](int64_t x) { return x; }, {.parallel_calls = 0}), InvalidArgument);
}

TEST(As, ConvertsAndNamesBothSides) {
  Element e = {tensor({1, 2}), scalar(7, kInt64), std::string("s")};
  auto [x, n, s] = e.as<Tensor, int, std::string>();
  EXPECT_EQ(x.size(0), 2);
  EXPECT_EQ(n, 7);
  EXPECT_EQ(s, "s");
  EXPECT_EQ(error_text([&] { (e.as<Tensor, Tensor>()); }),
            "[element.as] expected 2 components, got (float32[2], int64[], string[])");
  EXPECT_EQ(error_text([&] { e.as<Tensor>(); }),
            "[element.as] expected a tensor, got (float32[2], int64[], string[])");
  EXPECT_EQ(error_text([&] { e[0].as<int>(); }),
            "[element.as] expected one number, got float32[2]");
  EXPECT_EQ(error_text([&] { e.tensor(); }),
            "[element] expected one tensor, got (float32[2], int64[], string[])");
  EXPECT_EQ(error_text([] { Element().tensor(); }),
            "[element] expected one tensor, got an element without a value");
  Element named = Element::named({{"a", tensor({1})}, {"b", tensor({2})}});
  EXPECT_EQ(error_text([&] { named["c"]; }), "[element] expected one of the names [a, b], got c");
  EXPECT_EQ(error_text([&] { e[3]; }), "[element] expected a component below 3, got 3");
}

TEST(Spec, CompatibleWith) {
  auto spec = ElementSpec::tuple({TensorSpec{{kUnknownDim, 2}}, TensorSpec{{}, kInt64}});
  EXPECT_TRUE(spec.compatible_with(Element{zeros({5, 2}), scalar(1, kInt64)}));
  EXPECT_FALSE(spec.compatible_with(Element{zeros({5, 3}), scalar(1, kInt64)}));
  EXPECT_FALSE(spec.compatible_with(Element{zeros({5, 2}), scalar(1, kInt32)}));
  EXPECT_FALSE(spec.compatible_with(Element{zeros({5, 2})}));
  EXPECT_FALSE(spec.compatible_with(Element(zeros({5, 2}))));
  EXPECT_TRUE(ElementSpec().compatible_with(Element(zeros({5, 2}))));
  EXPECT_EQ(spec.to_string(), "(float32[?,2], int64[])");
  EXPECT_EQ(spec.flat().size(), 2U);
}

}  // namespace
}  // namespace cohort
