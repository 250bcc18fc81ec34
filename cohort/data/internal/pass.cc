// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/internal/pass.h"

#include <utility>

#include "cohort/base/error.h"

namespace cohort::internal {
namespace {

Pass*& pass_of_thread() {
  thread_local Pass* pass = nullptr;
  return pass;
}

}  // namespace

std::shared_ptr<Pass> Pass::current() {
  Pass* const pass = pass_of_thread();
  return pass != nullptr ? pass->shared_from_this() : std::make_shared<Pass>(DataOptions{});
}

void Pass::check() const {
  if (stop_.stop_requested()) {
    throw Cancelled("[iterator.next] expected an iterator in use, got one that was cancelled");
  }
}

PassScope::PassScope(Pass* pass) : before_(std::exchange(pass_of_thread(), pass)) {}
PassScope::~PassScope() { pass_of_thread() = before_; }

}  // namespace cohort::internal
