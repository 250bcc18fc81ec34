// SPDX-License-Identifier: Apache-2.0
//
// A transport around another one, for those that only want to see or to change some of the calls.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "cohort/collectives/transport.h"
#include "cohort/runtime/device_backend.h"

namespace cohort::internal::collectives {

/// Hands every call on; whoever derives overrides those that it is about, and start_and_look() with
/// start() or look(). Owns: the real one.
class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(std::unique_ptr<Transport> real) : real_(std::move(real)) {}

  int rank() const override { return real_->rank(); }
  int size() const override { return real_->size(); }
  void start(const Exchange& exchange) override { real_->start(exchange); }
  void go_on() override { real_->go_on(); }
  void finish(const Exchange& exchange, Deadline deadline) override {
    real_->finish(exchange, deadline);
  }
  bool has_come(const Exchange& exchange) override { return real_->has_come(exchange); }
  bool shares_memory() const override { return real_->shares_memory(); }
  void look(Exchange& exchange, Deadline deadline) override { real_->look(exchange, deadline); }
  Deadline start_and_look(Exchange& exchange, std::chrono::milliseconds timeout) override {
    return real_->start_and_look(exchange, timeout);
  }
  void let_go(const Exchange& exchange, Deadline deadline) override {
    real_->let_go(exchange, deadline);
  }
  void await_readers(const Exchange& exchange, Deadline deadline) override {
    real_->await_readers(exchange, deadline);
  }
  void withdraw(const Exchange& exchange) noexcept override { real_->withdraw(exchange); }
  void commit(uint64_t sequence, const CallSignature& signature, Deadline deadline) override {
    real_->commit(sequence, signature, deadline);
  }
  void abort(const Failure& failure) noexcept override { real_->abort(failure); }
  void lose(std::span<const int> ranks, const Failure& failure) noexcept override {
    real_->lose(ranks, failure);
  }
  bool failed() const override { return real_->failed(); }
  void check() const override { real_->check(); }
  void renew(Deadline deadline) override { real_->renew(deadline); }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override { return real_->allocate(bytes); }
  std::unique_ptr<runtime::Region> reserve_memory(std::size_t bytes) override {
    return real_->reserve_memory(bytes);
  }
  bool can_lend(ConstBytes bytes) const override { return real_->can_lend(bytes); }

 protected:
  Transport& real() const { return *real_; }

 private:
  const std::unique_ptr<Transport> real_;
};

}  // namespace cohort::internal::collectives
