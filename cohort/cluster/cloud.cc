// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/cloud.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "cohort/base/check.h"
#include "cohort/cluster/http.h"
#include "cohort/cluster/internal/variables.h"

namespace cohort {
namespace {

using internal::cluster::http;
using internal::cluster::job_variable;
using nlohmann::json;

constexpr const char* kCompletionIndex = "batch.kubernetes.io/job-completion-index";

json parsed_answer(const std::string& url, const std::string& text) {
  try {
    return json::parse(text);
  } catch (const json::exception& e) {
    throw FailedPrecondition(str_cat("[http] expected JSON of ", url, ", got: ", e.what()));
  }
}

// Empty: there is no such file.
std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool exists(const std::string& path) { return std::ifstream(path).good(); }

std::string kubernetes_server(const KubernetesOptions& options) {
  if (!options.api_server.empty()) return options.api_server;
  const auto host = job_variable("KUBERNETES_SERVICE_HOST");
  COHORT_CHECK_STATE(host,
                     "[kubernetes] expected KUBERNETES_SERVICE_HOST in the environment of a "
                     "pod, got none: outside of the cluster give the address of `kubectl "
                     "proxy` as api_server");
  auto port = job_variable("KUBERNETES_SERVICE_PORT_HTTPS");
  if (!port) port = job_variable("KUBERNETES_SERVICE_PORT");
  const bool is_v6 = host->find(':') != std::string::npos;
  return str_cat("https://", is_v6 ? "[" + *host + "]" : *host, ":", port.value_or("443"));
}

struct Pod {
  int index = 0;  // of an indexed job
  std::string name = {};
  std::string address = {};
  bool operator<(const Pod& other) const {
    return std::tie(index, name) < std::tie(other.index, other.name);
  }
};

// Errors: FailedPrecondition unless it is running.
Pod pod_of(const json& item) {
  const json& metadata = item.at("metadata");
  Pod pod{.name = metadata.at("name").get<std::string>()};
  const std::string phase = item.at("status").value("phase", "Unknown");
  COHORT_CHECK_STATE(phase == "Running", "[kubernetes] Pod \"", pod.name,
                     "\" is not running; phase: \"", phase,
                     "\"; wait until all pods of the job run, or choose others by labels");
  pod.address = item.at("status").value("podIP", "");
  COHORT_CHECK_STATE(!pod.address.empty(), "[kubernetes] Pod \"", pod.name,
                     "\" has no address yet; ask again");
  if (pod.address.find(':') != std::string::npos) pod.address = "[" + pod.address + "]";
  const json annotations = metadata.value("annotations", json::object());
  if (annotations.contains(kCompletionIndex)) {
    pod.index = internal::cluster::whole_number(
        kCompletionIndex, annotations.at(kCompletionIndex).get<std::string>(), 0);
  }
  return pod;
}

}  // namespace

KubernetesClusterResolver::KubernetesClusterResolver(KubernetesOptions options)
    : ClusterResolver({.rpc_layer = options.rpc_layer}), options_(std::move(options)) {
  COHORT_CHECK_ARG(!options_.job_to_label_mapping.empty(),
                   "[kubernetes] expected selectors of at least 1 job, got none");
}

ClusterSpec KubernetesClusterResolver::cluster_spec() const {
  const std::string server = kubernetes_server(options_);
  const std::string& account = options_.service_account;
  const std::string space =
      options_.name_space ? *options_.name_space : read_line(account + "/namespace");
  const std::string list = space.empty() ? server + "/api/v1/pods"
                                         : str_cat(server, "/api/v1/namespaces/",
                                                   internal::cluster::url_escaped(space), "/pods");
  internal::cluster::HttpRequest request;
  if (server.starts_with("https://")) {
    request.bearer = read_line(account + "/token");
    if (exists(account + "/ca.crt")) request.ca_file = account + "/ca.crt";
  }
  ClusterSpec::Jobs jobs;
  for (const auto& [job, selectors] : options_.job_to_label_mapping) {
    for (const std::string& selector : selectors) {
      request.url = str_cat(list, "?labelSelector=", internal::cluster::url_escaped(selector));
      const json answer = parsed_answer(request.url, http(request));
      std::vector<Pod> pods;
      try {
        for (const json& item : answer.at("items")) pods.push_back(pod_of(item));
      } catch (const json::exception& e) {
        throw FailedPrecondition(
            str_cat("[kubernetes] expected a list of pods of ", request.url, ", got: ", e.what()));
      }
      std::sort(pods.begin(), pods.end());
      for (const Pod& pod : pods) {
        jobs[job].push_back(str_cat(pod.address, ":", options_.tf_server_port));
      }
    }
    COHORT_CHECK_STATE(!jobs[job].empty(), "[kubernetes] expected pods of job '", job,
                       "' with labels ", bracketed(selectors), " in ",
                       space.empty() ? "all namespaces" : "namespace " + space, ", got none");
  }
  return ClusterSpec(jobs);
}

namespace {

std::string gce_metadata(const GCEOptions& options, const std::string& path) {
  const std::string host =
      options.metadata_host.empty()
          ? job_variable("GCE_METADATA_HOST").value_or("metadata.google.internal")
          : options.metadata_host;
  return http({.url = str_cat("http://", host, "/computeMetadata/v1/", path),
               .headers = {"Metadata-Flavor: Google"},
               .timeout = std::chrono::seconds(5)});
}

// "projects/123/zones/europe-west1-b" without what stands before its name.
std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string gce_token(const GCEOptions& options) {
  const std::string answer = gce_metadata(options, "instance/service-accounts/default/token");
  const json parsed = parsed_answer("the metadata server", answer);
  COHORT_CHECK_STATE(parsed.is_object() && parsed.contains("access_token") &&
                         parsed.at("access_token").is_string(),
                     "[gce] expected an access token of the metadata server: has the machine a "
                     "service account?");
  return parsed.at("access_token").get<std::string>();
}

std::vector<std::string> gce_instances(const std::string& zone, const GCEOptions& options,
                                       internal::cluster::HttpRequest request) {
  request.post = true;
  request.body = R"({"instanceState": "RUNNING"})";
  request.headers = {"Content-Type: application/json"};
  const std::string list =
      str_cat(zone, "/instanceGroups/", internal::cluster::url_escaped(options.instance_group),
              "/listInstances");
  std::vector<std::string> names;
  std::string page;
  do {
    request.url =
        page.empty() ? list : str_cat(list, "?pageToken=", internal::cluster::url_escaped(page));
    const json answer = parsed_answer(request.url, http(request));
    for (const json& item : answer.value("items", json::array())) {
      names.push_back(last_part(item.at("instance").get<std::string>()));
    }
    page = answer.value("nextPageToken", "");
  } while (!page.empty());
  return names;
}

}  // namespace

GCEClusterResolver::GCEClusterResolver(GCEOptions options)
    : ClusterResolver({.task_type = options.task_type,
                       .task_id = options.task_id,
                       .rpc_layer = options.rpc_layer}),
      options_(std::move(options)) {
  COHORT_CHECK_ARG(!options_.instance_group.empty(),
                   "[gce] expected the name of an instance group, got none");
}

ClusterSpec GCEClusterResolver::cluster_spec() const {
  const std::string project =
      options_.project.empty() ? gce_metadata(options_, "project/project-id") : options_.project;
  const std::string zone =
      options_.zone.empty() ? last_part(gce_metadata(options_, "instance/zone")) : options_.zone;
  const std::string base =
      str_cat(options_.api, "/projects/", internal::cluster::url_escaped(project), "/zones/",
              internal::cluster::url_escaped(zone));
  internal::cluster::HttpRequest request{.bearer = gce_token(options_)};
  std::vector<std::string> addresses;
  try {
    for (const std::string& name : gce_instances(base, options_, request)) {
      request.url = str_cat(base, "/instances/", internal::cluster::url_escaped(name));
      const json instance = parsed_answer(request.url, http(request));
      const auto ip = instance.at("networkInterfaces").at(0).at("networkIP").get<std::string>();
      addresses.push_back(str_cat(ip, ":", options_.port));
    }
  } catch (const json::exception& e) {
    throw FailedPrecondition(str_cat("[gce] expected the machines of group ",
                                     options_.instance_group, " of ", base, ", got: ", e.what()));
  }
  std::sort(addresses.begin(), addresses.end());
  return ClusterSpec(ClusterSpec::Jobs{{options_.task_type, addresses}});
}

TaskOptions GCEClusterResolver::do_task() const {
  if (options_.task_id) return {};
  const std::string own =
      str_cat(gce_metadata(options_, "instance/network-interfaces/0/ip"), ":", options_.port);
  const ClusterSpec spec = cluster_spec();
  for (const auto& [index, address] : spec.as_map().at(options_.task_type)) {
    if (address == own) return {.task_id = index};
  }
  throw FailedPrecondition(str_cat("[gce] expected this machine, ", own, ", in group ",
                                   options_.instance_group, ", got ", spec.to_string()));
}

TPUClusterResolver::TPUClusterResolver(const std::string& tpu) {
  std::string name = tpu;
  for (const char* variable :
       {"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_WORKER_HOSTNAMES", "TPU_NAME"}) {
    if (name.empty()) name = job_variable(variable).value_or("");
  }
  const auto config = job_variable("TPU_CONFIG");
  if (name.empty() && config) {
    const json parsed = json::parse(*config, nullptr, /*allow_exceptions=*/false);
    COHORT_CHECK_ARG(parsed.is_object(), "[tpu] expected TPU_CONFIG to be a JSON object, got ",
                     *config);
    const json node = parsed.value("tpu_node_name", json());
    if (node.is_string()) name = node.get<std::string>();
  }
  COHORT_CHECK_STATE(!name.empty(),
                     "[tpu] Please provide a TPU Name to connect to: none is in the environment");
  throw Unimplemented(str_cat("[tpu] LibTorch has no TPU backend, so Cohort cannot use \"", name,
                              "\". Take MirroredStrategy or MultiWorkerMirroredStrategy"));
}

}  // namespace cohort
