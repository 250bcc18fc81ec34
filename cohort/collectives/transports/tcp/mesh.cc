// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/tcp/mesh.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/logging.h"
#include "cohort/rpc/errors.h"

namespace cohort::internal::collectives {
namespace {

// What each side says first.
struct Hello {
  static constexpr uint64_t kMagic = 0x3154524f484f43aa;
  static constexpr uint32_t kLongestText = 64 << 10;
  enum class Purpose : uint32_t { kStream, kLine };

  uint64_t magic = kMagic;
  int32_t rank = 0;
  int32_t size = 0;
  Purpose purpose = Purpose::kStream;
  uint32_t text_bytes = 0;

  bool is_sane() const {
    return magic == kMagic && size > 0 && rank >= 0 && rank < size && purpose <= Purpose::kLine &&
           text_bytes <= kLongestText;
  }
};
static_assert(sizeof(Hello) == 24);

constexpr std::chrono::milliseconds kRetryAfter{50};
// A connection that says nothing is dropped then: it is no worker's.
constexpr std::chrono::seconds kHelloWithin{10};
constexpr std::size_t kMostStrangers = 256;
// Who is refused for so long is not let in any more: by then what an earlier attempt has left at an
// address is gone.
constexpr std::chrono::milliseconds kRefusedFor{1500};

// One that has come and has not said all of its hello.
struct Stranger {
  Socket socket;
  Deadline until = {};
  std::vector<std::byte> read = {};
};

class Mesh {
 public:
  explicit Mesh(MeshOptions options);
  std::vector<MeshLink> meet();

 private:
  int size() const { return static_cast<int>(options_.addresses.size()); }
  std::string name_of(int rank) const {
    return str_cat("rank ", rank, " (", options_.addresses[static_cast<std::size_t>(rank)], ")");
  }
  std::string host_of(int rank) const;
  bool is_reachable_from_elsewhere() const { return options_.allow_insecure || options_.tls; }
  void check_addresses() const;
  Socket& place(int rank, Hello::Purpose purpose);
  std::vector<std::byte> hello(Hello::Purpose purpose) const;
  void call(int peer, Hello::Purpose purpose);
  void check_refusal(int peer, const std::string& why, Deadline& patience) const;
  bool try_call(int peer, Hello::Purpose purpose, std::string* why);
  bool prove(Socket& socket, int peer, std::string* why);
  void distrust(const std::string& whom, const std::string& why);
  void answer_callers();
  bool answer(Stranger& stranger);
  void welcome(Stranger& stranger, const Hello& theirs, const std::string& text);
  void check_same_job(const Hello& theirs, const std::string& text, int peer) const;
  void check_links() const;
  void pause() const;
  std::string who_is_missing() const;
  [[noreturn]] void give_up(const std::string& why) const;

  MeshOptions options_;
  const Deadline deadline_;
  Socket listener_;
  std::vector<MeshLink> links_;
  std::string distrusted_;  // the first one, and why
};

Mesh::Mesh(MeshOptions options)
    : options_(std::move(options)), deadline_(deadline_in(options_.timeout)) {
  COHORT_CHECK_ARG(options_.rank >= 0 && options_.rank < size(),
                   "[cluster] expected a rank of 0 to ", size() - 1, ", got ", options_.rank);
  check_addresses();
  const std::string& own = options_.addresses[static_cast<std::size_t>(options_.rank)];
  listener_ = options_.listener
                  ? std::move(options_.listener)
                  : listen_at(own, is_reachable_from_elsewhere() && !is_loopback(own));
  for (const std::string& address : options_.addresses) {
    const std::size_t rank = links_.size();
    const bool has_task = rank < options_.tasks.size();
    links_.push_back({.address = address, .task = has_task ? options_.tasks[rank] : ""});
  }
}

void Mesh::check_addresses() const {
  for (int r = 0; r < size(); ++r) {
    const std::string& address = options_.addresses[static_cast<std::size_t>(r)];
    parse_address("[cluster] ", address);
    if (is_reachable_from_elsewhere()) continue;
    COHORT_CHECK_ARG(is_loopback(address),
                     "[cluster] expected addresses of this machine's loopback, such as "
                     "localhost:2222, got ",
                     name_of(r),
                     ": beyond it give TLS certificates, as cohortrun makes them "
                     "(COHORT_TLS_CERTIFICATE, COHORT_TLS_KEY, COHORT_TLS_AUTHORITY), or, on a "
                     "network that you trust, allow_insecure = true");
  }
}

Socket& Mesh::place(int rank, Hello::Purpose purpose) {
  MeshLink& link = links_[static_cast<std::size_t>(rank)];
  return purpose == Hello::Purpose::kStream ? link.stream : link.line;
}

std::vector<std::byte> Mesh::hello(Hello::Purpose purpose) const {
  const std::string text = options_.agreement.substr(0, Hello::kLongestText);
  const Hello mine{.rank = options_.rank,
                   .size = size(),
                   .purpose = purpose,
                   .text_bytes = static_cast<uint32_t>(text.size())};
  std::vector<std::byte> bytes(sizeof mine + text.size());
  std::memcpy(bytes.data(), &mine, sizeof mine);
  std::memcpy(bytes.data() + sizeof mine, text.data(), text.size());
  return bytes;
}

bool send_all(const Socket& socket, const std::vector<std::byte>& bytes, Deadline deadline,
              std::string* why) {
  for (std::size_t sent = 0; sent < bytes.size();) {
    const std::array<iovec, 1> left = {
        {{const_cast<std::byte*>(bytes.data()) + sent, bytes.size() - sent}}};
    const ssize_t now = socket.send(left, why);
    if (now < 0) return false;
    sent += static_cast<std::size_t>(now);
    *why = "no answer";
    if (now == 0 && !wait_for_fd(socket.fd(), /*to_write=*/true, deadline)) return false;
  }
  return true;
}

// False, with `why`, if the connection ends or the deadline passes before all has come.
bool receive_all(const Socket& socket, void* to, std::size_t bytes, Deadline deadline,
                 std::string* why) {
  for (std::size_t got = 0; got < bytes;) {
    const ssize_t now = socket.receive(static_cast<std::byte*>(to) + got, bytes - got, why);
    if (now < 0) return false;
    got += static_cast<std::size_t>(now);
    *why = "no answer";
    if (now == 0 && !wait_for_fd(socket.fd(), /*to_write=*/false, deadline)) return false;
  }
  return true;
}

void Mesh::check_same_job(const Hello& theirs, const std::string& text, int peer) const {
  if (theirs.size == size() && text == options_.agreement) return;
  const auto side = [&](int rank, int size, const std::string& what) {
    return str_cat(name_of(rank), ": ", size, " ranks, ", what);
  };
  const std::string mine = side(options_.rank, size(), options_.agreement);
  const std::string other = side(peer, theirs.size, text);
  throw FailedPrecondition(str_cat("[cluster] expected the same job on every worker, got ",
                                   options_.rank < peer ? mine : other, "; and ",
                                   options_.rank < peer ? other : mine));
}

// A rank that was here and goes away while others are waited for does not come back.
void Mesh::check_links() const {
  for (int r = 0; r < size(); ++r) {
    const Socket& line = links_[static_cast<std::size_t>(r)].line;
    std::byte peeked{};
    if (!line || ::recv(line.fd(), &peeked, 1, MSG_PEEK | MSG_DONTWAIT) != 0) continue;
    throw Unavailable(str_cat("[cluster] expected every worker to stay until all have come, got ",
                              name_of(r), ", which has gone again: see its output"),
                      name_of(r));
  }
}

void Mesh::give_up(const std::string& why) const {
  throw DeadlineExceeded(str_cat(
      "[cluster] expected all ", size(), " workers within ",
      std::chrono::duration_cast<std::chrono::duration<double>>(options_.timeout).count(),
      " s, got none from ", who_is_missing(), why, distrusted_.empty() ? "" : "; ", distrusted_,
      ". Check that TF_CONFIG is right on every machine and that all tasks are started"));
}

std::string Mesh::who_is_missing() const {
  std::string out;
  for (int r = 0; r < size(); ++r) {
    const MeshLink& link = links_[static_cast<std::size_t>(r)];
    if (r == options_.rank || (link.stream && link.line)) continue;
    if (!out.empty()) out += ", ";
    out += name_of(r);
  }
  return out;
}

void Mesh::pause() const {
  check_links();
  std::this_thread::sleep_for(kRetryAfter);  // until somebody listens there
}

std::string Mesh::host_of(int rank) const {
  return parse_address("[cluster] ", options_.addresses[static_cast<std::size_t>(rank)]).host;
}

// False: what answers there is not believed, or does not believe this rank.
bool Mesh::prove(Socket& socket, int peer, std::string* why) {
  if (!options_.tls) return true;
  socket.secure(options_.tls, rpc::TlsSide::kClient, host_of(peer));
  if (shake_hands(socket, deadline_, why)) return true;
  distrust(str_cat(name_of(peer), " is not proved to belong to this job"), *why);
  return false;
}

// It may be another job's, and go away; but somebody waits meanwhile.
void Mesh::distrust(const std::string& whom, const std::string& why) {
  if (!distrusted_.empty()) return;
  distrusted_ = str_cat(whom, ": ", why);
  COHORT_LOG(kWarning, "[cluster] ", distrusted_,
             ". Have all workers certificates of one authority (COHORT_TLS_CERTIFICATE)?");
}

// One attempt. False: nobody of this kind is there yet.
bool Mesh::try_call(int peer, Hello::Purpose purpose, std::string* why) {
  const std::string& address = options_.addresses[static_cast<std::size_t>(peer)];
  Socket socket = connect_to(address, deadline_, why);
  if (!socket || !prove(socket, peer, why)) return false;
  if (!send_all(socket, hello(purpose), deadline_, why)) return false;
  Hello theirs;
  if (!receive_all(socket, &theirs, sizeof theirs, deadline_, why)) return false;
  if (!theirs.is_sane()) {
    *why = "what answers there is no worker of Cohort";
    return false;
  }
  std::string text(theirs.text_bytes, '\0');
  if (!receive_all(socket, text.data(), text.size(), deadline_, why)) return false;
  check_same_job(theirs, text, peer);
  COHORT_CHECK_STATE(theirs.rank == peer, "[cluster] expected ", name_of(peer), ", got rank ",
                     theirs.rank, " there: is TF_CONFIG's task index right in both processes?");
  place(peer, purpose) = std::move(socket);
  return true;
}

void Mesh::call(int peer, Hello::Purpose purpose) {
  std::string why;
  Deadline patience = Deadline::max();
  while (!try_call(peer, purpose, &why)) {
    check_refusal(peer, why, patience);
    if (milliseconds_until(deadline_) == 0) give_up(str_cat(": ", why));
    pause();
  }
}

// Of what this rank has called itself: a stranger that calls ends nobody's job.
void Mesh::check_refusal(int peer, const std::string& why, Deadline& patience) const {
  const auto now = std::chrono::steady_clock::now();
  if (!why.starts_with(rpc::TlsSession::kRefused)) {
    patience = Deadline::max();  // nobody is there, or somebody who goes away
    return;
  }
  patience = std::min<Deadline>(patience, now + kRefusedFor);
  if (now < patience) return;
  throw rpc::Unauthenticated(
      str_cat("[cluster] expected ", name_of(peer),
              " and this rank to prove to each other that they belong to one job, got ", why,
              ". Have all workers certificates of one authority, each for its own host "
              "(COHORT_TLS_CERTIFICATE, COHORT_TLS_AUTHORITY), that are valid now?"));
}

// The answer goes out before anything is compared: both sides shall see both.
void Mesh::welcome(Stranger& stranger, const Hello& theirs, const std::string& text) {
  std::string why;
  const rpc::TlsSession* const tls = stranger.socket.tls();
  if (tls != nullptr && theirs.rank < size() && !tls->is_peer_for(host_of(theirs.rank))) {
    return distrust(str_cat("a caller says that it is ", name_of(theirs.rank)),
                    "its certificate is for another host");
  }
  const bool told = send_all(stranger.socket, hello(theirs.purpose), deadline_, &why);
  check_same_job(theirs, text, std::min(theirs.rank, size() - 1));
  COHORT_CHECK_STATE(theirs.rank > options_.rank && !place(theirs.rank, theirs.purpose),
                     "[cluster] expected every worker once, got another process that is rank ",
                     theirs.rank, ": is TF_CONFIG's task index right in each of them?");
  if (told) place(theirs.rank, theirs.purpose) = std::move(stranger.socket);
}

// True: done with it, whoever it was.
bool Mesh::answer(Stranger& stranger) {
  std::array<std::byte, 4096> bytes;
  std::string why;
  const ssize_t got = stranger.socket.receive(bytes.data(), bytes.size(), &why);
  if (got < 0) {
    if (options_.tls) distrust("a caller was turned away", why);
    return true;
  }
  if (got > 0) stranger.read.insert(stranger.read.end(), bytes.begin(), bytes.begin() + got);
  Hello theirs;
  if (stranger.read.size() >= sizeof theirs) {
    std::memcpy(&theirs, stranger.read.data(), sizeof theirs);
    if (!theirs.is_sane()) return true;
    if (stranger.read.size() >= sizeof theirs + theirs.text_bytes) {
      const auto* text = reinterpret_cast<const char*>(stranger.read.data() + sizeof theirs);
      welcome(stranger, theirs, std::string(text, theirs.text_bytes));
      return true;
    }
  }
  return std::chrono::steady_clock::now() > stranger.until;
}

void Mesh::answer_callers() {
  std::vector<Stranger> strangers;
  while (!who_is_missing().empty()) {
    if (milliseconds_until(deadline_) == 0) give_up("");
    check_links();
    std::vector<pollfd> polled = {{.fd = listener_.fd(), .events = POLLIN, .revents = 0}};
    for (const Stranger& each : strangers) {
      polled.push_back({.fd = each.socket.fd(), .events = POLLIN, .revents = 0});
    }
    const auto wake = std::min<Deadline>(deadline_, std::chrono::steady_clock::now() + kRetryAfter);
    ::poll(polled.data(), polled.size(), milliseconds_until(wake));
    std::erase_if(strangers, [&](Stranger& each) { return answer(each); });
    Socket next = accept_from(listener_);
    if (next && strangers.size() < kMostStrangers) {
      if (options_.tls) next.secure(options_.tls, rpc::TlsSide::kServer);
      strangers.push_back(
          {.socket = std::move(next), .until = std::chrono::steady_clock::now() + kHelloWithin});
    }
  }
}

std::vector<MeshLink> Mesh::meet() {
  for (int peer = 0; peer < options_.rank; ++peer) {
    call(peer, Hello::Purpose::kStream);
    call(peer, Hello::Purpose::kLine);
  }
  base::failpoint("cluster.meet");
  answer_callers();
  return std::move(links_);
}

}  // namespace

std::vector<MeshLink> meet_over_tcp(MeshOptions options) {
  COHORT_CHECK_ARG(!options.addresses.empty(), "[cluster] expected addresses, got none");
  return Mesh(std::move(options)).meet();
}

}  // namespace cohort::internal::collectives
