// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/callbacks/remote_monitor.h"

#include <gtest/gtest.h>

#include <string>

#include "cohort/base/strings.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/sequential.h"
#include "cohort/testing/expect_error.h"
#include "cohort/testing/http_server.h"
#include "cohort/testing/ports.h"

namespace cohort::keras {
namespace {

using testing::HttpServer;

// Two epochs of a model whose loss stays 4.
void fit_with(const RemoteMonitorOptions& options) {
  Sequential model{{Dense(1, {.use_bias = false, .kernel_initializer = "zeros"})}};
  model.compile({.optimizer = SGD({.learning_rate = 0.0}), .loss = "mse"});
  model.fit(ones({2, 1}), full({2, 1}, 2.0),
            {.epochs = 2, .callbacks = {RemoteMonitor(options)}, .verbose = Verbose::kSilent});
}

TEST(RemoteMonitor, SendsAFormAsKerasDoes) {
  const HttpServer server(HttpServer::Answers{{"POST /publish/epoch/end/", {}}});
  fit_with({.root = "http://" + server.address()});
  EXPECT_NE(server.asked().find("\r\n\r\ndata=%7B%22epoch%22%3A%200%2C%20%22loss%22%3A%204.0%7D"),
            std::string::npos)
      << server.asked();
  EXPECT_NE(server.asked().find("%22epoch%22%3A%201"), std::string::npos) << server.asked();
}

TEST(RemoteMonitor, SendsJsonWithHeaders) {
  const HttpServer server(HttpServer::Answers{{"POST /here", {}}});
  fit_with({.root = "http://" + server.address(),
            .path = "/here",
            .headers = {{"X-Run", "7"}},
            .send_as_json = true});
  const std::string asked = server.asked();
  EXPECT_NE(asked.find("X-Run: 7"), std::string::npos) << asked;
  EXPECT_NE(asked.find("Content-Type: application/json"), std::string::npos) << asked;
  EXPECT_NE(asked.find("\r\n\r\n{\"epoch\": 0, \"loss\": 4.0}"), std::string::npos) << asked;
}

TEST(RemoteMonitor, WarnsOnceOfAServerThatIsNotThere) {
  ::testing::internal::CaptureStderr();
  fit_with({.root = str_cat("http://127.0.0.1:", testing::free_ports(1).at(0))});
  const std::string said = ::testing::internal::GetCapturedStderr();
  const std::size_t first = said.find("epoch 0 was not received");
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("was not received", first + 20), std::string::npos) << said;
}

TEST(RemoteMonitor, RefusesWhatItCannotSend) {
  testing::expect_error<InvalidArgument>({"root"}, [] { RemoteMonitor({.root = ""}); });
  testing::expect_error<InvalidArgument>({"field"}, [] { RemoteMonitor({.field = ""}); });
}

}  // namespace
}  // namespace cohort::keras
