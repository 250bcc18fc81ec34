// SPDX-License-Identifier: Apache-2.0
#include "doctor.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "cohort/base/strings.h"
#include "cohort/cluster/environment.h"
#include "cohort/cluster/roles.h"
#include "cohort/rpc/security.h"
#include "cohort/rpc/tls.h"

namespace cohort_tool {
namespace {

using cohort::str_cat;
using Clock = std::chrono::steady_clock;

class Report {
 public:
  void line(const std::string& what, const std::string& text) {
    std::printf("%-13s %s\n", what.c_str(), text.c_str());
  }
  void wrong(const std::string& text) { wrong_.push_back(text); }
  int end() const {
    for (const std::string& each : wrong_) std::printf("wrong: %s\n", each.c_str());
    if (wrong_.empty()) std::printf("nothing is wrong\n");
    return wrong_.empty() ? 0 : 1;
  }

 private:
  std::vector<std::string> wrong_;
};

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

void show_versions(Report& report) {
  report.line("Cohort", str_cat(COHORT_VERSION, ", for LibTorch ", COHORT_LIBTORCH_VERSION,
                                ", compiled by ", __VERSION__));
  utsname name{};
  ::uname(&name);
  report.line("system", str_cat(name.sysname, " ", name.release, " ", name.machine, ", host ",
                                name.nodename));
  std::array<char, 32> utc{};
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::strftime(utc.data(), utc.size(), "%Y-%m-%d %H:%M:%S", &parts);
  report.line("clock", str_cat(utc.data(), " UTC, by ",
                               first_line("/sys/devices/system/clocksource/"
                                          "clocksource0/current_clocksource")));
  if (parts.tm_year + 1900 < 2024) {
    report.wrong("the clock is in the past, so certificates do not hold: set it (NTP)");
  }
}

// Cores that a container may use; 0: all.
double quota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string limit;
  double period = 0;
  if (!(file >> limit >> period) || limit == "max" || period <= 0) return 0;
  return std::strtod(limit.c_str(), nullptr) / period;
}

void show_cores(Report& report) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int allowed = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
  const double limit = quota();
  report.line("cores", str_cat(allowed, " allowed of ", ::sysconf(_SC_NPROCESSORS_ONLN),
                               limit > 0 ? str_cat(", quota ", limit) : ", no quota"));
  if (limit > 0 && limit < allowed) {
    report.wrong(str_cat("the container may use ", limit, " cores but sees ", allowed,
                         ": threads beyond the quota are stopped again and again. Give it whole "
                         "cores, or fewer (taskset, cpuset)"));
  }
}

void show_transports(Report& report) {
  const int fd = ::memfd_create("cohort_doctor", MFD_CLOEXEC);
  bool shared = fd >= 0 && ::ftruncate(fd, 4096) == 0;
  if (shared) {
    void* at = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    shared = at != MAP_FAILED;
    if (shared) ::munmap(at, 4096);
  }
  const int error = errno;
  if (fd >= 0) ::close(fd);
#ifdef COHORT_HAS_MPI
  const std::string others = "TCP, MPI";
#else
  const std::string others = "TCP";
#endif
  report.line("transports",
              str_cat(shared ? "shared memory between processes of this host, " : "", others));
  if (!shared) {
    report.wrong(
        str_cat("processes of this host cannot share memory (memfd): ", std::strerror(error)));
  }
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

// What an address answers to a connection.
std::string answer_of(const std::string& address, std::chrono::milliseconds timeout, bool* ok) {
  *ok = false;
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) return "is no host:port";
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const auto begin = Clock::now();
  const int failed = ::getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found);
  if (failed != 0) return str_cat("its name is not known: ", ::gai_strerror(failed));
  const std::unique_ptr<addrinfo, FreeAddresses> list(found);
  std::string last = "no address";
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    const int fd = ::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) continue;
    int error = ::connect(fd, each->ai_addr, each->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      pollfd polled{.fd = fd, .events = POLLOUT, .revents = 0};
      socklen_t size = sizeof error;
      if (::poll(&polled, 1, static_cast<int>(timeout.count())) != 1) {
        error = ETIMEDOUT;
      } else {
        ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
      }
    }
    ::close(fd);
    if (error == 0) {
      *ok = true;
      return str_cat("answers in ", std::chrono::duration<double>(Clock::now() - begin).count(),
                     " s");
    }
    last = std::strerror(error);
    // The host is there; its task need not have been started yet.
    if (error == ECONNREFUSED) {
      *ok = true;
      return "its host answers, nobody listens there now";
    }
  }
  return str_cat("does not answer: ", last);
}

bool is_set(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr && *text != '\0';
}

// Who is let in to the job, and whether what travels is encrypted; no word of a secret itself.
cohort::internal::rpc::RpcSecurity show_security(Report& report) {
  cohort::internal::rpc::RpcSecurity security;
  try {
    security = cohort::internal::rpc::security_from_environment();
    if (security.has_tls()) cohort::internal::rpc::TlsContext::of_certificates(security);
  } catch (const std::exception& e) {
    report.wrong(e.what());
    return security;
  }
  const bool by_file = !security.token.empty() && !is_set("COHORT_JOB_TOKEN");
  std::string token = "none is given: the chief draws one";
  if (!security.token.empty()) token = "in COHORT_JOB_TOKEN";
  if (by_file) token = str_cat("in ", std::getenv("COHORT_JOB_TOKEN_FILE"));
  report.line("token", token);
  struct stat file {};
  if (by_file && ::stat(std::getenv("COHORT_JOB_TOKEN_FILE"), &file) == 0 &&
      (file.st_mode & 077U) != 0) {
    report.wrong(str_cat("others can read the job's token in ",
                         std::getenv("COHORT_JOB_TOKEN_FILE"), ": chmod 600"));
  }
  std::string tls = "none: addresses beyond loopback are refused";
  if (security.allow_insecure) tls = "none: addresses beyond loopback are allowed in the open";
  if (security.has_tls()) tls = str_cat("by the certificate ", security.certificate);
  report.line("TLS", tls);
  return security;
}

void show_store(const DoctorOptions& options, Report& report) {
  if (!is_set("COHORT_STORE")) return;
  const std::string address = std::getenv("COHORT_STORE");
  bool ok = false;
  const std::string answer = answer_of(address, options.connect_timeout, &ok);
  report.line("store", str_cat(address, " ", answer));
  if (answer.rfind("answers", 0) != 0) {
    report.wrong(str_cat("the launcher's store at ", address, " (COHORT_STORE) ", answer));
  }
}

bool is_beyond_loopback(const std::string& address) {
  try {
    return !cohort::internal::rpc::is_loopback_target(address);
  } catch (const cohort::Error&) {
    return false;  // what is wrong with it is said elsewhere
  }
}

void show_addresses(const cohort::ClusterSpec& spec, const DoctorOptions& options,
                    const cohort::internal::rpc::RpcSecurity& security, Report& report) {
  const bool may_be_far = security.has_tls() || security.allow_insecure;
  for (const auto& [job, tasks] : spec.as_map()) {
    for (const auto& [index, address] : tasks) {
      bool ok = false;
      const std::string answer = answer_of(address, options.connect_timeout, &ok);
      report.line(str_cat(job, " ", index), str_cat(address, " ", answer));
      if (!ok) {
        report.wrong(str_cat(job, " ", index, " at ", address, " ", answer,
                             ". Look at its name, the network and the firewall between"));
      }
      if (!may_be_far && is_beyond_loopback(address)) {
        report.wrong(str_cat(job, " ", index, " at ", address,
                             " is beyond loopback, which is refused without TLS: start the job by "
                             "cohortrun, which makes certificates, or see COHORT_TLS_CERTIFICATE "
                             "and COHORT_ALLOW_INSECURE"));
      }
    }
  }
}

void show_cluster(const DoctorOptions& options, const cohort::internal::rpc::RpcSecurity& security,
                  Report& report) {
  const cohort::internal::cluster::ClusterSource source =
      cohort::internal::cluster::cluster_source();
  if (source.resolver.empty()) {
    report.line("cluster", "none is described in the environment: a process is alone");
    return;
  }
  report.line("cluster", str_cat("by ", source.resolver, ": ", source.reason));
  try {
    const auto resolver = cohort::detect_cluster();
    const cohort::ClusterSpec spec = resolver->cluster_spec();
    if (spec.empty()) return report.line("task", "no cluster: a process is alone");
    const auto type = resolver->task_type();
    const auto id = resolver->task_id();
    if (!type || !id) {
      report.wrong(
          "the cluster does not say which of its tasks this one is: TF_CONFIG needs "
          "\"task\": {\"type\": ..., \"index\": ...}");
    } else {
      const cohort::internal::cluster::TaskName task{*type, *id};
      report.line("task",
                  str_cat(*type, " ", *id,
                          cohort::internal::cluster::is_chief(spec, task) ? ", the chief" : ""));
    }
    show_addresses(spec, options, security, report);
  } catch (const std::exception& e) {
    report.wrong(e.what());
  }
}

}  // namespace

int doctor(const DoctorOptions& options) {
  Report report;
  show_versions(report);
  show_cores(report);
  show_transports(report);
  const cohort::internal::rpc::RpcSecurity security = show_security(report);
  show_store(options, report);
  show_cluster(options, security, report);
  return report.end();
}

}  // namespace cohort_tool
