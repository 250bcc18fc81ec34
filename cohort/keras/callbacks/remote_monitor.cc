// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/callbacks/remote_monitor.h"

#include <memory>
#include <sstream>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/cluster/http.h"
#include "cohort/keras/config.h"
#include "cohort/keras/model.h"

namespace cohort::keras {
namespace {

std::string json(int epoch, const Logs& logs) {
  Config message = Config::object({{"epoch", epoch}});
  for (const std::string& name : logs.names()) message.set(name, logs.number(name));
  std::ostringstream out;
  out << message;
  return out.str();
}

class RemoteMonitorBase final : public CallbackBase {
 public:
  explicit RemoteMonitorBase(RemoteMonitorOptions options) : options_(std::move(options)) {
    COHORT_CHECK_ARG(!options_.root.empty(), "[remote_monitor] expected a root, got an empty one");
    COHORT_CHECK_ARG(!options_.field.empty(),
                     "[remote_monitor] expected a field, got an empty one");
  }

  void on_epoch_end(int epoch, Logs& logs) override {
    if (!model().strategy().extended().should_save_summary()) return;
    try {
      cohort::internal::cluster::http(request(json(epoch, logs)));
    } catch (const Error& error) {
      if (!std::exchange(warned_, true)) {
        COHORT_LOG(kWarning, "[remote_monitor] epoch ", epoch, " was not received: ", error.what());
      }
    }
  }

 private:
  cohort::internal::cluster::HttpRequest request(const std::string& message) const {
    cohort::internal::cluster::HttpRequest request{
        .url = options_.root + options_.path, .post = true, .timeout = options_.timeout};
    for (const auto& [name, value] : options_.headers) {
      request.headers.push_back(str_cat(name, ": ", value));
    }
    if (options_.send_as_json) {
      request.headers.emplace_back("Content-Type: application/json");
      request.body = message;
    } else {
      request.body = str_cat(cohort::internal::cluster::url_escaped(options_.field), "=",
                             cohort::internal::cluster::url_escaped(message));
    }
    return request;
  }

  const RemoteMonitorOptions options_;
  bool warned_ = false;
};

}  // namespace

RemoteMonitor::RemoteMonitor(RemoteMonitorOptions options)
    : Callback(std::make_shared<RemoteMonitorBase>(std::move(options))) {}

}  // namespace cohort::keras
