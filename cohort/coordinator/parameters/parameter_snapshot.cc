// SPDX-License-Identifier: Apache-2.0
//
// A parameter server as a state that several servers have.
#include <utility>

#include "cohort/base/check.h"
#include "cohort/coordinator/parameters/parameter_service_impl.h"

namespace cohort::internal {
namespace {

constexpr const char* kSnapshot = "[ps] ";

}  // namespace

ParameterService::Kind ParameterService::kind_of(const std::string& method) {
  if (Impl::reads().count(method) > 0) return Kind::kRead;
  if (Impl::changes().count(method) > 0) return Kind::kChange;
  return Impl::changes_once().count(method) > 0 ? Kind::kChangeOnce : Kind::kNone;
}

Payload ParameterService::Impl::bind_now(MessageReader& in, PayloadReader& data) {
  const std::string name = in.text();
  in.end();
  data.expect(0);
  const MutexLock lock(mutex);
  const auto found = ids.find(name);
  if (found == ids.end() || !entries.at(found->second).is_ready) {
    throw Unavailable(str_cat("[variable] \"", name, "\" is not ready"), "");
  }
  return answer_binding(found->second, *entries.at(found->second).parameter);
}

Payload ParameterService::ask(const std::string& method, const Payload& payload) {
  for (const Impl::Methods* all : {&Impl::reads(), &Impl::changes(), &Impl::changes_once()}) {
    const auto found = all->find(method);
    if (found == all->end()) continue;
    PayloadReader data(kSnapshot, payload);
    return impl_->do_it(found->second, data);
  }
  throw Unimplemented(str_cat("[ps] expected a call of parameter servers, got \"", method, "\""));
}

void ParameterService::begin(uint64_t first_id) {
  reset();
  const MutexLock lock(impl_->mutex);
  impl_->next_id = first_id;
}

std::string ParameterService::snapshot() const {
  MessageWriter out;
  impl_->directory.save(out);
  const MutexLock lock(impl_->mutex);
  out.number(impl_->next_id);
  out.number(impl_->entries.size());
  for (const auto& [id, entry] : impl_->entries) {
    out.number(id);
    out.number(entry.is_ready ? 1 : 0);
    entry.parameter->save(out);
  }
  return out.str();
}

void ParameterService::restore(const std::string& snapshot) {
  reset();
  MessageReader in(kSnapshot, snapshot);
  impl_->directory.load(in);
  const MutexLock lock(impl_->mutex);
  impl_->next_id = in.number();
  for (uint64_t left = in.number(); left > 0; --left) {
    const uint64_t id = in.number();
    const bool is_ready = in.number_up_to(1) == 1;
    Impl::Entry& entry = impl_->entries[id];
    entry = {StoredParameter::load(in), is_ready};
    impl_->ids[entry.parameter->name()] = id;
  }
  in.end();
}

}  // namespace cohort::internal
