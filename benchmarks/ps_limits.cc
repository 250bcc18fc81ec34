// SPDX-License-Identifier: Apache-2.0
#include "ps_limits.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "cohort/base/check.h"
#include "cohort/base/strings.h"
#include "cohort/collectives/transports/tcp/socket.h"
#include "cohort/runtime/relax.h"

namespace cohort::bench {

std::string program_path() {
  std::string path(4096, '\0');
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
  path.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return path;
}

double us_since(std::chrono::steady_clock::time_point begin, std::int64_t steps) {
  const std::chrono::duration<double, std::micro> all = std::chrono::steady_clock::now() - begin;
  return all.count() / static_cast<double>(steps);
}

namespace {

constexpr std::size_t kBufferBytes = std::size_t{64} << 20;
constexpr std::size_t kSharedBytes = std::size_t{8} << 20;

void send_all(int socket, const void* from, std::size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t sent = ::send(socket, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) throw Internal("[ps_bench] expected to send, got a closed socket");
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
}

bool receive_all(int socket, void* to, std::size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::recv(socket, at, bytes, 0);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

void set_no_delay(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

struct Freed {
  void operator()(float* data) const { std::free(data); }
};
using Table = std::unique_ptr<float, Freed>;

Table table_of_ones() {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  constexpr std::size_t kBytes = (kTableRows * kRowBytes + kHugePage - 1) / kHugePage * kHugePage;
  Table out(static_cast<float*>(std::aligned_alloc(kHugePage, kBytes)));
  COHORT_CHECK(out != nullptr, "no memory");
  ::madvise(out.get(), kBytes, MADV_HUGEPAGE);
  std::fill_n(out.get(), kTableRows * kWidth, 1.0F);
  return out;
}

// Gathers rows [first, last) of all, or adds to them.
void work_on_rows(float* table, const std::int64_t* rows, float* at, bool adds, std::int64_t first,
                  std::int64_t last) {
  constexpr std::int64_t kAhead = 16;
  at += first * kWidth;
  for (std::int64_t i = first; i < last; ++i, at += kWidth) {
    const float* const next = table + rows[std::min(i + kAhead, kIds - 1)] * kWidth;
    __builtin_prefetch(next, 1);
    __builtin_prefetch(next + kWidth / 2, 1);
    float* const here = table + rows[i] * kWidth;
    if (!adds) {
      std::memcpy(at, here, kRowBytes);
      continue;
    }
    for (std::int64_t n = 0; n < kWidth; ++n) here[n] -= 0.01F * at[n];
  }
}

void answer(int socket) {
  const Table table = table_of_ones();
  std::vector<char> bytes(kBufferBytes);
  std::vector<std::int64_t> rows(kIds);
  Request request;
  while (receive_all(socket, &request, sizeof(request))) {
    if (request.rows != 0) receive_all(socket, rows.data(), rows.size() * sizeof(std::int64_t));
    receive_all(socket, bytes.data(), request.brings);
    if (request.rows != 0) {
      work_on_rows(table.get(), rows.data(), reinterpret_cast<float*>(bytes.data()),
                   request.brings > 0, 0, kIds);
    }
    send_all(socket, bytes.data(), request.wants);
  }
}

// ---- Over memory: a word says whose turn it is, and both look at it all the time.

struct SharedBytes {
  std::atomic<std::uint32_t> turn;               // 1: the server's
  alignas(64) std::atomic<std::uint64_t> there;  // bytes that the other side may take
  alignas(64) Request request;
  std::int64_t rows[kIds];
  alignas(64) char bytes[kSharedBytes];
};

SharedBytes* map_bytes(int fd) {
  void* const out = ::mmap(nullptr, sizeof(SharedBytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  COHORT_CHECK(out != MAP_FAILED, "no shared memory");
  return static_cast<SharedBytes*>(out);
}

// Looks, then gives the core away between looks (the other side may want this very one), and sleeps
// where nobody has come for some milliseconds: others are timed then.
// False: it is not this side's turn for minutes.
bool wait_for_turn(const SharedBytes& shared, std::uint32_t turn) {
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    for (int look = 0; look < 4096; ++look) {
      if (shared.turn.load(std::memory_order_acquire) == turn) return true;
      internal::runtime::relax();
    }
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (waited > std::chrono::minutes(5)) return false;
    if (waited > std::chrono::milliseconds(20)) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    } else {
      std::this_thread::yield();
    }
  }
}

// Blocks: until so many bytes are there.
void wait_for_bytes(const SharedBytes& shared, std::uint64_t bytes) {
  for (int look = 0; shared.there.load(std::memory_order_acquire) < bytes; ++look) {
    look < 4096 ? internal::runtime::relax() : std::this_thread::yield();
  }
}

constexpr std::uint64_t kPiece = 16384;

void serve_rows(SharedBytes& shared, float* table) {
  constexpr std::int64_t kRows = kPiece / kRowBytes;
  const bool adds = shared.request.brings > 0;
  for (std::int64_t first = 0; first < kIds; first += kRows) {
    const std::int64_t last = std::min(first + kRows, kIds);
    const std::uint64_t bytes = static_cast<std::uint64_t>(last) * kRowBytes;
    if (adds) wait_for_bytes(shared, bytes);
    work_on_rows(table, shared.rows, reinterpret_cast<float*>(shared.bytes), adds, first, last);
    if (!adds) shared.there.store(bytes, std::memory_order_release);
  }
}

}  // namespace

int serve_bytes() {
  std::string address;
  const internal::collectives::Socket listener =
      internal::collectives::listen_on_free_port(&address);
  std::printf("ready %d\n", internal::collectives::parse_address("[ps_bench] ", address).port);
  std::fflush(stdout);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  if (!internal::collectives::wait_for_fd(listener.fd(), /*to_write=*/false, deadline)) return 1;
  const int socket = ::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC);  // one that blocks
  set_no_delay(socket);
  answer(socket);
  ::close(socket);
  return 0;
}

int serve_memory() {
  const int fd = ::memfd_create("ps_bench", MFD_CLOEXEC);
  COHORT_CHECK(fd >= 0 && ::ftruncate(fd, sizeof(SharedBytes)) == 0, "no shared memory");
  SharedBytes& shared = *map_bytes(fd);
  const Table table = table_of_ones();
  std::vector<char> stays(kSharedBytes, 1);
  std::printf("ready %d\n", fd);
  std::fflush(stdout);
  while (wait_for_turn(shared, 1)) {
    const Request& request = shared.request;
    if (request.rows != 0) {
      serve_rows(shared, table.get());
    } else {
      std::memcpy(stays.data(), shared.bytes, request.brings);
      std::memcpy(shared.bytes, stays.data(), request.wants);
    }
    shared.turn.store(0, std::memory_order_release);
  }
  return 0;
}

namespace {

struct Sockets {
  Sockets() : server("--serve-bytes"), socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(server.port)));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    COHORT_CHECK(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0,
                 "no connection");
    set_no_delay(socket);
  }
  ~Sockets() { ::close(socket); }
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  void exchange(const Request& request, const std::vector<std::int64_t>* rows) {
    send_all(socket, &request, sizeof(request));
    if (rows != nullptr) send_all(socket, rows->data(), rows->size() * sizeof(std::int64_t));
    send_all(socket, buffer.data(), request.brings);
    receive_all(socket, buffer.data(), request.wants);
  }

  Server server;
  const int socket;
  std::vector<char> buffer = std::vector<char>(kBufferBytes);
};

struct Memory {
  Memory() : server("--serve-memory") {
    const std::string path = str_cat("/proc/", server.process.process_group(), "/fd/", server.port);
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    COHORT_CHECK(fd >= 0, "cannot open ", path);
    shared = map_bytes(fd);
    ::close(fd);
  }
  ~Memory() { ::munmap(shared, sizeof(SharedBytes)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void exchange_rows(const Request& request, const std::vector<std::int64_t>& rows) {
    shared->request = request;
    shared->there.store(0, std::memory_order_relaxed);
    std::memcpy(shared->rows, rows.data(), rows.size() * sizeof(std::int64_t));
    shared->turn.store(1, std::memory_order_release);
    const bool brings = request.brings > 0;
    for (std::uint64_t at = 0; at < kIds * kRowBytes; at += kPiece) {
      if (brings) {
        std::memcpy(shared->bytes + at, buffer.data() + at, kPiece);
        shared->there.store(at + kPiece, std::memory_order_release);
      } else {
        wait_for_bytes(*shared, at + kPiece);
        std::memcpy(buffer.data() + at, shared->bytes + at, kPiece);
      }
    }
    COHORT_CHECK(wait_for_turn(*shared, 0), "the server has not answered");
  }

  void exchange(const Request& request, const std::vector<std::int64_t>& rows) {
    if (request.rows != 0) return exchange_rows(request, rows);
    shared->request = request;
    std::memcpy(shared->bytes, buffer.data(), request.brings);
    shared->turn.store(1, std::memory_order_release);
    COHORT_CHECK(wait_for_turn(*shared, 0), "the server has not answered");
    std::memcpy(buffer.data(), shared->bytes, request.wants);
  }

  Server server;
  SharedBytes* shared = nullptr;
  std::vector<char> buffer = std::vector<char>(kSharedBytes);  // zeros: no denormal number
};

}  // namespace

Way sockets_way(const Request& request, const std::vector<std::int64_t>& rows) {
  const auto all = std::make_shared<Sockets>();
  return {"sockets",
          [all, request, rows](std::int64_t steps) {
            const auto begin = std::chrono::steady_clock::now();
            for (std::int64_t i = 0; i < steps; ++i) {
              all->exchange(request, rows.empty() ? nullptr : &rows);
            }
            return us_since(begin, steps);
          },
          all->server.process.process_group()};
}

Way memory_way(const Request& request, const std::vector<std::int64_t>& rows) {
  const auto all = std::make_shared<Memory>();
  return {"memory",
          [all, request, rows](std::int64_t steps) {
            const auto begin = std::chrono::steady_clock::now();
            for (std::int64_t i = 0; i < steps; ++i) all->exchange(request, rows);
            return us_since(begin, steps);
          },
          all->server.process.process_group()};
}

}  // namespace cohort::bench
