// SPDX-License-Identifier: Apache-2.0
#include "cohort/rpc/lane.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "cohort/base/strings.h"
#include "cohort/rpc/internal/lane_socket.h"
#include "cohort/rpc/wire.h"

namespace cohort::internal::rpc {
namespace {

using LaneClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Between two looks whether the other process lives.
constexpr milliseconds kLaneSlice{20};
constexpr milliseconds kAskAgain{1000};
// Where there was none: on another machine there never is.
constexpr milliseconds kOpenAgain{30'000};
constexpr milliseconds kOpenTime{1000};
constexpr uint64_t kMostLaneMethods = 256;
// Of a large request at a time: the server has a use for them while others are written.
constexpr std::size_t kWrittenPiece = std::size_t{16} << 10;

runtime::SpinBudget& budget_of_thread() {
  thread_local runtime::SpinBudget budget(lane_looks());
  return budget;
}

}  // namespace

bool lanes_are_allowed() {
  const char* const text = std::getenv("COHORT_LANES");
  return text == nullptr || std::string_view(text) != "0";
}

Payload offer_payload(const LaneOffer& offer) {
  MessageWriter out;
  out.text(offer.socket);
  out.number(offer.methods.size());
  for (const std::string& each : offer.methods) out.text(each);
  return Payload(out.str());
}

LaneOffer read_offer(const Payload& payload) {
  const std::string text = payload.text();
  MessageReader in("[rpc] ", text);
  LaneOffer out;
  out.socket = in.text();
  out.methods.resize(in.number_up_to(kMostLaneMethods));
  for (std::string& each : out.methods) each = in.text();
  in.end();
  return out;
}

// A call that has a place in this lane.
class PlaceCall final : public LaneCall {
 public:
  // The client's share of a place. It ends with the call, and with the answer that lies there.
  struct Hold {
    Hold(std::shared_ptr<Lane> of, std::size_t at) : lane(std::move(of)), place(at) {}
    ~Hold() {
      if (!lane->process_.is_ours()) return;  // the memory is not there
      const bool is_answered = here().state.load() == kLaneAnswered;
      lane->uses_[place] = is_answered ? Lane::Use::kNone : Lane::Use::kGivenUp;
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    LanePlace& here() const { return lane->memory_.place(place); }

    const std::shared_ptr<Lane> lane;
    const std::size_t place;
  };
  // `room`: where the server may write the answer; some bytes of it belong to `to`.
  PlaceCall(std::shared_ptr<Hold> hold, std::string method, LaneClock::time_point deadline,
            std::span<const std::byte> room, std::span<std::byte> to)
      : hold_(std::move(hold)),
        method_(std::move(method)),
        deadline_(deadline),
        room_(room),
        to_(to.size() <= room.size() ? to : std::span<std::byte>()) {}

  bool is_over() override;
  void wait(LaneClock::time_point until) override;
  std::optional<RpcResult> take() override;

 private:
  RpcResult error(ErrorCode code, const std::string& text) const;
  RpcResult answer();
  bool take_filled(uint64_t until);

  const std::shared_ptr<Hold> hold_;
  const std::string method_;
  const LaneClock::time_point begun_ = LaneClock::now();
  const LaneClock::time_point deadline_;
  const std::span<const std::byte> room_;
  const std::span<std::byte> to_;
  std::size_t taken_ = 0;                  // bytes that are there already
  LaneClock::time_point looked_ = begun_;  // whether the server lives
  bool is_gone_ = false;
};

bool PlaceCall::is_over() {
  const Lane& lane = *hold_->lane;
  if (!lane.process_.is_ours()) is_gone_ = true;
  if (is_gone_ || hold_->here().state.load() == kLaneAnswered) return true;
  const auto now = LaneClock::now();
  if (now - looked_ >= kLaneSlice) {
    looked_ = now;
    is_gone_ = lane.is_gone();
  }
  return is_gone_ || lane.cancelled_ || now >= deadline_;
}

void PlaceCall::wait(LaneClock::time_point until) {
  until = std::min(until, deadline_);
  while (!is_over()) {
    LanePlace& here = hold_->here();
    // Rounded up: a wait of nothing would go round without a sleep.
    const auto left = std::chrono::ceil<milliseconds>(until - LaneClock::now());
    if (left.count() <= 0) return;
    const uint32_t state = here.state.load();
    if (state == kLaneAnswered) return;
    here.state.wait_while(state, budget_of_thread(), std::min(left, kLaneSlice), [&] {
      return !to_.empty() && take_filled(here.filled.load(std::memory_order_acquire));
    });
  }
}

// False: there is nothing new.
bool PlaceCall::take_filled(uint64_t until) {
  until = std::min<uint64_t>(until, to_.size());
  if (until <= taken_) return false;
  std::memcpy(to_.data() + taken_, room_.data() + taken_, until - taken_);
  taken_ = until;
  return true;
}

RpcResult PlaceCall::error(ErrorCode code, const std::string& text) const {
  return {.error = call_error(hold_->lane->server_, method_, begun_, code, text)};
}

std::optional<RpcResult> PlaceCall::take() {
  if (!hold_->lane->process_.is_ours()) {
    return error(ErrorCode::kUnavailable, "this process is a child of the one that has asked");
  }
  const LanePlace& here = hold_->here();
  if (here.state.load() == kLaneAnswered) {
    if (here.code.load(std::memory_order_relaxed) == kLaneElsewhere) return std::nullopt;
    return answer();
  }
  if (hold_->lane->cancelled_) return error(ErrorCode::kCancelled, "the client was ended");
  if (is_gone_) return error(ErrorCode::kUnavailable, "it has closed its socket");
  return error(ErrorCode::kDeadlineExceeded, "Deadline Exceeded");
}

RpcResult PlaceCall::answer() {
  const LanePlace& here = hold_->here();
  const std::span<std::byte> all = hold_->lane->memory_.bytes(hold_->place);
  const uint32_t code = here.code.load(std::memory_order_relaxed);
  const uint64_t head = here.head_bytes.load(std::memory_order_relaxed);
  const uint64_t at = here.body_at.load(std::memory_order_relaxed);
  const uint64_t size = here.body_bytes.load(std::memory_order_relaxed);
  if (head > here.head.size() || at > all.size() || size > all.size() - at) {
    return error(ErrorCode::kDataLoss, "the answer does not lie in the memory that both share");
  }
  RpcResult out;
  if (head > 0) {
    out.payload = Payload({reinterpret_cast<const char*>(here.head.data()), head});
  }
  const std::span<const std::byte> body = all.subspan(at, size);
  const bool is_for_to = code == 0 && size == to_.size() && body.data() == room_.data();
  if (is_for_to && !to_.empty()) {
    take_filled(size);
    out.payload.append({.bytes = to_, .owner = {}});
  } else {
    out.payload.append({.bytes = body, .owner = hold_});
  }
  if (code != 0) return error(static_cast<ErrorCode>(code), out.payload.text());
  return out;
}

Lane::Lane(LaneSocket socket, LaneMemory memory, CalledServer server,
           std::vector<std::string> methods)
    : socket_(std::move(socket)),
      memory_(std::move(memory)),
      server_(std::move(server)),
      methods_(std::move(methods)) {}

std::shared_ptr<Lane> Lane::open(const LaneOffer& offer, CalledServer server,
                                 std::string_view proof, milliseconds most) {
  const auto until = LaneClock::now() + most;
  LaneSocket socket = connect_lane(offer.socket, until);
  const LaneSocket descriptor(receive_memory(socket, proof, until));  // no child's either
  return std::make_shared<Lane>(std::move(socket), LaneMemory::open(descriptor.fd()),
                                std::move(server), offer.methods);
}

bool Lane::is_gone() const {
  if (!process_.is_ours()) return true;
  if (!gone_ && socket_.is_over()) gone_ = true;
  return gone_;
}

std::optional<std::size_t> Lane::take_place(std::size_t bytes) {
  const bool is_small = bytes <= LaneMemory::kSmallBytes;
  const std::size_t first = is_small ? 0 : LaneMemory::kSmallPlaces;
  const std::size_t last = is_small ? LaneMemory::kSmallPlaces : LaneMemory::kPlaces;
  for (std::size_t i = first; i < last; ++i) {
    // Takes it, and then looks: what a thread has seen of a place that is nobody's yet may have
    // been another call's by the time it takes it.
    Use use = uses_[i];
    if (use == Use::kCall || !uses_[i].compare_exchange_strong(use, Use::kCall)) continue;
    const LanePlace& here = memory_.place(i);
    const bool is_answered = use == Use::kNone || here.state.load() == kLaneAnswered;
    if (is_answered && here.is_held.load(std::memory_order_acquire) == 0) return i;
    uses_[i] = use;
  }
  return std::nullopt;
}

// A large one in pieces: the server is woken, and takes them to itself, while others are written.
void Lane::write_request(std::size_t place, const Payload& request) const {
  LanePlace& here = memory_.place(place);
  here.filled.store(0, std::memory_order_relaxed);
  here.written.store(0, std::memory_order_relaxed);
  const bool in_pieces = request.size() > LaneMemory::kSmallBytes;
  if (in_pieces) {
    here.state.store(kLaneWriting);
    memory_.asked(place).add();
  }
  std::byte* to = memory_.bytes(place).data();
  uint64_t written = 0;
  for (const Payload::Piece& piece : request.pieces()) {
    for (std::span<const std::byte> left = piece.bytes; !left.empty();) {
      const auto now = left.first(std::min(left.size(), kWrittenPiece));
      std::memcpy(to + written, now.data(), now.size());
      written += now.size();
      left = left.subspan(now.size());
      if (in_pieces) here.written.store(written, std::memory_order_release);
    }
  }
  here.request_bytes.store(request.size(), std::memory_order_relaxed);
}

LaneStart Lane::start(const std::string& method, const Payload& request, milliseconds timeout,
                      std::size_t answer_bytes, std::span<std::byte> answer_to) {
  constexpr std::size_t kRoomForErrors = std::size_t{5} << 10;
  const std::size_t needed = request.size() + std::max(answer_bytes, kRoomForErrors);
  const auto found = std::find(methods_.begin(), methods_.end(), method);
  if (found == methods_.end() || needed > LaneMemory::kLargeBytes || !process_.is_ours()) return {};
  const std::optional<std::size_t> place = take_place(needed);
  if (!place) return {.call = {}, .is_full = true};
  const auto deadline = LaneClock::now() + timeout;
  LanePlace& here = memory_.place(*place);
  auto hold = std::make_shared<PlaceCall::Hold>(shared_from_this(), *place);
  auto call = std::make_unique<PlaceCall>(
      std::move(hold), method, deadline,
      memory_.bytes(*place).subspan(answer_begins(request.size())), answer_to);
  write_request(*place, request);
  here.method.store(static_cast<uint32_t>(found - methods_.begin()), std::memory_order_relaxed);
  here.state.store(kLaneAsked);
  memory_.asked(*place).add();
  return {.call = std::move(call), .is_large = *place >= LaneMemory::kSmallPlaces};
}

std::shared_ptr<Lane> LaneDoor::lane(milliseconds most) {
  if (!process_.is_ours()) return nullptr;
  LaneOffer offer;
  bool asks = false;
  {
    const base::MutexLock lock(mutex_);
    if (cancelled_) return nullptr;
    if (state_ == State::kOpen) {
      if (!lane_->is_gone()) return lane_;
      lane_.reset();
      state_ = State::kNew;  // its server may have been started again
    }
    asks = state_ == State::kNew && LaneClock::now() >= again_;
    if (!asks && state_ != State::kTold) return nullptr;
    offer = offer_;
    state_ = asks ? State::kAsked : State::kOpening;
    if (!asks) anew_ = false;
  }
  if (!asks) return open(offer, std::min(most, kOpenTime));
  options_.ask();
  return nullptr;
}

void LaneDoor::told(const RpcResult& result) {
  LaneOffer offer;
  bool again = false;
  try {
    if (result.error) std::rethrow_exception(result.error);
    offer = read_offer(result.payload);
  } catch (const Unavailable&) {
    again = true;
  } catch (const DeadlineExceeded&) {
    again = true;
  } catch (const std::exception&) {  // it has no lanes, or knows none
  }
  const base::MutexLock lock(mutex_);
  offer_ = std::move(offer);
  again_ = LaneClock::now() + (again ? kAskAgain : kOpenAgain);
  state_ = offer_.socket.empty() ? State::kNew : State::kTold;
}

std::shared_ptr<Lane> LaneDoor::open(const LaneOffer& offer, milliseconds most) {
  std::shared_ptr<Lane> made;
  milliseconds pause = kOpenAgain;
  try {
    made = Lane::open(offer, options_.server, options_.proof(), most);
  } catch (const Error& e) {
    // It has too many, perhaps one that is about to end; or it is busy.
    const bool may_have_one =
        e.code() == ErrorCode::kResourceExhausted || e.code() == ErrorCode::kDeadlineExceeded;
    if (may_have_one) pause = kAskAgain;
  } catch (const std::exception&) {  // another machine's, or the server takes no more: gRPC does it
  }
  const base::MutexLock lock(mutex_);
  if (anew_ && made) {
    state_ = State::kTold;
    return nullptr;
  }
  state_ = made ? State::kOpen : State::kNew;
  again_ = LaneClock::now() + (made ? milliseconds(0) : pause);
  if (cancelled_ && made) made->cancel();
  lane_ = made;
  return made;
}

void LaneDoor::open_anew() {
  const base::MutexLock lock(mutex_);
  anew_ = true;
  if (state_ != State::kOpen) return;
  lane_.reset();  // calls under way keep it
  state_ = State::kTold;
}

void LaneDoor::cancel() {
  const base::MutexLock lock(mutex_);
  cancelled_ = true;
  if (lane_) lane_->cancel();
}

bool LaneDoor::is_open() const {
  const base::MutexLock lock(mutex_);
  return state_ == State::kOpen;
}

}  // namespace cohort::internal::rpc
