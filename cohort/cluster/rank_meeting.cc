// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/internal/rank_meeting.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <optional>

#include "cohort/base/check.h"
#include "cohort/cluster/store/store_server.h"

namespace cohort::internal::cluster {
namespace {

// The address of this host from which packets to that one leave; nothing is sent.
std::string own_address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, &::freeaddrinfo);
  const int fd = ::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  std::array<char, NI_MAXHOST> text{};
  const bool known = fd >= 0 && ::connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
                     ::getnameinfo(reinterpret_cast<const sockaddr*>(&own), size, text.data(),
                                   text.size(), nullptr, 0, NI_NUMERICHOST) == 0;
  if (fd >= 0) ::close(fd);
  if (!known) return {};
  return own.ss_family == AF_INET6 ? str_cat("[", text.data(), "]") : text.data();
}

std::string task_name(int rank) { return str_cat("rank ", rank); }

}  // namespace

std::vector<std::string> addresses_of_ranks(const RankPlace& place) {
  const std::string host = place.meeting.substr(0, place.meeting.rfind(':'));
  const std::string own = own_address_towards(host);
  COHORT_CHECK_ARG(!own.empty(), "[launcher] expected a route to MASTER_ADDR ", host,
                   ", got none: its name cannot be resolved here, or the host is unreachable");
  const rpc::RpcSecurity security = rpc::security_from_environment();
  std::optional<StoreServer> server;
  if (place.rank == 0) {
    server.emplace(StoreServerOptions{.address = place.meeting, .security = security});
  }
  StoreClient client({.address = place.meeting,
                      .keeper = "rank 0",
                      .security = security,
                      .task = task_name(place.rank),
                      .lease = place.timeout,
                      .start_timeout = place.timeout});
  const auto addresses = client.store()->meet("addresses of ranks", place.size,
                                              str_cat(own, ":", place.port), place.timeout);
  // Rank 0 stays until all have read them, and may be gone before it has answered that they have.
  const auto has_read = [](int rank) { return str_cat("has read: ", task_name(rank)); };
  if (place.rank == 0) {
    for (int r = 1; r < place.size; ++r) client.store()->get(has_read(r), place.timeout);
  }
  try {
    client.store()->set(has_read(place.rank), "");
    client.leave(std::chrono::seconds(1));
  } catch (const Unavailable&) {
    if (place.rank == 0) throw;
  }
  std::vector<std::string> out;
  for (int r = 0; r < place.size; ++r) {
    const auto found = addresses.find(task_name(r));
    COHORT_CHECK_STATE(found != addresses.end(), "[launcher] expected ", place.size, " ranks at ",
                       place.meeting, ", got none of rank ", r, "; see that rank's output");
    out.push_back(found->second);
  }
  return out;
}

}  // namespace cohort::internal::cluster
