// SPDX-License-Identifier: Apache-2.0
//
// Calls to a server on the same machine through memory that both share: the same methods, messages
// and handlers as over gRPC (server.h), without sockets and their copies.
//
// client                     one lane                          server
// places: writes the     ┌───────────────────┐   two threads of its own, one for small calls: each
// request, waits for  ──▶│ memfd, 35 places  │◀── runs handlers, which read the request where it
// the answer there       │ one unix socket   │   lies, and write the answer there
//                        └───────────────────┘
//
// What a server offers it says over gRPC ("rpc.lane"): a socket, and the methods that may come this
// way. Both ends of the socket have to be of one user, and the client shows there the proof that it
// shows with each call of gRPC; the memory is handed over then, and calls need no proof any more.
// The socket stays: when it is closed, the other side has ended, also by kill -9.
//
// Of what is large both sides have some at the same time: the server's core fetches the pieces of a
// request that are there while others are written (nothing is done before all are), and the client
// copies what is there of an answer (RpcCallOptions::answer_to) while the server goes on.
//
// A lane is never the only way. Where there is none (another machine, user or network namespace, no
// memory, COHORT_LANES=0, as many as the server takes), and for what does not fit, the call goes
// over gRPC. A server's lanes are at most kMostLanes of LaneMemory::kBytes, 15.5 MiB, each, of
// which pages count that were used.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/rpc/errors.h"
#include "cohort/rpc/internal/lane_memory.h"
#include "cohort/rpc/payload.h"

namespace cohort::internal::rpc {

inline constexpr const char* kLaneMethod = "rpc.lane";
/// Of one server.
inline constexpr std::size_t kMostLanes = 10;

/// False: COHORT_LANES is 0.
bool lanes_are_allowed();

struct LaneOffer {
  std::string socket = {};                ///< An abstract name; empty: no lanes.
  std::vector<std::string> methods = {};  ///< Their places are what travels.
};
Payload offer_payload(const LaneOffer& offer);
/// Errors: DataLoss.
LaneOffer read_offer(const Payload& payload);

/// Exactly one of an error and a payload.
struct RpcResult {
  std::exception_ptr error = {};
  Payload payload = {};
};

class Lane;

/// A call under way. Its end gives it up: what it has asked may be done all the same.
/// Threads: one uses it.
class LaneCall {
 public:
  virtual ~LaneCall() = default;
  LaneCall(const LaneCall&) = delete;
  LaneCall& operator=(const LaneCall&) = delete;

  /// Whether there is an answer or an error, one of the deadline included.
  virtual bool is_over() = 0;
  /// Blocks: until it is over, or `until`. A server that has died is noticed within 20 ms, by this
  /// and by is_over().
  virtual void wait(std::chrono::steady_clock::time_point until) = 0;
  /// Once, when it is over. Nothing: ask over gRPC, as where the answer had no room here.
  /// Owns: the payload, the place in the lane. Errors, in it: as RpcClient's.
  virtual std::optional<RpcResult> take() = 0;

 protected:
  LaneCall() = default;
};

struct LaneStart {
  std::unique_ptr<LaneCall> call = {};
  bool is_full = false;   ///< Without a call: there is one again when some that are under way end.
  bool is_large = false;  ///< The place that it has: the server has another thread for these.
};

/// The client's end. Threads: thread-safe.
class Lane : public std::enable_shared_from_this<Lane> {
 public:
  /// Blocks: for so long at most. Errors: Error that says why there is none.
  static std::shared_ptr<Lane> open(const LaneOffer& offer, CalledServer server,
                                    std::string_view proof,
                                    std::chrono::milliseconds most = std::chrono::seconds(1));
  Lane(LaneSocket socket, LaneMemory memory, CalledServer server, std::vector<std::string> methods);

  /// `answer_bytes`: the most that is expected. `answer_to`: as RpcCallOptions has it.
  /// Cost: a copy of the request. Blocks: never.
  LaneStart start(const std::string& method, const Payload& request,
                  std::chrono::milliseconds timeout, std::size_t answer_bytes = 0,
                  std::span<std::byte> answer_to = {});
  /// The server has ended, or this process is a child of the one that has opened it.
  bool is_gone() const;
  /// Ends the calls that are under way by Cancelled.
  void cancel() { cancelled_ = true; }

 private:
  friend class PlaceCall;
  std::optional<std::size_t> take_place(std::size_t bytes);
  void write_request(std::size_t place, const Payload& request) const;

  const LaneSocket socket_;
  const LaneMemory memory_;
  const CalledServer server_;
  const std::vector<std::string> methods_;
  const base::ProcessMark process_;
  mutable std::atomic<bool> gone_ = false;
  std::atomic<bool> cancelled_ = false;
  enum class Use : uint8_t { kNone, kCall, kGivenUp };
  std::array<std::atomic<Use>, LaneMemory::kPlaces> uses_ = {};
};

/// Finds out whether a server has lanes, and opens one. Threads: thread-safe.
class LaneDoor {
 public:
  struct Options {
    CalledServer server = {};
    /// Asks the server for its offer; told() brings it. Blocks: never.
    std::function<void()> ask = {};
    std::function<std::string()> proof = {};
  };
  explicit LaneDoor(Options options) : options_(std::move(options)) {}

  /// Null: not yet, not any more, or none at all, as in a child of the process that has made this.
  /// Blocks: where it opens one, for so long, or a second.
  std::shared_ptr<Lane> lane(std::chrono::milliseconds most);
  void told(const RpcResult& result);
  /// From here on the client is another one.
  void open_anew();
  void cancel();
  bool is_open() const;

 private:
  enum class State : uint8_t { kNew, kAsked, kTold, kOpening, kOpen };
  std::shared_ptr<Lane> open(const LaneOffer& offer, std::chrono::milliseconds most);

  const Options options_;
  const base::ProcessMark process_;
  mutable base::Mutex mutex_;
  State state_ COHORT_GUARDED_BY(mutex_) = State::kNew;
  bool cancelled_ COHORT_GUARDED_BY(mutex_) = false;
  bool anew_ COHORT_GUARDED_BY(mutex_) = false;
  std::chrono::steady_clock::time_point again_ COHORT_GUARDED_BY(mutex_) = {};
  LaneOffer offer_ COHORT_GUARDED_BY(mutex_);
  std::shared_ptr<Lane> lane_ COHORT_GUARDED_BY(mutex_);
};

}  // namespace cohort::internal::rpc
