// SPDX-License-Identifier: Apache-2.0
//
// Requests to the interfaces of clouds, over HTTP or HTTPS.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace cohort::internal::cluster {

struct HttpRequest {
  std::string url = {};
  std::vector<std::string> headers = {};  ///< "Name: value"
  std::string body = {};                  ///< Sent by POST where `post` is set.
  bool post = false;
  std::string bearer = {};   ///< A token: sent over HTTPS, and to this host itself only.
  std::string ca_file = {};  ///< Who may sign the server's certificate. Empty: as the system says.
  std::chrono::seconds timeout{20};
};

/// The answer's body. Redirections are not followed.
/// Errors: Unavailable that names the address if nobody answers in time; FailedPrecondition with
///         the status and what the server says for any other than 200; InvalidArgument for a token
///         that would be sent unencrypted.
///         No text has the token in it.
/// Blocks: until the answer is there, `timeout` at most.
std::string http(const HttpRequest& request);

/// A text as part of a URL.
std::string url_escaped(const std::string& text);

}  // namespace cohort::internal::cluster
