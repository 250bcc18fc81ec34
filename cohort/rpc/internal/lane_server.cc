// SPDX-License-Identifier: Apache-2.0
#include "cohort/rpc/internal/lane_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/rpc/internal/lane_socket.h"
#include "cohort/rpc/internal/reply_call.h"
#include "cohort/runtime/thread_name.h"

namespace cohort::internal::rpc {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMostGuests = kMostLanes + 16;  // those included who have not proved anything
constexpr std::chrono::seconds kProofTime{5};
constexpr milliseconds kLaneNap{1000};
constexpr milliseconds kNoDescriptorNap{10};
// Of a request that is followed: what a core's own cache has room for.
constexpr uint64_t kFollowed = uint64_t{1} << 20;
constexpr std::size_t kCacheLine = 64;

}  // namespace

// The memory, and what the server knows of it by itself. Who answers late has a share.
struct LaneBoard {
  explicit LaneBoard(LaneMemory given) : memory(std::move(given)) {}
  // Whoever gets true answers.
  bool begin_answer(std::size_t place) {
    return memory.is_ours() && is_open[place].exchange(false);
  }
  void answer(std::size_t place, uint32_t code, std::span<const Payload::Piece> pieces,
              std::size_t begin);
  void fail(std::size_t place, ErrorCode code, const std::string& text, std::size_t begin) {
    Payload all;
    try {
      all = Payload(text.substr(0, kLongestErrorText));
    } catch (const std::bad_alloc&) {  // an error all the same, without a text
    }
    answer(place, static_cast<uint32_t>(code), all.pieces(), begin);
  }

  const LaneMemory memory;
  std::array<std::atomic<bool>, LaneMemory::kPlaces> is_taken = {};  // is_held, as it is
  std::array<std::atomic<bool>, LaneMemory::kPlaces> is_open = {};   // it has no answer
};

// What lies there already, as the last piece, stays, and all before it goes to the head; so does
// what is small.
void LaneBoard::answer(std::size_t place, uint32_t code, std::span<const Payload::Piece> pieces,
                       std::size_t begin) {
  LanePlace& here = memory.place(place);
  const std::span<std::byte> all = memory.bytes(place);
  const std::byte* const room = all.data() + std::min(begin, all.size());
  std::size_t size = 0;
  for (const Payload::Piece& piece : pieces) size += piece.bytes.size();
  const std::size_t last = pieces.empty() ? 0 : pieces.back().bytes.size();
  const bool lies_there =
      last > 0 && pieces.back().bytes.data() == room && size - last <= here.head.size();
  const bool is_small = size <= here.head.size();
  const std::size_t in_body = lies_there ? last : is_small ? 0 : size;
  const std::size_t in_head = size - in_body;
  const bool fits = in_body == 0 || (begin <= all.size() && in_body <= all.size() - begin);
  if (fits) {
    std::byte* to = in_head > 0 ? here.head.data() : all.data() + begin;
    for (const Payload::Piece& piece : pieces.first(pieces.size() - (lies_there ? 1 : 0))) {
      std::memcpy(to, piece.bytes.data(), piece.bytes.size());
      to += piece.bytes.size();
    }
  }
  here.code.store(fits ? code : kLaneElsewhere, std::memory_order_relaxed);
  here.head_bytes.store(fits ? in_head : 0, std::memory_order_relaxed);
  here.body_at.store(fits && in_body > 0 ? begin : 0, std::memory_order_relaxed);
  here.body_bytes.store(fits ? in_body : 0, std::memory_order_relaxed);
  here.state.store(kLaneAnswered);
}

// The server's share of a place: until it is gone the client puts nothing else there.
struct PlaceHold {
  PlaceHold(std::shared_ptr<LaneBoard> of, std::size_t at) : board(std::move(of)), place(at) {
    board->is_taken[place] = true;
    board->memory.place(place).is_held.store(1, std::memory_order_release);
  }
  ~PlaceHold() {
    if (!board->memory.is_ours()) return;
    board->is_taken[place] = false;
    board->memory.place(place).is_held.store(0, std::memory_order_release);
  }
  PlaceHold(const PlaceHold&) = delete;
  PlaceHold& operator=(const PlaceHold&) = delete;
  const std::shared_ptr<LaneBoard> board;
  const std::size_t place;
};

struct LaneReply final : RpcReply::Call {
  LaneReply(std::shared_ptr<PlaceHold> of, std::size_t at) : hold(std::move(of)), begin(at) {}
  ~LaneReply() override { fail(ErrorCode::kInternal, kDroppedCall); }
  void send(const Payload& payload) override {
    LaneBoard& board = *hold->board;
    if (board.begin_answer(hold->place)) board.answer(hold->place, 0, payload.pieces(), begin);
  }
  void fail(ErrorCode code, const std::string& text) override {
    LaneBoard& board = *hold->board;
    if (board.begin_answer(hold->place)) board.fail(hold->place, code, text, begin);
  }
  RpcReply::Room room(std::size_t bytes) override {
    const std::span<std::byte> all = hold->board->memory.bytes(hold->place);
    if (begin > all.size() || bytes > all.size() - begin) return {};
    return {.bytes = all.subspan(begin, bytes),
            .owner = hold,
            .filled = &hold->board->memory.place(hold->place).filled};
  }
  const std::shared_ptr<PlaceHold> hold;
  const std::size_t begin;  // of the answer
};

class ServerLane {
 public:
  ServerLane(LaneMemory memory, RpcClaims caller, const std::vector<LaneServer::Method>& methods)
      : board_(std::make_shared<LaneBoard>(std::move(memory))),
        caller_(std::move(caller)),
        methods_(methods),
        small_([this] { run(0, LaneMemory::kSmallPlaces); }) {
    try {
      large_ = std::thread([this] { run(LaneMemory::kSmallPlaces, LaneMemory::kPlaces); });
    } catch (...) {  // the system gives no thread
      end();
      small_.join();
      throw;
    }
  }
  ~ServerLane() {
    end();
    small_.join();
    large_.join();
  }
  ServerLane(const ServerLane&) = delete;
  ServerLane& operator=(const ServerLane&) = delete;

  /// Blocks: never.
  void end() {
    ends_ = true;
    board_->memory.asked(0).add();
    board_->memory.asked(LaneMemory::kSmallPlaces).add();
  }
  bool has_ended() const { return running_ == 0; }

 private:
  // These places are of one size: a small call does not wait for large ones.
  void run(std::size_t first, std::size_t last) {
    runtime::set_thread_name("cohort-lane");
    runtime::SpinBudget budget(lane_looks());
    LaneWord& asked = board_->memory.asked(first);
    while (!ends_) {
      const uint32_t seen = asked.load();
      bool any = false;
      for (std::size_t i = first; i < last && !ends_; ++i) any = serve(i) || any;
      if (any || ends_) continue;
      uint64_t followed = 0;
      asked.wait_while(seen, budget, kLaneNap,
                       [&] { return first > 0 && follow(first, last, followed); });
    }
    for (std::size_t i = first; i < last; ++i) refuse(i);
    --running_;
  }

  // A request that is being written: what is there of it comes to this core meanwhile, where the
  // handler finds it. Nothing is done before it is whole: whoever writes may end.
  bool follow(std::size_t first, std::size_t last, uint64_t& followed) const {
    for (std::size_t i = first; i < last; ++i) {
      const LanePlace& here = board_->memory.place(i);
      if (here.state.load() != kLaneWriting) continue;
      const uint64_t until = std::min(here.written.load(std::memory_order_acquire), kFollowed);
      if (until <= followed) return false;
      const std::span<std::byte> all = board_->memory.bytes(i);
      for (; followed < std::min<uint64_t>(until, all.size()); followed += kCacheLine) {
        __builtin_prefetch(all.data() + followed, 0, 2);
      }
      followed = until;
      return true;
    }
    return false;
  }

  bool is_asked(std::size_t i) const {
    return board_->memory.place(i).state.load() == kLaneAsked && !board_->is_taken[i];
  }

  bool serve(std::size_t i) {
    if (!is_asked(i)) return false;
    try {
      run_call(i);
    } catch (const std::exception& e) {  // no memory to begin it: it must not be begun again
      if (is_asked(i) || board_->begin_answer(i)) {
        board_->fail(i, ErrorCode::kResourceExhausted, e.what(), /*begin=*/0);
      }
    }
    return true;
  }

  void run_call(std::size_t i) {
    const LanePlace& here = board_->memory.place(i);
    const std::span<std::byte> all = board_->memory.bytes(i);
    const uint64_t size = here.request_bytes.load(std::memory_order_relaxed);
    const uint32_t method = here.method.load(std::memory_order_relaxed);
    const auto hold = std::make_shared<PlaceHold>(board_, i);
    board_->is_open[i] = true;
    const auto call =
        std::make_shared<LaneReply>(hold, answer_begins(std::min<uint64_t>(size, all.size())));
    if (size > all.size() || method >= methods_.size()) {
      call->fail(ErrorCode::kDataLoss,
                 "expected a call of this version of Cohort, got other bytes");
      return;
    }
    RpcRequest request{.caller = caller_, .payload = {}, .may_block = true};
    request.payload.append({.bytes = all.first(size), .owner = hold});
    try {
      (*methods_[method].handler)(std::move(request), RpcReply(call));
    } catch (const std::exception& e) {
      const auto* const ours = dynamic_cast<const Error*>(&e);
      call->fail(ours == nullptr ? ErrorCode::kUnknown : ours->code(), e.what());
    }
  }

  // The lane has ended: what was asked, and what waits for its answer elsewhere.
  void refuse(std::size_t i) {
    if (is_asked(i) || board_->begin_answer(i)) {
      board_->fail(i, ErrorCode::kUnavailable, kServerEnds, /*begin=*/0);  // it is small
    }
  }

  const std::shared_ptr<LaneBoard> board_;
  const RpcClaims caller_;
  const std::vector<LaneServer::Method>& methods_;
  std::atomic<bool> ends_ = false;
  std::atomic<int> running_ = 2;
  std::thread small_;
  std::thread large_;
};

LaneServer::LaneServer(std::vector<Method> methods, ClaimsVerifier* verifier)
    : methods_(std::move(methods)), verifier_(verifier), listener_(listen_for_lanes(&name_)) {
  int pair[2] = {-1, -1};
  COHORT_CHECK(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0,
               "[rpc] the system gives no sockets");
  wakes_ = LaneSocket(pair[0]);
  woken_ = LaneSocket(pair[1]);
  thread_ = std::thread([this] { run(); });
}

LaneServer::~LaneServer() {
  [[maybe_unused]] const ssize_t sent = ::send(wakes_.fd(), "x", 1, MSG_NOSIGNAL);
  thread_.join();
  // All at once, then each: their handlers end side by side. Sockets close last: who waits gets the
  // answer before it sees that.
  const base::MutexLock lock(mutex_);
  for (Guest& each : guests_) {
    if (each.lane) each.lane->end();
  }
  for (Guest& each : guests_) each.lane.reset();
}

LaneOffer LaneServer::offer() const {
  LaneOffer out{.socket = name_};
  for (const Method& each : methods_) out.methods.push_back(each.name);
  return out;
}

std::size_t LaneServer::lanes() const {
  const base::MutexLock lock(mutex_);
  return static_cast<std::size_t>(std::count_if(guests_.begin(), guests_.end(),
                                                [](const Guest& g) { return g.lane != nullptr; }));
}

void LaneServer::run() {
  runtime::set_thread_name("cohort-lanes");
  for (;;) {
    std::vector<pollfd> all{{woken_.fd(), POLLIN, 0}, {listener_.fd(), POLLIN, 0}};
    {
      const base::MutexLock lock(mutex_);
      for (const Guest& each : guests_) all.push_back({each.socket.fd(), POLLIN, 0});
    }
    ::poll(all.data(), all.size(), static_cast<int>(kLaneNap.count()));
    if (all[0].revents != 0) return;
    std::size_t at = 2;
    const base::MutexLock lock(mutex_);
    guests_.remove_if([&](Guest& guest) COHORT_REQUIRES(mutex_) {
      if (hear_if(all[at++].revents != 0, guest)) return false;
      if (guest.lane) guest.lane->end();
      if (guest.lane) ending_.push_back(std::move(guest.lane));
      return true;
    });
    if (all[1].revents != 0) let_in();
    ending_.remove_if([](const auto& lane) { return lane->has_ended(); });
  }
}

bool LaneServer::hear_if(bool has_come, Guest& guest) {
  if (has_come) return hear(guest);
  return guest.lane != nullptr || std::chrono::steady_clock::now() < guest.until;
}

void LaneServer::let_in() {
  LaneSocket guest(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  // No more descriptors: the same guest is there at the next look, which need not be at once.
  if (guest.fd() < 0 && errno != EAGAIN) std::this_thread::sleep_for(kNoDescriptorNap);
  if (guest.fd() < 0 || !guest.is_of_our_user() || guests_.size() >= kMostGuests) return;
  guests_.push_back({std::move(guest), std::chrono::steady_clock::now() + kProofTime});
}

// The first message is the proof; who has a lane says nothing more.
bool LaneServer::hear(Guest& guest) {
  if (guest.lane) return false;
  std::string proof(kMostProofBytes, '\0');
  const ssize_t got = ::recv(guest.socket.fd(), proof.data(), proof.size(), MSG_DONTWAIT);
  if (got <= 0) return false;
  proof.resize(static_cast<std::size_t>(got));
  const auto open = std::count_if(guests_.begin(), guests_.end(),
                                  [](const Guest& g) { return g.lane != nullptr; });
  if (static_cast<std::size_t>(open) + ending_.size() >= kMostLanes) return false;
  try {
    RpcClaims caller = verifier_->verify(proof, kLaneMethod);
    int fd = -1;
    LaneMemory memory = LaneMemory::create(&fd);
    const LaneSocket descriptor(fd);  // no child's either
    if (!send_memory(guest.socket, descriptor.fd())) return false;
    guest.lane = std::make_shared<ServerLane>(std::move(memory), std::move(caller), methods_);
    return true;
  } catch (const std::exception&) {  // no proof, or no memory: it is told by the end of its socket
    return false;
  }
}

}  // namespace cohort::internal::rpc
