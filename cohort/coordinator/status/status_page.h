// SPDX-License-Identifier: Apache-2.0
//
// A coordinator's state as a page for browsers: HTTP/1.1, GET and HEAD of "/" and "/status.json".
//
//   StatusPage page({.host = "127.0.0.1", .port = 0}, [] { return std::string("{}"); });
//   std::cout << page.url();
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cohort/rpc/security.h"

namespace cohort::internal::coordinator {

/// The page of what StatusBoard::json() says: it needs nothing else, runs no script and asks for
/// itself again every two seconds. Texts of others are escaped. Errors: InvalidArgument for another
/// text.
std::string status_html(const std::string& json);

/// Threads: one of its own answers, one question after the other, each of which has two seconds.
class StatusPage {
 public:
  struct Options {
    std::string host = "127.0.0.1";  ///< A number or a name of this machine.
    int port = 0;                    ///< 0: one that is free.
    /// Asked for as the password of HTTP's basic authentication; the user is any. Empty: nobody is
    /// asked, who must then be on this machine.
    rpc::Secret token = {};
    /// Allows other addresses than loopback's: what is said there can be read on the way.
    bool allow_insecure = false;
  };
  /// `json` is called for each question. Errors: InvalidArgument for an address beyond loopback
  /// without a token and allow_insecure, and for a short token; Error kAlreadyExists that names the
  /// address where it cannot listen.
  StatusPage(Options options, std::function<std::string()> json);
  ~StatusPage();
  StatusPage(const StatusPage&) = delete;
  StatusPage& operator=(const StatusPage&) = delete;

  /// "http://127.0.0.1:8080/".
  std::string url() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::internal::coordinator
