// SPDX-License-Identifier: Apache-2.0
//
// What std::cout << shows of distributed values and of nests in them.
#include <gtest/gtest.h>

#include <sstream>

#include "cohort/values/per_replica.h"

namespace cohort {
namespace {

struct Out {
  Tensor loss;
  int rows = 0;
};
struct Opaque {
  Opaque() {}
};

template <class T>
std::string text_of(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

TEST(Print, PerReplicaShowsEachReplicasValue) {
  EXPECT_EQ(text_of(PerReplica<Tensor>({scalar(1), scalar(2)})),
            "PerReplica:{\n  0: Tensor(1., shape=[], dtype=float32),\n"
            "  1: Tensor(2., shape=[], dtype=float32)\n}");
  EXPECT_EQ(text_of(Mirrored<double>({0.5})), "Mirrored:{\n  0: 0.5\n}");
  EXPECT_EQ(text_of(PerReplica<bool>({true, false})), "PerReplica:{\n  0: True,\n  1: False\n}");
  EXPECT_EQ(text_of(PerReplica<Tensor>()), "PerReplica:{}");
}

TEST(Print, NestsAreInPythonsNotation) {
  using Nest =
      std::tuple<std::vector<int>, std::map<std::string, bool>, std::optional<std::string>>;
  EXPECT_EQ(text_of(PerReplica<Nest>({Nest{{1, 2}, {{"a", true}}, "it's"}})),
            "PerReplica:{\n  0: ([1, 2], {'a': True}, 'it\\'s')\n}");
  EXPECT_EQ(text_of(PerReplica<std::optional<int>>({std::nullopt})), "PerReplica:{\n  0: None\n}");
  EXPECT_EQ(text_of(PerReplica<Out>({Out{scalar(1), 2}})),
            "PerReplica:{\n  0: (Tensor(1., shape=[], dtype=float32), 2)\n}");
  EXPECT_EQ(text_of(PerReplica<Opaque>({Opaque()})), "PerReplica:{\n  0: <object>\n}");
}

TEST(Print, Gradients) {
  EXPECT_EQ(text_of(Gradient()), "None");
  EXPECT_EQ(text_of(Gradient(tensor({1}))), "Tensor([1.], shape=[1], dtype=float32)");
  const IndexedSlices rows{
      .values = ones({1, 2}), .indices = tensor({3}, kInt64), .dense_shape = {5, 2}};
  EXPECT_EQ(text_of(Gradient(rows)),
            "IndexedSlices(indices=[3], values=Tensor([[1. 1.]], shape=[1, 2], dtype=float32), "
            "dense_shape=[5, 2])");
}

}  // namespace
}  // namespace cohort
