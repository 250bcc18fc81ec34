// SPDX-License-Identifier: Apache-2.0
//
// One server's replica of one group: the machine of cohort/replication/replica.h, a thread that
// runs it, and what brings its messages to the others.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/coordinator/parameters/replicated_state.h"
#include "cohort/coordinator/status/task_report.h"
#include "cohort/rpc/client.h"
#include "cohort/rpc/server.h"
#include "cohort/rpc/wire.h"

namespace cohort::internal::coordinator {

struct GroupReplicaOptions {
  int group = 0;
  uint64_t job = 0;  ///< Tells its groups from others' that the store has.
  int task = 0;
  bool is_first = false;  ///< Begins the group; the others wait until it has.
  int copies = 2;
  std::chrono::milliseconds lease = {};
  std::shared_ptr<rpc::RpcClient> store = {};
  std::map<int, std::shared_ptr<rpc::RpcClient>> peers = {};  ///< By task.
};

/// Threads: thread-safe.
class GroupReplica {
 public:
  /// What a client asks.
  struct Question {
    uint64_t generation = 0;  ///< Of its chief (generation_fence.h).
    std::string method = {};
    rpc::Payload payload = {};
    rpc::RpcReply reply;
  };
  explicit GroupReplica(GroupReplicaOptions options);
  ~GroupReplica();
  GroupReplica(const GroupReplica&) = delete;
  GroupReplica& operator=(const GroupReplica&) = delete;

  /// Blocks: never.
  void ask(Question question);
  /// Where a piece of a message of another server's stands.
  struct Place {
    uint64_t message = 0;  ///< Counts those of the sender.
    uint64_t count = 1;    ///< Pieces that it has.
    uint64_t index = 0;
  };
  /// Errors: DataLoss.
  void hear(replication::NodeId from, const Place& place, rpc::Payload piece);
  /// As it was when its thread last looked.
  GroupReport report() const;
  /// Blocks: until its thread has ended.
  void end();

 private:
  using Time = replication::Time;
  struct Heard {
    replication::NodeId from = 0;
    replication::Message message = {};
  };
  struct Ticket {
    rpc::RpcReply reply;
    Time until = {};
  };
  // A sender's large messages that are not whole yet: the first and the last of them.
  struct Pieces {
    uint64_t done = 0;  // and all before it
    std::map<uint64_t, std::map<uint64_t, rpc::Payload>> messages = {};
  };
  struct Held {
    Question question;
    Time until = {};
  };
  // What others bring, who may outlive the replica.
  struct Inbox {
    base::Mutex mutex;
    std::condition_variable_any changed;
    bool ends COHORT_GUARDED_BY(mutex) = false;
    std::deque<Heard> heard COHORT_GUARDED_BY(mutex);
    std::deque<Question> questions COHORT_GUARDED_BY(mutex);
    std::map<replication::NodeId, Pieces> pieces COHORT_GUARDED_BY(mutex);
    bool is_refused COHORT_GUARDED_BY(mutex) = false;  // by the store, which has been logged
    GroupReport report COHORT_GUARDED_BY(mutex);
    void add(Heard one) {
      const base::MutexLock lock(mutex);
      heard.push_back(std::move(one));
      changed.notify_one();
    }
  };
  static void hear_store(Inbox& inbox, const rpc::Payload& answer);
  static void hear_refusal(Inbox& inbox, const std::exception_ptr& error);
  void work();
  GroupReport current_report() const;
  void beat(Time now);
  void look_at_held(Time now);
  void bring(replication::NodeId from, const replication::Message& message, Time now);
  /// What the machine throws ends the process, which says what that was.
  void or_end(const std::function<void()>& work) const;
  replication::NodeId new_ticket(const Question& question, Time now);
  bool has_begun(Time now);
  void take_in(const Heard& heard, Time now);
  void answer(const Question& question, Time now);
  void read(const Question& question, Time now);
  void update(const Question& question, Time now);
  void send_all(Time now);
  void send(replication::Outgoing one);
  void send_piece(int task, rpc::Payload piece, bool in_lane);
  void send_to_store(const replication::Message& message);
  void tell(replication::NodeId ticket, const replication::Message& message);
  void look_at_tickets(Time now);
  rpc::Payload not_primary() const;

  const GroupReplicaOptions options_;
  const replication::NodeId id_;
  ReplicatedParameters* parameters_ = nullptr;  // the machine's
  replication::Replica replica_;                // and all without a guard: the thread's
  bool has_begun_ = false;
  bool was_primary_ = false;
  bool was_whole_ = false;
  Time asked_ = {};
  uint64_t tickets_made_ = 0;
  uint64_t own_updates_ = 0;
  uint64_t messages_ = 0;
  std::map<replication::NodeId, Ticket> tickets_;
  std::deque<Held> held_;  // updates for which the log has no room
  // What is on its way to a peer.
  struct Road {
    std::shared_ptr<std::atomic<int>> over_grpc = std::make_shared<std::atomic<int>>(0);
    std::unique_ptr<rpc::LaneCall> last_large = {};
  };
  std::map<int, Road> roads_;

  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  std::thread thread_;
};

}  // namespace cohort::internal::coordinator
