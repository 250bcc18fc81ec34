// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/store/store_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "cohort/base/errno_code.h"
#include "cohort/base/strings.h"
#include "cohort/cluster/store/store_server.h"

namespace cohort::internal::cluster {
namespace {

struct StorePipe {
  int read = -1;
  int write = -1;
  StorePipe() {
    std::array<int, 2> ends = {};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw Error(base::code_of_errno(errno),
                  str_cat("[store] expected a pipe, got: ", std::strerror(errno)));
    }
    read = ends[0];
    write = ends[1];
  }
};

void write_to_pipe(int to, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::write(to, text.data() + done, text.size() - done);
    if (wrote < 0 && errno != EINTR) return;
    if (wrote > 0) done += static_cast<std::size_t>(wrote);
  }
}

std::string read_to_end(int from) {
  std::string out;
  std::array<char, 512> bytes;
  while (true) {
    const ssize_t got = ::read(from, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return out;
    out.append(bytes.data(), static_cast<std::size_t>(got));
  }
}

// The launcher's connections are not the store's: who waits there for the end of one would wait for
// both. What else is open, gRPC may have made when it was loaded.
void close_connections_but(int first, int second) {
  std::vector<int> open;
  std::error_code none;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd", none)) {
    const std::string what = std::filesystem::read_symlink(each.path(), none).string();
    if (what.rfind("socket:", 0) != 0 && what.rfind("pipe:", 0) != 0) continue;
    open.push_back(std::stoi(each.path().filename().string()));
  }
  for (const int fd : open) {
    if (fd > STDERR_FILENO && fd != first && fd != second) ::close(fd);
  }
}

// In the child: keeps the store until the launcher ends. "=" and its address, or what went wrong.
[[noreturn]] void keep_store(const std::string& address, const rpc::RpcSecurity& security, int told,
                             int life) {
  // Ctrl-C is for the tasks, which end in good order; the store ends after them.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_NAME, "cohort_store");
  close_connections_but(told, life);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  try {
    const StoreServer server({.address = address, .security = security});
    write_to_pipe(told, "=" + server.address());
    ::close(told);
    read_to_end(life);
  } catch (const std::exception& e) {
    write_to_pipe(told, e.what());
    ::_exit(1);
  }
  ::_exit(0);
}

}  // namespace

StoreProcess::StoreProcess(const std::string& address, const rpc::RpcSecurity& security) {
  const StorePipe told;
  const StorePipe life;
  pid_ = ::fork();
  if (pid_ == 0) {
    ::close(told.read);
    ::close(life.write);
    keep_store(address, security, told.write, life.read);
  }
  ::close(told.write);
  ::close(life.read);
  life_ = life.write;
  const std::string said = pid_ < 0 ? std::strerror(errno) : read_to_end(told.read);
  ::close(told.read);
  if (!said.empty() && said.front() == '=') {
    address_ = said.substr(1);
    return;
  }
  ::close(life_);
  if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  throw Unavailable(str_cat("[store] expected a process that keeps the job's store at ", address,
                            ", got: ", said.empty() ? "its end" : said),
                    address);
}

StoreProcess::~StoreProcess() {
  ::close(life_);
  ::kill(pid_, SIGKILL);  // nothing that it has to tell anybody
  ::waitpid(pid_, nullptr, 0);
}

}  // namespace cohort::internal::cluster
