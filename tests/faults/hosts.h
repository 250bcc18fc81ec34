// SPDX-License-Identifier: Apache-2.0
//
// Hosts of a test's own, which are network namespaces on one bridge:
//
//   Hosts hosts(2);
//   Process worker(hosts.on(0, {PROGRAM}), hosts.environment_of(0));
//   hosts.shell(1, "nft add rule inet faults in drop");
//
// Needs root, ip and nft. Programs on different hosts see different machines: no memory is shared.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "cohort/base/strings.h"
#include "cohort/testing/process.h"
#include "cohort/testing/workers.h"

namespace cohort::proof {

class Hosts {
 public:
  explicit Hosts(int count) : count_(count) {
    run(str_cat("ip netns add ", switch_name(), " && ip -n ", switch_name(),
                " link add bridge type bridge && ip -n ", switch_name(), " link set bridge up"));
    for (int h = 0; h < count; ++h) add(h);
  }
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;
  ~Hosts() {
    for (int h = 0; h < count_; ++h) run(str_cat("ip netns del ", name(h)));
    run(str_cat("ip netns del ", switch_name()));
  }

  /// Whether this machine lets a test make hosts.
  static bool can_be_made() {
    testing::Process probe(
        {"sh", "-c",
         str_cat("ip netns add ", name(99), " && ip netns exec ", name(99),
                 " nft add table inet faults; made=$?; ip netns del ", name(99), "; exit $made")});
    return probe.wait() == 0;
  }

  /// The command as it runs on that host.
  std::vector<std::string> on(int host, const std::vector<std::string>& command) const {
    // The boot's id tells machines apart, and is this namespace's own from here on.
    std::vector<std::string> out = {
        "ip",
        "netns",
        "exec",
        name(host),
        "sh",
        "-c",
        str_cat("cat /proc/sys/kernel/random/uuid > /run/", name(host), ".id && mount --bind /run/",
                name(host), ".id /proc/sys/kernel/random/boot_id && exec \"$@\""),
        "sh"};
    out.insert(out.end(), command.begin(), command.end());
    return out;
  }
  /// Each host is a worker; the network is the test's own.
  std::vector<std::string> environment_of(int host) const {
    std::vector<std::string> workers;
    for (int h = 0; h < count_; ++h) workers.push_back(address(h));
    return {testing::worker_config(workers, host), str_cat("RANK=", host),
            "COHORT_ALLOW_INSECURE=1", "COHORT_MIN_LOG_LEVEL=1"};
  }
  static std::string address(int host) { return str_cat("10.77.0.", host + 1, ":5000"); }

  /// A line of shell on that host; what it says is the test's failure.
  void shell(int host, const std::string& line) const {
    run(str_cat("ip netns exec ", name(host), " sh -c '", line, "'"));
  }
  /// A rule for the packets that reach that host, such as "numgen random mod 100 < 5 drop".
  void filter(int host, const std::string& rule) const {
    shell(host, str_cat("nft \"add rule inet faults in ", rule, "\""));
  }
  void clear_filters(int host) const { shell(host, "nft flush chain inet faults in"); }
  int count() const { return count_; }

  /// From here on half of the packets that leave that host leave it twice; false where the kernel
  /// does not double them.
  bool double_packets(int host) const {
    testing::Process line({"sh", "-c", doubling(host)});
    return line.wait() == 0;
  }

 private:
  std::string doubling(int host) const {
    const std::string on = str_cat("ip netns exec ", name(host), " nft ");
    return str_cat(on, "add table netdev doubled && ", on,
                   "'add chain netdev doubled out { type filter hook egress device \"eth0\" "
                   "priority 0; }' && ",
                   on, "'add rule netdev doubled out numgen random mod 100 < 50 dup to \"eth0\"'");
  }
  static void run(const std::string& line) {
    testing::Process process({"sh", "-c", line});
    EXPECT_EQ(process.wait(), 0) << line << "\n" << process.text();
  }
  static std::string switch_name() { return str_cat("cohort", ::getpid()); }
  static std::string name(int host) { return str_cat(switch_name(), "h", host); }

  void add(int h) const {
    run(str_cat("ip netns add ", name(h), " && ip -n ", name(h), " link set lo up && ip -n ",
                name(h), " link add eth0 type veth peer name port", h, " netns ", switch_name(),
                " && ip -n ", name(h), " addr add 10.77.0.", h + 1, "/24 dev eth0 && ip -n ",
                name(h), " link set eth0 up && ip -n ", switch_name(), " link set port", h,
                " master bridge up"));
    shell(h,
          "nft add table inet faults && nft add chain inet faults in "
          "\"{ type filter hook input priority 0; }\"");
  }

  int count_;
};

}  // namespace cohort::proof
