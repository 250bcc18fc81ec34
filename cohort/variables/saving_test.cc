// SPDX-License-Identifier: Apache-2.0
//
// What a checkpoint keeps is value(), and assign() brings it back: through a file, from any number
// of replicas into any other.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "cohort/checkpoint/safetensors.h"
#include "cohort/variables/internal/test_replicas.h"

namespace cohort {
namespace {

constexpr auto kOnRead = Synchronization::kOnRead;

struct Saved {
  const char* name;
  Tensor initial;
  VariableOptions options;
};

const std::vector<Saved>& kinds() {
  static const std::vector<Saved> all = {
      {"weights", tensor({0.1, -7}), {}},
      {"total", scalar(0), {.synchronization = kOnRead, .aggregation = Aggregation::kSum}},
      {"count", scalar(0, kInt64), {.synchronization = kOnRead, .aggregation = Aggregation::kSum}},
      {"mean", scalar(0), {.synchronization = kOnRead, .aggregation = Aggregation::kMean}},
      {"first",
       scalar(0),
       {.synchronization = kOnRead, .aggregation = Aggregation::kOnlyFirstReplica}}};
  return all;
}

struct Replicas : internal::variables::ReplicasTest {
  explicit Replicas(int replicas) : ReplicasTest(replicas) {
    for (const Saved& kind : kinds()) variables.push_back(make(kind.initial, kind.options));
  }
  void TestBody() override {}
  void train() {
    group_.run([&](int r) {
      for (std::size_t i = 1; i < variables.size(); ++i) {
        variables[i].assign_add(scalar(0.1 + 3 * r, variables[i].dtype()));
      }
    });
  }
  std::map<std::string, Tensor> read() const {
    std::map<std::string, Tensor> out;
    for (std::size_t i = 0; i < kinds().size(); ++i) out[kinds()[i].name] = variables[i].value();
    return out;
  }
  std::vector<Variable> variables;
};

TEST(Saving, ValuesComeBackInAnyNumberOfReplicas) {
  const std::string path = ::testing::TempDir() + str_cat("saving_", ::getpid());
  for (const int from : {1, 2, 3}) {
    Replicas source(from);
    source.train();
    save_tensors(path, source.read());
    const auto saved = load_tensors(path).tensors;
    for (const int into : {1, 2, 3, 5}) {
      const Replicas target(into);
      for (std::size_t i = 0; i < kinds().size(); ++i) {
        const Tensor& value = saved.at(kinds()[i].name);
        target.variables[i].assign(value);
        EXPECT_TRUE(target.variables[i].value().equal(value))
            << kinds()[i].name << " from " << from << " into " << into;
        const Variable plain(kinds()[i].initial);
        plain.assign(value);
        EXPECT_TRUE(plain.value().equal(value));
      }
    }
  }
  std::remove(path.c_str());
}

}  // namespace
}  // namespace cohort
