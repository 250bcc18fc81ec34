// SPDX-License-Identifier: Apache-2.0
//
// Against a small HTTP server, which answers as the clouds do.
#include "cohort/cluster/cloud.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "cohort/base/strings.h"
#include "cohort/cluster/test_variables.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"
#include "cohort/testing/http_server.h"
#include "cohort/testing/ports.h"

namespace cohort {
namespace {

using testing::expect_error;
using testing::HttpServer;
using testing::JobVariables;

std::string pod(const std::string& name, const std::string& ip, const std::string& phase,
                const std::string& index = {}) {
  const std::string annotations =
      index.empty() ? ""
                    : str_cat(R"(, "annotations": {"batch.kubernetes.io/job-completion-index": ")",
                              index, "\"}");
  return str_cat(R"({"metadata": {"name": ")", name, "\"", annotations,
                 R"(}, "status": {"hostIP": "192.168.0.1", "podIP": ")", ip, R"(", "phase": ")",
                 phase, "\"}}");
}

TEST(KubernetesClusterResolver, ListsTheRunningPodsOfEachJob) {
  const JobVariables none{};
  HttpServer server({{"GET /api/v1/pods?labelSelector=job-name%3Dmnist",
                      {.body = str_cat("{\"items\": [", pod("m-10-x", "10.0.0.3", "Running", "10"),
                                       ", ", pod("m-2-y", "10.0.0.2", "Running", "2"), "]}")}},
                     {"GET /api/v1/pods?labelSelector=role%20in%20%28ps%29",
                      {.body = str_cat("{\"items\": [", pod("b", "10.0.1.2", "Running"), ", ",
                                       pod("a", "fd00::1", "Running"), "]}")}}});
  KubernetesClusterResolver resolver(
      {.job_to_label_mapping = {{"worker", {"job-name=mnist"}}, {"ps", {"role in (ps)"}}},
       .api_server = "http://" + server.address(),
       .service_account = "/nowhere"});
  EXPECT_EQ(resolver.cluster_spec(), ClusterSpec({{"worker", {"10.0.0.2:8470", "10.0.0.3:8470"}},
                                                  {"ps", {"[fd00::1]:8470", "10.0.1.2:8470"}}}));
  EXPECT_FALSE(resolver.task_type()) << "which of them this one is Kubernetes does not say";
  resolver.set_task("worker", 1);
  EXPECT_EQ(resolver.master(), "grpc://10.0.0.3:8470");
}

TEST(KubernetesClusterResolver, APodLooksInItsOwnNamespace) {
  const JobVariables none{};
  HttpServer server({{"GET /api/v1/namespaces/team/pods?labelSelector=job-name%3Dtensorflow",
                      {.body = str_cat("{\"items\": [", pod("a", "10.0.0.1", "Running"), "]}")}}});
  std::string folder = (std::filesystem::temp_directory_path() / "account_XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/namespace") << "team";
  std::ofstream(folder + "/token") << "secret-token";
  const KubernetesClusterResolver resolver(
      {.api_server = "http://" + server.address(), .service_account = folder});
  EXPECT_EQ(resolver.cluster_spec(), ClusterSpec({{"worker", {"10.0.0.1:8470"}}}));
  EXPECT_EQ(server.asked().find("secret-token"), std::string::npos) << "it was sent in the open";
  std::filesystem::remove_all(folder);
}

TEST(KubernetesClusterResolver, SaysWhatIsWrong) {
  const JobVariables none{};
  const std::string path = "GET /api/v1/pods?labelSelector=job-name%3Dtensorflow";
  const auto resolver = [](const HttpServer& server) {
    return std::make_unique<KubernetesClusterResolver>(KubernetesOptions{
        .api_server = "http://" + server.address(), .service_account = "/nowhere"});
  };
  {
    HttpServer server(
        HttpServer::Answers{{path, {.body = "{\"items\": [" + pod("a", "", "Pending") + "]}"}}});
    expect_error<FailedPrecondition>({"Pod \"a\" is not running; phase: \"Pending\""},
                                     [&] { resolver(server)->cluster_spec(); });
  }
  {
    HttpServer server(HttpServer::Answers{{path, {.body = "{\"items\": []}"}}});
    expect_error<FailedPrecondition>({"job-name=tensorflow", "got none"},
                                     [&] { resolver(server)->cluster_spec(); });
  }
  {
    HttpServer server(HttpServer::Answers{{path, {.body = "pods is forbidden", .status = 403}}});
    expect_error<FailedPrecondition>({"403", "pods is forbidden", server.address()},
                                     [&] { resolver(server)->cluster_spec(); });
  }
  {
    HttpServer server(HttpServer::Answers{{path, {.body = "<html>"}}});
    expect_error<FailedPrecondition>({"expected JSON", server.address()},
                                     [&] { resolver(server)->cluster_spec(); });
  }
  expect_error<FailedPrecondition>({"KUBERNETES_SERVICE_HOST", "kubectl proxy"},
                                   [] { KubernetesClusterResolver().cluster_spec(); });
}

TEST(KubernetesClusterResolver, WhoDoesNotAnswerIsNamed) {
  const std::string address = str_cat("127.0.0.1:", testing::free_ports(1).front());
  expect_error<Unavailable>({address}, [&] {
    KubernetesClusterResolver({.api_server = "http://" + address, .service_account = "/nowhere"})
        .cluster_spec();
  });
}

constexpr const char* kZone = "/projects/p1/zones/z-1";

std::map<std::string, HttpServer::Answer> compute_engine() {
  const auto instance = [](const char* ip) {
    return HttpServer::Answer{
        .body = str_cat(R"({"networkInterfaces": [{"networkIP": ")", ip, R"("}]})")};
  };
  const std::string list = str_cat("POST ", kZone, "/instanceGroups/group/listInstances");
  return {{"GET /computeMetadata/v1/project/project-id", {.body = "p1"}},
          {"GET /computeMetadata/v1/instance/zone", {.body = "projects/12/zones/z-1"}},
          {"GET /computeMetadata/v1/instance/network-interfaces/0/ip", {.body = "10.0.0.2"}},
          {"GET /computeMetadata/v1/instance/service-accounts/default/token",
           {.body = R"({"access_token": "ya29.t", "expires_in": 3599, "token_type": "Bearer"})"}},
          {list, {.body = R"({"items": [{"instance": "https://x/zones/z-1/instances/m1"}],
                    "nextPageToken": "next"})"}},
          {list + "?pageToken=next",
           {.body = R"({"items": [{"instance": "https://x/zones/z-1/instances/m2"}]})"}},
          {str_cat("GET ", kZone, "/instances/m1"), instance("10.0.0.2")},
          {str_cat("GET ", kZone, "/instances/m2"), instance("10.0.0.10")}};
}

TEST(GCEClusterResolver, ListsTheMachinesOfAGroup) {
  const JobVariables none{};
  HttpServer server(compute_engine());
  const GCEClusterResolver resolver({.instance_group = "group",
                                     .port = 2222,
                                     .api = "http://" + server.address(),
                                     .metadata_host = server.address()});
  EXPECT_EQ(resolver.cluster_spec(),
            ClusterSpec({{"worker", {"10.0.0.10:2222", "10.0.0.2:2222"}}}));
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 1) << "the place of this machine's address";
  EXPECT_EQ(resolver.master(), "grpc://10.0.0.2:2222");
  EXPECT_NE(server.asked().find("Metadata-Flavor: Google"), std::string::npos);
  EXPECT_NE(server.asked().find("Authorization: Bearer ya29.t"), std::string::npos);
}

TEST(GCEClusterResolver, ATokenDoesNotTravelInTheOpen) {
  const JobVariables none{};
  HttpServer server(compute_engine());
  const GCEClusterResolver resolver({.instance_group = "group",
                                     .api = "http://127.0.0.1.example.com",
                                     .metadata_host = server.address()});
  expect_error<InvalidArgument>({"expected an address https://", "127.0.0.1.example.com"},
                                [&] { resolver.cluster_spec(); });
  expect_error<InvalidArgument>({"instance group"}, [] { GCEClusterResolver({}); });
}

TEST(TPUClusterResolver, IsRefusedByName) {
  {
    const JobVariables none{};
    expect_error<Unimplemented>({"no TPU backend", "grpc://1.2.3.4:8470"},
                                [] { TPUClusterResolver("grpc://1.2.3.4:8470"); });
    expect_error<FailedPrecondition>({"Please provide a TPU Name"}, [] { TPUClusterResolver(); });
  }
  {
    const JobVariables named{{"TPU_CONFIG", R"({"tpu_node_name": "my-tpu", "zone": "z"})"}};
    expect_error<Unimplemented>({"my-tpu"}, [] { TPUClusterResolver(); });
  }
  const JobVariables broken{{"TPU_CONFIG", "{"}};
  expect_error<InvalidArgument>({"TPU_CONFIG"}, [] { TPUClusterResolver(); });
}

}  // namespace
}  // namespace cohort
