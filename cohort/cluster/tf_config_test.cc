// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cohort/cluster/environment.h"
#include "cohort/cluster/test_variables.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::expect_error;
using testing::JobVariables;

TEST(TFConfigClusterResolver, ReadsTheGuidesExample) {
  const JobVariables variables{{"TF_CONFIG", R"({
      "cluster": {"worker": ["localhost:12345", "localhost:23456"]},
      "task": {"type": "worker", "index": 1}, "rpc_layer": "grpc"})"}};
  const TFConfigClusterResolver resolver;
  EXPECT_EQ(resolver.cluster_spec(),
            ClusterSpec({{"worker", {"localhost:12345", "localhost:23456"}}}));
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.environment(), "");
  EXPECT_EQ(resolver.master(), "grpc://localhost:23456");
}

// Case R04.
TEST(TFConfigClusterResolver, NothingIsNoCluster) {
  for (const char* text : {"", "{}", R"({"task": {}})"}) {
    const JobVariables variables{{"TF_CONFIG", text}};
    const TFConfigClusterResolver resolver;
    EXPECT_TRUE(resolver.cluster_spec().empty()) << text;
    EXPECT_FALSE(resolver.task_type());
    EXPECT_FALSE(resolver.task_id());
    EXPECT_EQ(resolver.master(), "");
  }
}

TEST(TFConfigClusterResolver, WhatTheProgramSaysComesFirst) {
  const JobVariables variables{{"TF_CONFIG", R"({
      "cluster": {"worker": ["a:1", "b:1", "c:1"]}, "task": {"type": "worker", "index": 1}})"}};
  TFConfigClusterResolver resolver({.task_id = 2});
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 2);
  resolver.set_task("chief", 0);
  EXPECT_EQ(resolver.task_type(), "chief");
  EXPECT_EQ(resolver.task_id(), 0);
}

TEST(TFConfigClusterResolver, IsReadAnewAtEveryQuestion) {
  const TFConfigClusterResolver resolver;
  for (const int index : {0, 1}) {
    const JobVariables variables{
        {"TF_CONFIG", R"({"task": {"type": "worker", "index": )" + std::to_string(index) + "}}"}};
    EXPECT_EQ(resolver.task_id(), index);
  }
}

TEST(TFConfigClusterResolver, KnowsTheDialects) {
  struct Case {
    const char* what;
    const char* variable;
    const char* text;
    ClusterSpec spec;
    const char* type;
    int id;
  };
  const std::vector<Case> cases = {
      {"an index as a text, as AI Platform has it", "TF_CONFIG",
       R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": "0", "trial": "7"},
           "job": "{}"})",
       ClusterSpec({{"worker", {"a:1"}}}), "worker", 0},
      {"a master is the chief", "TF_CONFIG",
       R"({"cluster": {"master": ["m:1"], "worker": ["a:1"]}, "task": {"type": "master", "index": 0}})",
       ClusterSpec({{"chief", {"m:1"}}, {"worker", {"a:1"}}}), "chief", 0},
      {"Kubeflow's dynamic workers", "TF_CONFIG",
       R"({"cluster": {"ps": ["p:1"], "worker": {"3": "w:1"}}, "task": {"type": "worker", "index": 3}})",
       ClusterSpec::sparse({{"ps", {{0, "p:1"}}}, {"worker", {{3, "w:1"}}}}), "worker", 3},
      {"Kubeflow's parameter server beside them", "TF_CONFIG",
       R"({"cluster": {"ps": ["p:1"], "worker": {}}, "task": {"type": "ps", "index": 0}})",
       ClusterSpec({{"ps", {"p:1"}}}), "ps", 0},
      {"Vertex AI's pools", "CLUSTER_SPEC",
       R"({"cluster": {"workerpool0": ["a:2222"], "workerpool1": ["b:2222", "c:2222"],
           "workerpool2": ["p:2222"], "workerpool3": ["e:2222"]}, "environment": "cloud",
           "task": {"type": "workerpool1", "index": 1, "trial": "1"}, "open_ports": [3333]})",
       ClusterSpec({{"chief", {"a:2222"}},
                    {"worker", {"b:2222", "c:2222"}},
                    {"ps", {"p:2222"}},
                    {"evaluator", {"e:2222"}}}),
       "worker", 1},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.what);
    const JobVariables variables{{each.variable, each.text}};
    const TFConfigClusterResolver resolver;
    EXPECT_EQ(resolver.cluster_spec(), each.spec);
    EXPECT_EQ(resolver.task_type(), each.type);
    EXPECT_EQ(resolver.task_id(), each.id);
  }
}

TEST(TFConfigClusterResolver, TheMasterIsEmptyForOneTaskAndMayBeGiven) {
  {
    const JobVariables variables{
        {"TF_CONFIG",
         R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}})"}};
    EXPECT_EQ(TFConfigClusterResolver().master(), "");
  }
  const JobVariables variables{{"TF_CONFIG", R"({"session_master": "sess:9"})"}};
  EXPECT_EQ(TFConfigClusterResolver().master(), "sess:9");
}

TEST(TFConfigClusterResolver, ErrorsNameThePlace) {
  struct Case {
    const char* text;
    std::string word;
    std::string other = {};
  };
  const std::vector<Case> cases = {
      {R"({"cluster": )", "TF_CONFIG to be JSON"},
      {R"([1])", "an object at TF_CONFIG, got [1]"},
      {R"({"cluster": 5})", "TF_CONFIG.cluster, got 5"},
      {R"({"cluster": {"worker": "a:1"}})", "TF_CONFIG.cluster.worker, got \"a:1\""},
      {R"({"cluster": {"worker": ["a:1", 2]}})", "TF_CONFIG.cluster.worker[1], got 2"},
      {R"({"cluster": {"worker": {"x": "a:1"}}})", "TF_CONFIG.cluster.worker", "\"x\""},
      {R"({"cluster": {"worker": {"-1": "a:1"}}})", "TF_CONFIG.cluster.worker", "\"-1\""},
      {R"({"cluster": {"worker": {"2000000000": "a:1"}}})", "TF_CONFIG.cluster.worker", "99999"},
      {R"({"cluster": {"worker": {"1": "a:1", "01": "b:1"}}})", "each index once",
       "TF_CONFIG.cluster.worker.1"},
      {R"({"cluster": {"master": ["a:1"], "chief": ["b:1"]}})", "the chief's", "TF_CONFIG.cluster"},
      {R"({"task": []})", "TF_CONFIG.task, got []"},
      {R"({"task": {"type": 3, "index": 0}})", "TF_CONFIG.task.type, got 3"},
      {R"({"task": {"type": "worker", "index": "one"}})", "TF_CONFIG.task.index", "\"one\""},
      {R"({"task": {"type": "worker", "index": -1}})", "TF_CONFIG.task.index, got -1"},
      {R"({"task": {"type": "worker", "index": 1.5}})", "TF_CONFIG.task.index, got 1.5"},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.text);
    const JobVariables variables{{"TF_CONFIG", each.text}};
    const TFConfigClusterResolver resolver;
    expect_error<InvalidArgument>({each.word, each.other}, [&] {
      resolver.cluster_spec();
      resolver.task_id();
    });
  }
}

// What an error shows of a value is written level by level, on the stack.
TEST(TFConfigClusterResolver, WhatIsTooDeepIsRefused) {
  constexpr std::size_t kLevels = 60'000;  // as many as a variable may hold
  const std::string text = std::string(kLevels, '[') + std::string(kLevels, ']');
  for (const char* variable : {"TF_CONFIG", "CLUSTER_SPEC"}) {
    const JobVariables variables{{variable, text.c_str()}};
    const TFConfigClusterResolver resolver;
    expect_error<InvalidArgument>({variable, "at most 100 levels"},
                                  [&] { resolver.cluster_spec(); });
  }
}

}  // namespace
}  // namespace cohort
