// SPDX-License-Identifier: Apache-2.0
//
// A host of a job as the one who leads it sees it: it is prepared, started, ended, and tells what
// happens there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "channel.h"
#include "cohort/base/reserved_ports.h"
#include "cohort/cluster/store/store_process.h"
#include "job.h"
#include "output.h"
#include "process_group.h"

namespace cohortrun {

struct Event {
  enum class Kind { kReady, kEnded, kLost };
  Kind kind = Kind::kReady;
  NodeAddress address = {};            ///< kReady
  std::size_t task = 0;                ///< kEnded: of the node
  int status = 0;                      ///< kEnded: as waitpid has it
  std::vector<std::string> tail = {};  ///< kEnded: its last lines
  std::string why = {};                ///< kLost
};

class Node {
 public:
  virtual ~Node() = default;
  /// "on host b"; "" for this one.
  virtual std::string where() const = 0;
  /// False: one that has to come first, or to come back.
  virtual bool is_there() const = 0;
  /// How many tasks it takes; 0: as many as it is given.
  virtual int slots() const = 0;

  /// kReady follows. ports: how many.
  virtual void prepare(std::size_t ports) = 0;
  /// kEnded follows for each task, or kLost for all.
  virtual void start(const NodePlan& plan) = 0;
  /// One task alone, which has ended, for the restarts-th time.
  virtual void start_again(std::size_t task, int restarts) = 0;
  /// Whether what its tasks have left behind still lives.
  virtual bool any_left() const { return false; }
  /// Its tasks wait with what they write, until end() at the latest.
  virtual void pause(bool paused) = 0;
  /// Passes the signal on; what lives when the grace is over is killed.
  virtual void end(int signal) = 0;
  /// The job is over.
  virtual void finish(int code) = 0;

  virtual void add_polled(std::vector<pollfd>* polled) const = 0;
  virtual std::optional<Clock::time_point> next_deadline() const { return {}; }
  virtual std::vector<Event> step() = 0;
};

/// How processes are started here.
struct LocalSettings {
  ProcessGroup::Settings processes = {};
  OutputOptions output = {};
  std::vector<std::string> environment = {};  ///< For all tasks.
  std::string host = "localhost";             ///< Where the others find this node.
  int port_base = 0;      ///< Task i listens at port_base + i. 0: at ports that are free.
  int cpus_per_task = 0;  ///< 0: an equal share.
  bool bind = true;       ///< Whether tasks are kept on cores of their own.
};

/// The output of a node's tasks in one attempt.
class TaskOutputs {
 public:
  /// Errors: std::runtime_error if a file cannot be made.
  TaskOutputs(const NodePlan& plan, const OutputOptions& options);
  void write(std::size_t task, int stream, std::string_view bytes);
  /// The last lines of its errors; of its output where it has written none.
  std::vector<std::string> tail(std::size_t task) const;

 private:
  std::vector<LineOutput> outputs_;  // two for each task
};

class LocalNode : public Node {
 public:
  /// sink: takes what tasks write, instead of the console and files. slots: see Node.
  LocalNode(LocalSettings settings, int slots, OutputSink sink = {});
  std::string where() const override { return {}; }
  bool is_there() const override { return true; }
  int slots() const override { return slots_; }
  void prepare(std::size_t ports) override;
  void start(const NodePlan& plan) override;
  void start_again(std::size_t task, int restarts) override;
  bool any_left() const override { return group_.any_left(); }
  void pause(bool paused) override { group_.pause(paused); }
  void end(int signal) override { group_.end(signal); }
  void finish(int) override;
  void add_polled(std::vector<pollfd>* polled) const override { group_.add_polled(polled); }
  std::optional<Clock::time_point> next_deadline() const override {
    return events_.empty() ? group_.next_deadline() : Clock::now();
  }
  std::vector<Event> step() override;
  bool any_alive() const { return group_.any_alive(); }

 private:
  void start_store(const NodePlan& plan);
  ProcessSpec spec_of(const NodePlan& plan, std::size_t task) const;

  const LocalSettings settings_;
  const int slots_;
  const OutputSink sink_;
  NodePlan plan_;  // of the attempt
  std::unique_ptr<TaskOutputs> outputs_;
  std::vector<Event> events_;
  std::unique_ptr<cohort::internal::base::ReservedPorts> ports_;  // of the attempt
  std::unique_ptr<SecretFiles> secrets_;
  std::unique_ptr<cohort::internal::cluster::StoreProcess> store_;  // on node 0
  ProcessGroup group_;  // the last: it writes to the others, and its tasks need them
};

/// Another host, where a cohortrun does what this one says.
class RemoteNode : public Node {
 public:
  /// output: of its tasks, which it sends here; or it writes them itself (null).
  RemoteNode(std::string name, int slots, const OutputOptions* output);
  ~RemoteNode() override;
  /// It has come. ssh: the process that connects to it, or 0.
  void attach(Channel channel, int slots, pid_t ssh);
  /// Messages that it gets before all others.
  void send(Kind kind, const std::string& body);
  void rename(std::string name) { name_ = std::move(name); }
  /// Reads what is there, so that is_there() knows of its end; step() tells of it.
  void look() {
    if (channel_) channel_->read();
  }
  /// It has never come, or its loss has been told.
  bool is_free() const { return !is_there() && !was_there_; }

  std::string where() const override { return " on " + name_; }
  bool is_there() const override { return channel_ && channel_->is_open(); }
  int slots() const override { return slots_; }
  void prepare(std::size_t ports) override;
  void start(const NodePlan& plan) override;
  void start_again(std::size_t task, int restarts) override;
  void pause(bool paused) override;
  void end(int signal) override;
  void finish(int code) override;
  void add_polled(std::vector<pollfd>* polled) const override;
  std::vector<Event> step() override;

 private:
  void take(const Message& message, std::vector<Event>* events);
  void take_output(const std::string& body);

  std::string name_;
  int slots_;
  const OutputOptions* output_options_;
  std::unique_ptr<TaskOutputs> outputs_;
  std::optional<Channel> channel_;
  bool was_there_ = false;
  bool is_over_ = false;
  bool is_paused_ = false;  // as it was told
  pid_t ssh_ = 0;
};

/// A connection to a cohortrun on another host, which ssh starts there.
struct SshConnection {
  Channel channel;
  pid_t process = 0;
};
/// ssh: the program and its flags; program: cohortrun there. Errors: std::runtime_error.
SshConnection connect_by_ssh(const std::vector<std::string>& ssh, const std::string& host,
                             const std::string& program);

std::string event_to_json(const Event& event);
/// Errors: std::runtime_error for a text that is none.
Event event_from_json(Event::Kind kind, const std::string& text);

}  // namespace cohortrun
