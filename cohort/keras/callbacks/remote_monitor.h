// SPDX-License-Identifier: Apache-2.0
//
// RemoteMonitor: sends what the logs say of each epoch to a server.
//
//   model.fit(train, {.epochs = 10,
//                     .callbacks = {keras::RemoteMonitor({.root = "http://localhost:9000"})}});
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "cohort/keras/callbacks/callback.h"

namespace cohort::keras {

struct RemoteMonitorOptions {
  std::string root = "http://localhost:9000";
  std::string path = "/publish/epoch/end/";
  std::string field = "data";                       ///< Of the form.
  std::map<std::string, std::string> headers = {};  ///< Sent besides those that HTTP needs.
  bool send_as_json = false;                        ///< JSON as it is, not in a form's field.
  std::chrono::seconds timeout{20};                 ///< Of a request; Keras waits for ever.
};

/// A POST request at the end of each epoch: {"epoch": 0, "loss": 0.5, ...}. Of several workers the
/// chief sends. A server that does not answer, or not with 200, is a warning, once; training goes
/// on, and later epochs are sent, too. TF: keras.callbacks.RemoteMonitor.
class RemoteMonitor : public Callback {
 public:
  /// Errors: InvalidArgument for an empty root or field.
  /// Blocks: an epoch's end until the server has answered, `timeout` at most.
  explicit RemoteMonitor(RemoteMonitorOptions options = {});
};

}  // namespace cohort::keras
