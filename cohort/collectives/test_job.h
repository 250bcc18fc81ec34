// SPDX-License-Identifier: Apache-2.0
//
// For tests: a job whose ranks are threads of this process, over any of the transports that can
// have them so. It can do to each what ThreadJob can: make a rank slow, failing, silent or gone.
#pragma once

#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cohort/base/mutex.h"
#include "cohort/base/strings.h"
#include "cohort/collectives/communicator.h"
#include "cohort/collectives/forwarding_transport.h"
#include "cohort/collectives/transports/tcp/tcp_transport.h"
#include "cohort/collectives/transports/threads/thread_job.h"
#include "cohort/rpc/job_authority.h"
#include "cohort/testing/temporary_folder.h"

namespace cohort::internal::collectives {

/// kTwoMachines: some of the ranks share memory, and TCP is between them and the rest.
enum class Carrier { kThreads, kTcp, kSharedMemory, kTwoMachines, kTls };
inline std::string carrier_name(const ::testing::TestParamInfo<Carrier>& info) {
  constexpr const char* kNames[] = {"Threads", "Tcp", "SharedMemory", "TwoMachines", "Tls"};
  return kNames[static_cast<int>(info.param)];
}

/// Whether all that its ranks say goes over sockets.
inline bool is_socket(Carrier carrier) {
  return carrier == Carrier::kTcp || carrier == Carrier::kTls;
}

/// A certificate for `host`, of an authority, as a process of the job has it.
inline rpc::TlsContext tls_for(const rpc::JobAuthority& authority, const std::string& host) {
  static std::atomic<int> number{0};
  const rpc::IssuedCertificate issued = authority.issue(host);
  static const cohort::testing::TemporaryFolder folder;
  const auto write = [at = folder / std::to_string(++number)](const char* what,
                                                              const std::string& text) {
    std::ofstream(at + what, std::ios::binary) << text;
    return at + what;
  };
  return rpc::TlsContext::of_certificates({.certificate = write(".pem", issued.certificate),
                                           .key = write(".key", issued.key),
                                           .authority = write(".ca", authority.certificate())});
}
inline rpc::TlsContext tls_of(Carrier carrier) {
  if (carrier != Carrier::kTls) return {};
  static const rpc::TlsContext context = tls_for(rpc::JobAuthority("test"), "127.0.0.1");
  return context;
}

/// Where a test has a rank.
inline std::string machine_of(Carrier carrier, std::size_t rank) {
  if (carrier != Carrier::kTwoMachines) return {};
  return rank % 3 == 1 ? "another machine" : "a machine";
}

/// A transport on which a test plays tricks.
class PlayedTransport final : public ForwardingTransport {
 public:
  struct Tricks {
    base::Mutex mutex;
    ThreadJob::Hook hook COHORT_GUARDED_BY(mutex) = {};
    bool silent COHORT_GUARDED_BY(mutex) = false;
  };
  PlayedTransport(std::unique_ptr<Transport> real, std::shared_ptr<Tricks> tricks)
      : ForwardingTransport(std::move(real)), tricks_(std::move(tricks)) {}

  void start(const Exchange& exchange) override {
    call_hook(exchange.key, exchange.signature);
    if (!is_silent()) real().start(exchange);
  }
  void go_on() override {
    if (!is_silent()) real().go_on();
  }
  void finish(const Exchange& exchange, Deadline deadline) override {
    is_silent() ? wait_in_vain(exchange.signature, deadline) : real().finish(exchange, deadline);
  }
  void look(Exchange& exchange, Deadline deadline) override {
    is_silent() ? wait_in_vain(exchange.signature, deadline) : real().look(exchange, deadline);
  }
  Deadline start_and_look(Exchange& exchange, std::chrono::milliseconds timeout) override {
    // By way of the two above.
    return Transport::start_and_look(exchange, timeout);  // NOLINT(bugprone-parent-virtual-call)
  }
  void commit(uint64_t sequence, const CallSignature& signature, Deadline deadline) override {
    call_hook({.sequence = sequence}, signature);
    is_silent() ? wait_in_vain(signature, deadline) : real().commit(sequence, signature, deadline);
  }

 private:
  void call_hook(const ExchangeKey& key, const CallSignature& signature) {
    ThreadJob::Hook hook;
    {
      const base::MutexLock lock(tricks_->mutex);
      hook = tricks_->hook;
    }
    if (hook) hook(key, signature);
  }
  bool is_silent() const {
    const base::MutexLock lock(tricks_->mutex);
    return tricks_->silent;
  }
  // For messages that nobody sends.
  void wait_in_vain(const CallSignature& signature, Deadline deadline) {
    Exchange nothing{.key = {.sequence = uint64_t(-1)}, .signature = signature};
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) nothing.parts.push_back({.peer = peer, .sends = false});
    }
    real().finish(nothing, deadline);
  }

  const std::shared_ptr<Tricks> tricks_;
};

/// Over TCP on loopback, on ports that are free, or through shared memory.
inline std::vector<std::unique_ptr<Transport>> connect_ranks(Carrier carrier, int size) {
  std::vector<std::string> addresses(static_cast<std::size_t>(size));
  std::vector<Socket> listeners;
  for (std::string& address : addresses) listeners.push_back(listen_on_free_port(&address));
  std::vector<std::unique_ptr<Transport>> ranks(addresses.size());
  std::vector<std::jthread> threads;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    threads.emplace_back([&, r] {
      ranks[r] = connect_over_tcp({.rank = static_cast<int>(r),
                                   .addresses = addresses,
                                   .timeout = std::chrono::minutes(1),
                                   .tls = tls_of(carrier),
                                   .shared_memory = !is_socket(carrier),
                                   .machine = machine_of(carrier, r),
                                   .listener = std::move(listeners[r])});
    });
  }
  threads.clear();
  return ranks;
}

/// Threads: as ThreadJob.
class TestJob {
 public:
  TestJob(Carrier carrier, int size, CommunicatorOptions options = {}) {
    if (carrier == Carrier::kThreads) {
      threads_.emplace(size, options);
      return;
    }
    for (auto& transport : connect_ranks(carrier, size)) {
      tricks_.push_back(std::make_shared<PlayedTransport::Tricks>());
      ranks_.push_back(std::make_shared<Communicator>(
          std::make_unique<PlayedTransport>(std::move(transport), tricks_.back()), options));
    }
  }

  int size() const { return threads_ ? threads_->size() : static_cast<int>(ranks_.size()); }
  Communicator& operator[](int rank) { return threads_ ? (*threads_)[rank] : *ranks_[at(rank)]; }

  const std::shared_ptr<Communicator>& share(int rank) {
    return threads_ ? threads_->share(rank) : ranks_[at(rank)];
  }

  std::vector<std::exception_ptr> try_run(base::FunctionRef<void(Communicator&)> body) {
    return threads_ ? threads_->try_run(body) : try_on_ranks(ranks_, body);
  }
  void run(base::FunctionRef<void(Communicator&)> body) {
    if (threads_) return threads_->run(body);
    for (const std::exception_ptr& error : try_run(body)) {
      if (error) std::rethrow_exception(error);
    }
  }

  void before_each(int rank, ThreadJob::Hook hook) {
    if (threads_) return threads_->before_each(rank, std::move(hook));
    PlayedTransport::Tricks& tricks = *tricks_[at(rank)];
    const base::MutexLock lock(tricks.mutex);
    tricks.hook = std::move(hook);
  }
  void silence(int rank) {
    if (threads_) return threads_->silence(rank);
    PlayedTransport::Tricks& tricks = *tricks_[at(rank)];
    const base::MutexLock lock(tricks.mutex);
    tricks.silent = true;
  }
  void leave(int rank) {
    if (threads_) return threads_->leave(rank);
    ranks_[at(rank)].reset();
  }

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  std::optional<ThreadJob> threads_;
  std::vector<std::shared_ptr<PlayedTransport::Tricks>> tricks_;
  std::vector<std::shared_ptr<Communicator>> ranks_;
};

}  // namespace cohort::internal::collectives
