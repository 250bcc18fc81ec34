// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/http.h"

#include <curl/curl.h>

#include <array>
#include <memory>

#include "cohort/base/check.h"

namespace cohort::internal::cluster {
namespace {

constexpr std::size_t kLongestAnswer = std::size_t{64} << 20;
constexpr std::size_t kShownOfAnswer = 300;

struct CloseCurl {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
};
struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using Headers = std::unique_ptr<curl_slist, FreeList>;

std::size_t append(const char* bytes, std::size_t size, std::size_t count, void* to) {
  auto* body = static_cast<std::string*>(to);
  if (body->size() + size * count > kLongestAnswer) return 0;  // which ends the transfer
  body->append(bytes, size * count);
  return size * count;
}

bool is_safe_for_tokens(const std::string& url) {
  if (url.starts_with("https://")) return true;
  for (const char* own : {"http://127.0.0.1", "http://localhost", "http://[::1]"}) {
    if (!url.starts_with(own)) continue;
    const std::string rest = url.substr(std::string_view(own).size());
    return rest.empty() || rest[0] == ':' || rest[0] == '/';
  }
  return false;
}

Headers headers_of(const HttpRequest& request) {
  curl_slist* list = nullptr;
  for (const std::string& each : request.headers) list = curl_slist_append(list, each.c_str());
  if (!request.bearer.empty()) {
    list = curl_slist_append(list, str_cat("Authorization: Bearer ", request.bearer).c_str());
  }
  return Headers(list);
}

}  // namespace

std::string http(const HttpRequest& request) {
  COHORT_CHECK_ARG(request.bearer.empty() || is_safe_for_tokens(request.url),
                   "[http] expected an address https://... for a request with a token, got ",
                   request.url);
  const std::unique_ptr<CURL, CloseCurl> curl(curl_easy_init());
  COHORT_CHECK(curl != nullptr, "libcurl could not be initialised");
  const Headers headers = headers_of(request);
  std::string body;
  std::array<char, CURL_ERROR_SIZE> error{};
  curl_easy_setopt(curl.get(), CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, &append);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &body);
  curl_easy_setopt(curl.get(), CURLOPT_ERRORBUFFER, error.data());
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT, static_cast<long>(request.timeout.count()));
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);  // other threads are the program's
  if (request.post) curl_easy_setopt(curl.get(), CURLOPT_COPYPOSTFIELDS, request.body.c_str());
  if (!request.ca_file.empty()) {
    curl_easy_setopt(curl.get(), CURLOPT_CAINFO, request.ca_file.c_str());
  }
  const CURLcode code = curl_easy_perform(curl.get());
  if (code != CURLE_OK) {
    throw Unavailable(str_cat("[http] expected an answer of ", request.url, ", got: ",
                              error[0] != '\0' ? error.data() : curl_easy_strerror(code)),
                      request.url);
  }
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  COHORT_CHECK_STATE(status == 200, "[http] expected status 200 of ", request.url, ", got ", status,
                     ": ", body.substr(0, kShownOfAnswer));
  return body;
}

std::string url_escaped(const std::string& text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '-' || c == '_' || c == '.' || c == '~') {
      out += c;
    } else {
      out += '%';
      out += kDigits[byte >> 4U];
      out += kDigits[byte & 15U];
    }
  }
  return out;
}

}  // namespace cohort::internal::cluster
