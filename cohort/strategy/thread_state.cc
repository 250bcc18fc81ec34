// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/internal/thread_state.h"

#include <ATen/autocast_mode.h>

#include "cohort/runtime/libtorch.h"
#include "cohort/runtime/replica_scope.h"

namespace cohort::internal::strategy {
namespace {

constexpr std::array<at::DeviceType, 2> kAutocastDevices = {at::kCPU, at::kCUDA};

// Whatever at::ThreadLocalState copies beyond PlainThreadState's members is as in a new thread.
bool is_plain() {
  const at::impl::SavedTensorDefaultHooksTLS& hooks = at::SavedTensorDefaultHooks::get_tls_state();
  const at::RecordFunctionTLS& profiling = at::get_record_function_tls_();
  return c10::ThreadLocalDebugInfo::current() == nullptr &&
         profiling.sorted_tls_callbacks_.empty() && profiling.tls_record_function_enabled_ &&
         at::functorch::functorchTLSAccessor() == nullptr && hooks.stack.empty() &&
         !hooks.disabled_error_message && !runtime::has_node_creation_hooks() &&
         !c10::impl::TorchDispatchModeTLS::any_modes_set() &&
         c10::impl::PythonDispatcherTLS::get_state() == nullptr &&
         at::impl::PythonTorchFunctionTLS::stack_len() == 0 &&
         !c10::AutogradState::get_tls_state().get_graph_exec_group();
}

auto flags_of(const c10::AutogradState& s) {
  return std::array<bool, 6>{s.get_grad_mode(),           s.get_inference_mode(),
                             s.get_fw_grad_mode(),        s.get_multithreading_enabled(),
                             s.get_view_replay_enabled(), runtime::enforces_grad_layout(s)};
}

}  // namespace

PlainThreadState::PlainThreadState()
    : dispatch_keys_(c10::impl::tls_local_dispatch_key_set()),
      autograd_(c10::AutogradState::get_tls_state()) {
  for (std::size_t i = 0; i < kAutocastDevices.size(); ++i) {
    autocast_dtypes_[i] = at::autocast::get_autocast_dtype(kAutocastDevices[i]);
  }
}

std::optional<PlainThreadState> PlainThreadState::here() {
  if (!is_plain()) return std::nullopt;
  return PlainThreadState();
}

bool PlainThreadState::operator==(const PlainThreadState& other) const {
  return dispatch_keys_.included_ == other.dispatch_keys_.included_ &&
         dispatch_keys_.excluded_ == other.dispatch_keys_.excluded_ &&
         flags_of(autograd_) == flags_of(other.autograd_) &&
         autocast_dtypes_ == other.autocast_dtypes_;
}

void PlainThreadState::set() const {
  c10::impl::_force_tls_local_dispatch_key_set(dispatch_keys_);
  c10::AutogradState::set_tls_state(autograd_);
  for (std::size_t i = 0; i < kAutocastDevices.size(); ++i) {
    at::autocast::set_autocast_dtype(kAutocastDevices[i], autocast_dtypes_[i]);
  }
}

ThreadState::ThreadState() : plain_(PlainThreadState::here()), open_tapes_(runtime::open_tapes()) {
  if (!plain_) full_.emplace();
}

AdoptedThreadState::AdoptedThreadState(const ThreadState& of_caller) {
  adopt(of_caller);
  // Where a replica's device wants backward passes on its own thread, that holds.
  if (!own_threads_) c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}

void AdoptedThreadState::adopt(const ThreadState& of_caller) {
  runtime::set_open_tapes(of_caller.open_tapes_);
  // Taken where this thread's first run begins, when it is new.
  static thread_local const at::ThreadLocalState untouched;
  if (!of_caller.plain_) {
    guard_.emplace(*of_caller.full_);
    return;
  }
  std::optional<PlainThreadState> own = PlainThreadState::here();
  if (!own) {  // a function before has left something behind
    at::ThreadLocalState::setThreadLocalState(untouched);
    own = PlainThreadState::here();
  }
  if (!own || !(*own == *of_caller.plain_)) of_caller.plain_->set();
}

}  // namespace cohort::internal::strategy
