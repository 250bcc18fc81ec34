// SPDX-License-Identifier: Apache-2.0
//
// A parameter server as a state that several servers have.
#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/coordinator/parameters/parameter_service_impl.h"

namespace cohort::internal::coordinator {
namespace {

constexpr const char* kSnapshot = "[ps] ";

}  // namespace

ParameterService::Kind ParameterService::kind_of(const std::string& method) {
  if (Impl::reads().count(method) > 0) return Kind::kRead;
  if (Impl::changes().count(method) > 0) return Kind::kChange;
  return Impl::changes_once().count(method) > 0 ? Kind::kChangeOnce : Kind::kNone;
}

rpc::Payload ParameterService::Impl::bind_now(rpc::MessageReader& in, PayloadReader& data) {
  Name name{in.text(), 0};
  name.second = in.number();
  in.end();
  data.expect(0);
  const base::MutexLock lock(mutex);
  const uint64_t id = ready_id(name);
  if (id == 0) {
    throw Unavailable(
        str_cat("[variable] expected \"", name.first,
                "\" to have its first value, got none: its maker has not sent it yet"),
        "");
  }
  return answer_binding(id, *entries.at(id).parameter);
}

rpc::Payload ParameterService::ask(const std::string& method, const rpc::Payload& payload) {
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
  const base::MutexLock lock(impl_->mutex);
  impl_->next_id = first_id;
}

rpc::Payload ParameterService::snapshot() const {
  rpc::MessageWriter head;
  rpc::Payload numbers;
  impl_->directory.save(head);
  {
    const base::MutexLock lock(impl_->mutex);
    head.number(impl_->next_id);
    head.number(impl_->entries.size());
    for (const auto& [id, entry] : impl_->entries) {
      head.number(id);
      head.number(entry.generation);
      head.number(entry.is_ready ? 1 : 0);
      entry.parameter->save(head, numbers);
    }
  }
  impl_->save_prepared(head, numbers);
  rpc::MessageWriter size;
  size.number(head.str().size());
  rpc::Payload out(size.str());
  const auto owner = std::make_shared<const std::string>(head.str());
  out.append({.bytes = std::as_bytes(std::span(*owner)), .owner = owner});
  for (const rpc::Payload::Piece& piece : numbers.pieces()) out.append(piece);
  return out;
}

void ParameterService::restore(const rpc::Payload& snapshot) {
  reset();
  PayloadReader numbers(kSnapshot, snapshot);
  std::string size(sizeof(uint64_t), '\0');
  numbers.read(size.data(), size.size());
  std::string head(rpc::MessageReader(kSnapshot, size).number_up_to(numbers.left()), '\0');
  numbers.read(head.data(), head.size());
  rpc::MessageReader in(kSnapshot, head);
  impl_->directory.load(in);
  {
    const base::MutexLock lock(impl_->mutex);
    impl_->next_id = in.number();
    for (uint64_t left = in.number(); left > 0; --left) {
      const uint64_t id = in.number();
      const uint64_t generation = in.number();
      const bool is_ready = in.number_up_to(1) == 1;
      Impl::Entry& entry = impl_->entries[id];
      entry = {StoredParameter::load(in, numbers), generation, is_ready};
      impl_->ids[entry.parameter->name()] = id;
    }
  }
  impl_->load_prepared(in, numbers);
  in.end();
  numbers.expect(0);
}

// What asks for memory, a lot of it at once, is tried before anybody is promised that it is done.
void ParameterService::check_room(const std::string& method, const rpc::Payload& payload) const {
  const bool names_rows = method == "ps.accumulate_rows";
  const bool sums = names_rows || method == "ps.accumulate";
  if (!sums && method != "ps.create" && method != "ps.make_slots") return;
  PayloadReader data(kSnapshot, payload);
  const std::string header = data.header();
  rpc::MessageReader in(kSnapshot, header);
  if (method == "ps.create") {
    in.text();
    in.number();
    const DType dtype = read_dtype(in);
    empty(read_shape(in), dtype);
    return;
  }
  const Impl::Stored parameter = impl_->read_id(in);
  if (sums) {
    const UpdateStep step = read_step(in);
    read_stamp(in);
    std::optional<std::size_t> named;
    if (names_rows)
      named = std::min<uint64_t>(in.number(), static_cast<uint64_t>(parameter->rows()));
    empty({static_cast<int64_t>(parameter->room_for_push(step.slots, named))}, at::kByte);
    return;
  }
  in.text();
  std::vector<Tensor> slots(in.number_up_to(update_rules::kMaxSlots));
  for (Tensor& slot : slots) {
    slot = empty(variables::shape_of(read_form(in), parameter->shape()), parameter->dtype());
  }
}

}  // namespace cohort::internal::coordinator
