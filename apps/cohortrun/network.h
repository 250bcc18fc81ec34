// SPDX-License-Identifier: Apache-2.0
//
// Addresses, ports and connections of this host.
#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

namespace cohortrun {

struct Endpoint {
  std::string host = {};
  int port = 0;
};

/// "host:port", "[::1]:port" or "host". Errors: std::runtime_error that says `what`.
Endpoint endpoint_of(const std::string& text, int default_port, const std::string& what);

/// The first address of a network interface, IPv4 before IPv6 (in brackets).
/// Errors: std::runtime_error that names the interfaces that are there.
std::string address_of_interface(const std::string& name);

/// Whether a name is this host itself.
bool is_this_host(const std::string& host);
bool is_loopback(const std::string& host);
std::string own_host_name();

std::string address_text(const sockaddr_storage& address);

/// Nobody knows the name (yet: that of a pod comes a moment after the pod).
inline constexpr int kNameNotKnown = -2;
/// A listening socket at an address of this host; -1 if it is another host's, or somebody listens
/// there already; kNameNotKnown.
int listen_at(const Endpoint& at);
/// -1: nobody waits to be let in. `from`: the other one's address.
int accept_from(int listening, std::string* from);
/// Begins to connect; -1 if the name is not known. The socket can be written to when it has ended.
int begin_to_connect(const Endpoint& to);
/// Whether that connected.
bool has_connected(int socket);
/// So that a host that is cut off is noticed within half a minute.
void notice_silence(int socket);

}  // namespace cohortrun
