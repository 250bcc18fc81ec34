// SPDX-License-Identifier: Apache-2.0
//
// TF_CONFIG and its dialects.
#include <nlohmann/json.hpp>

#include "cohort/base/check.h"
#include "cohort/cluster/environment.h"
#include "cohort/cluster/internal/variables.h"
#include "cohort/cluster/roles.h"

namespace cohort {
namespace {

using internal::cluster::job_variable;
using nlohmann::json;

constexpr int kLargestIndex = 99'999;
constexpr std::size_t kLongestConfig = std::size_t{16} << 20;
// Far more than a cluster has; what an error shows is written by functions that call themselves.
constexpr int kDeepest = 100;

// A value of a variable's JSON, and where it stands: "TF_CONFIG.cluster.worker[1]".
struct Place {
  const json* value = nullptr;
  std::string path = {};

  bool has(const char* key) const { return value->is_object() && value->contains(key); }
  Place at(const std::string& key) const { return {&value->at(key), path + "." + key}; }
  [[noreturn]] void fail(const char* expected) const {
    std::string got = value->dump(-1, ' ', false, json::error_handler_t::replace);
    constexpr std::size_t kShown = 80;
    if (got.size() > kShown) got = got.substr(0, kShown) + "...";
    throw InvalidArgument(str_cat("[tf_config] expected ", expected, " at ", path, ", got ", got));
  }
  std::string text(const char* expected) const {
    if (!value->is_string()) fail(expected);
    return value->get<std::string>();
  }
};

struct Config {
  std::string variable;
  json parsed;
  Place root() const { return {&parsed, variable}; }
};

// Reads the variable anew: programs may set it.
Config read_config() {
  Config config{.variable = "TF_CONFIG", .parsed = json::object()};
  auto text = job_variable("TF_CONFIG");
  if (!text) {
    text = job_variable("CLUSTER_SPEC");
    if (text) config.variable = "CLUSTER_SPEC";
  }
  if (!text) return config;
  COHORT_CHECK_ARG(text->size() <= kLongestConfig, "[tf_config] expected at most ", kLongestConfig,
                   " bytes in ", config.variable, ", got ", text->size());
  const auto check_depth = [&](int depth, json::parse_event_t, const json&) {
    COHORT_CHECK_ARG(depth <= kDeepest, "[tf_config] expected ", config.variable,
                     " to have at most ", kDeepest, " levels, got more");
    return true;
  };
  try {
    config.parsed = json::parse(*text, check_depth);
  } catch (const json::exception& e) {
    throw InvalidArgument(
        str_cat("[tf_config] expected ", config.variable, " to be JSON, got: ", e.what()));
  }
  if (!config.parsed.is_object()) config.root().fail("an object");
  return config;
}

// What others call the four jobs.
std::string own_name(const std::string& job) {
  static const std::map<std::string, std::string> kNames = {{"master", "chief"},
                                                            {"workerpool0", "chief"},
                                                            {"workerpool1", "worker"},
                                                            {"workerpool2", "ps"},
                                                            {"workerpool3", "evaluator"}};
  const auto found = kNames.find(job);
  return found == kNames.end() ? job : found->second;
}

int index_of(const Place& place) {
  constexpr const char* kExpected = "an index of 0 to 99999";
  if (place.value->is_number_integer()) {
    const auto index = place.value->get<int64_t>();
    if (index < 0 || index > kLargestIndex) place.fail(kExpected);
    return static_cast<int>(index);
  }
  const int index = internal::cluster::whole_number(place.path, place.text(kExpected), 0);
  if (index > kLargestIndex) place.fail(kExpected);
  return index;
}

std::map<int, std::string> tasks_at(const Place& job) {
  constexpr const char* kAddress = "an address host:port";
  std::map<int, std::string> tasks;
  if (job.value->is_array()) {
    for (std::size_t i = 0; i < job.value->size(); ++i) {
      const Place task{&(*job.value)[i], str_cat(job.path, "[", i, "]")};
      tasks.emplace(static_cast<int>(i), task.text(kAddress));
    }
    return tasks;
  }
  if (!job.value->is_object()) job.fail("a list of addresses, or an object of them by index");
  for (const auto& [key, value] : job.value->items()) {
    const json index = key;
    const Place task{&value, str_cat(job.path, ".", key)};
    const int number = index_of({&index, str_cat(job.path, " (index)")});
    if (!tasks.emplace(number, task.text(kAddress)).second) task.fail("each index once");  // "01"
  }
  return tasks;
}

}  // namespace

ClusterSpec TFConfigClusterResolver::cluster_spec() const {
  const Config config = read_config();
  const Place root = config.root();
  if (!root.has("cluster")) return {};
  const Place cluster = root.at("cluster");
  if (!cluster.value->is_object()) cluster.fail("an object of jobs");
  ClusterSpec::SparseJobs jobs;
  for (const auto& [name, tasks] : cluster.value->items()) {
    const Place job = cluster.at(name);
    if (!jobs.emplace(own_name(name), tasks_at(job)).second)
      job.fail("one job that is the chief's");
  }
  // Kubeflow gives a dynamic cluster's other jobs without tasks.
  std::erase_if(jobs, [](const auto& job) { return job.second.empty(); });
  return ClusterSpec::sparse(std::move(jobs));
}

TaskOptions TFConfigClusterResolver::do_task() const {
  const Config config = read_config();
  const Place root = config.root();
  TaskOptions out;
  if (root.has("rpc_layer")) out.rpc_layer = root.at("rpc_layer").text("the name of a protocol");
  if (root.has("environment")) out.environment = root.at("environment").text("a name");
  if (!root.has("task")) return out;
  const Place task = root.at("task");
  if (!task.value->is_object()) task.fail("an object with type and index");
  if (task.has("type")) out.task_type = own_name(task.at("type").text("a job's name"));
  if (task.has("index")) out.task_id = index_of(task.at("index"));
  return out;
}

std::string TFConfigClusterResolver::master(const TaskOptions& task) const {
  const Config config = read_config();
  if (config.root().has("session_master")) {
    return config.root().at("session_master").text("an address");
  }
  const ClusterSpec spec = cluster_spec();
  const std::vector<std::string> jobs = spec.jobs();
  if (jobs.size() == 1 && spec.num_tasks(jobs.front()) == 1) return {};
  return ClusterResolver::master(task);
}

std::string internal::cluster::variable_of(const ClusterResolver& resolver) {
  if (dynamic_cast<const TFConfigClusterResolver*>(&resolver) == nullptr) return {};
  return job_variable("TF_CONFIG") ? "TF_CONFIG" : "CLUSTER_SPEC";
}

}  // namespace cohort
