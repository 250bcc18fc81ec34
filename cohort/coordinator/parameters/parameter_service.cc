// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/parameter_service.h"

#include <algorithm>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/coordinator/parameters/answer_rows.h"
#include "cohort/coordinator/parameters/parameter_service_impl.h"
#include "cohort/coordinator/parameters/transaction.h"
#include "cohort/coordinator/status/task_report.h"
#include "cohort/runtime/memory.h"

namespace cohort::internal::coordinator {
namespace {

constexpr const char* kPs = "[ps] ";
constexpr uint64_t kMostParts = 1 << 20;
constexpr uint64_t kMostServers = 1 << 16;
// Values that come back with a write, such as a count.
constexpr std::size_t kAnsweredBytes = 64;

StoredPlace read_place(rpc::MessageReader& in) {
  StoredPlace out;
  out.slots = read_name(in);
  out.slot = in.number_up_to(update_rules::kMaxSlots);
  return out;
}

void write_found(rpc::MessageWriter& out, const Directory::Found& found) {
  out.number(found.generation);
  out.number(found.shards.size());
  for (const Shard& shard : found.shards) {
    out.signed_number(shard.server);
    out.signed_number(shard.first);
    out.signed_number(shard.rows);
  }
}

RowRange read_range(rpc::MessageReader& in) {
  RowRange out;
  out.first = in.signed_number();
  out.count = in.signed_number();
  return out;
}

}  // namespace

uint64_t random_parameter_id() {
  std::random_device random;
  return (uint64_t{random()} << 32 | random()) & ~uint64_t{0xffffff};
}

ParameterService::Impl::Stored ParameterService::Impl::at(uint64_t id) {
  const base::MutexLock lock(mutex);
  const auto found = entries.find(id);
  COHORT_CHECK_STATE(found != entries.end(),
                     "[ps] expected a variable that this parameter server has, got one from before "
                     "the server or the coordinator was restarted, or one that has been deleted; "
                     "make the variables again, and restore them from a checkpoint");
  return found->second.parameter;
}

rpc::Payload ParameterService::Impl::do_it(Method method, PayloadReader& data) {
  const std::string header = data.header();
  rpc::MessageReader in(kPs, header);
  return (this->*method)(in, data);
}

void ParameterService::Impl::do_once(Method method, const rpc::Payload& payload,
                                     const rpc::RpcReply& reply) {
  PayloadReader data(kPs, payload);
  const CallNumber number = read_number(data);
  const auto answer = [reply](const rpc::RpcResult& result) {
    if (!result.error) return reply.send(result.payload);
    try {
      std::rethrow_exception(result.error);
    } catch (const std::exception& e) {
      reply.fail(e);
    }
  };
  if (!done.begin(number, answer)) return;
  rpc::RpcResult result;
  try {
    result.payload = do_it(method, data);
  } catch (const c10::Error& e) {
    result.error = std::make_exception_ptr(Internal(str_cat(kPs, e.what_without_backtrace())));
  } catch (...) {
    result.error = std::current_exception();
  }
  done.end(number, result);
}

rpc::Payload ParameterService::Impl::open(rpc::MessageReader& in, PayloadReader& data) {
  in.end();
  data.expect(0);
  rpc::MessageWriter out;
  out.number(done.open());
  return message(out);
}

rpc::Payload ParameterService::Impl::close(rpc::MessageReader& in, PayloadReader& data) {
  const uint64_t client = in.number();
  in.end();
  data.expect(0);
  done.close(client);
  return message({});
}

rpc::Payload ParameterService::Impl::declare(rpc::MessageReader& in, PayloadReader& data) {
  Declaration asked;
  asked.name = read_name(in);
  asked.dtype = read_dtype(in);
  asked.shape = read_shape(in);
  asked.parts = static_cast<int64_t>(in.number_up_to(kMostParts));
  const auto beside = static_cast<int>(in.number_up_to(kMostServers));  // 0: anywhere
  if (beside > 0) asked.server = beside - 1;
  asked.servers = static_cast<int>(in.number_up_to(kMostServers));
  asked.ended = in.number();
  in.end();
  data.expect(0);
  const Directory::Found found = directory.find_or_place(asked);
  rpc::MessageWriter out;
  out.number(found.is_new ? 1 : 0);
  write_found(out, found);
  return message(out);
}

rpc::Payload ParameterService::Impl::find(rpc::MessageReader& in, PayloadReader& data) {
  const std::string name = read_name(in);
  in.end();
  data.expect(0);
  Directory::Found found;
  const Declaration what = directory.find(name, &found);
  rpc::MessageWriter out;
  out.number(wire_dtype(what.dtype));
  write_shape(out, what.shape);
  write_found(out, found);
  return message(out);
}

rpc::Payload ParameterService::Impl::forget(rpc::MessageReader& in, PayloadReader& data) {
  const std::string name = read_name(in);
  const uint64_t generation = in.number();
  in.end();
  data.expect(0);
  directory.forget(name, generation);
  return message({});
}

rpc::Payload ParameterService::Impl::create(rpc::MessageReader& in, PayloadReader& data) {
  std::string name = read_name(in);
  const uint64_t generation = in.number();
  const DType dtype = read_dtype(in);
  const Shape shape = read_shape(in);
  const bool is_whole = in.number_up_to(1) == 1;  // its numbers come with it
  in.end();
  const auto made = std::make_shared<StoredParameter>(name, dtype, shape);
  if (is_whole) {
    made->write({}, variables::Write::kAssign, {0, made->rows()}, data);
  } else {
    data.expect(0);
  }
  uint64_t id = 0;
  {
    const base::MutexLock lock(mutex);
    if (const auto before = ids.find(name); before != ids.end()) {
      COHORT_CHECK_STATE(entries.at(before->second).generation < generation,
                         "[variable] expected a new variable, got \"", name,
                         "\", which this parameter server has");
      entries.erase(before->second);  // it has ended
    }
    id = ++next_id;
    entries[id] = {made, generation, false};
    ids[std::move(name)] = id;
  }
  if (is_whole) set_ready(id);
  return answer_binding(id, *made);
}

rpc::Payload ParameterService::Impl::answer_binding(uint64_t id, const StoredParameter& parameter) {
  rpc::MessageWriter out;
  out.number(id);
  out.number(wire_dtype(parameter.dtype()));
  write_shape(out, parameter.shape());
  return message(out);
}

void ParameterService::Impl::set_ready(uint64_t id) {
  Stored parameter;
  std::vector<rpc::RpcReply> answered;
  {
    const base::MutexLock lock(mutex);
    const auto found = entries.find(id);
    if (found == entries.end()) return;
    found->second.is_ready = true;
    parameter = found->second.parameter;
    if (const auto them = waiting.find({parameter->name(), found->second.generation});
        them != waiting.end()) {
      answered = std::move(them->second);
      waiting.erase(them);
    }
  }
  for (const rpc::RpcReply& each : answered) each.send(answer_binding(id, *parameter));
}

uint64_t ParameterService::Impl::ready_id(const Name& name) const {
  const auto found = ids.find(name.first);
  if (found == ids.end()) return 0;
  const Entry& entry = entries.at(found->second);
  return entry.is_ready && entry.generation == name.second ? found->second : 0;
}

rpc::Payload ParameterService::Impl::ready(rpc::MessageReader& in, PayloadReader& data) {
  const uint64_t id = in.number();
  in.end();
  data.expect(0);
  at(id);
  set_ready(id);
  return message({});
}

void ParameterService::Impl::bind(const rpc::Payload& payload, const rpc::RpcReply& reply) {
  PayloadReader data(kPs, payload);
  const std::string header = data.header();
  rpc::MessageReader in(kPs, header);
  Name name{read_name(in), 0};
  name.second = in.number();
  in.end();
  uint64_t id = 0;
  Stored parameter;
  {
    const base::MutexLock lock(mutex);
    id = ready_id(name);
    if (id != 0) {
      parameter = entries.at(id).parameter;
    } else {
      waiting[name].push_back(reply);
    }
  }
  if (parameter != nullptr) reply.send(answer_binding(id, *parameter));
}

rpc::Payload ParameterService::Impl::drop(rpc::MessageReader& in, PayloadReader& data) {
  const uint64_t id = in.number();
  in.end();
  data.expect(0);
  const base::MutexLock lock(mutex);
  if (const auto found = entries.find(id); found != entries.end()) {
    const auto name = ids.find(found->second.parameter->name());
    if (name != ids.end() && name->second == id) ids.erase(name);
    entries.erase(found);
  }
  return message({});
}

rpc::Payload ParameterService::Impl::pull(rpc::MessageReader& in, PayloadReader& data) {
  const Stored parameter = read_id(in);
  const StoredPlace place = read_place(in);
  const RowRange range = read_range(in);
  in.end();
  data.expect(0);
  rpc::Payload out = answer_with_rows(data, *parameter, place, range);
  row_counts().read += static_cast<uint64_t>(range.count);
  return out;
}

rpc::Payload ParameterService::Impl::pull_rows(rpc::MessageReader& in, PayloadReader& data) {
  const Stored parameter = read_id(in);
  const std::size_t count = in.number();
  in.end();
  const std::vector<int64_t> rows = data.rows(count, parameter->rows());
  data.expect(0);
  row_counts().read += rows.size();
  return answer_with(data, rows.size() * parameter->row_bytes(),
                     [&](std::byte* to, Filled filled) { parameter->read_rows(rows, to, filled); });
}

rpc::Payload ParameterService::Impl::write(rpc::MessageReader& in, PayloadReader& data) {
  const Stored parameter = read_id(in);
  const StoredPlace place = read_place(in);
  const auto kind =
      static_cast<variables::Write>(in.number_up_to(static_cast<uint64_t>(variables::Write::kSub)));
  const RowRange range = read_range(in);
  in.end();
  parameter->write(place, kind, range, data);
  row_counts().changed += static_cast<uint64_t>(range.count);
  const bool is_small = parameter->bytes_of(place, range) <= kAnsweredBytes;
  static const rpc::Payload kNoCall;  // what is kept for who asks again has memory of its own
  return is_small ? answer_with_rows(PayloadReader(kPs, kNoCall), *parameter, place, range)
                  : message({});
}

rpc::Payload ParameterService::Impl::scatter(rpc::MessageReader& in, PayloadReader& data) {
  const Stored parameter = read_id(in);
  const auto kind = static_cast<variables::Scatter>(
      in.number_up_to(static_cast<uint64_t>(variables::Scatter::kUpdate)));
  const std::size_t count = in.number();
  in.end();
  const std::vector<int64_t> rows = data.rows(count, parameter->rows());
  parameter->scatter(kind, rows, data);
  row_counts().changed += rows.size();
  return message({});
}

rpc::Payload ParameterService::Impl::push(rpc::MessageReader& in, PayloadReader& data) {
  const Stored parameter = read_id(in);
  const UpdateStep step = read_step(in);
  const RowRange range = read_range(in);
  in.end();
  parameter->update(step, range, data);
  row_counts().changed += static_cast<uint64_t>(range.count);
  return message({});
}

rpc::Payload ParameterService::Impl::push_rows(rpc::MessageReader& in, PayloadReader& data) {
  const Stored parameter = read_id(in);
  const UpdateStep step = read_step(in);
  const RowRange range = read_range(in);
  const std::size_t count = in.number();
  const bool others_too = in.number_up_to(1) == 1;
  in.end();
  const std::vector<int64_t> rows = data.ascending_rows(count, parameter->rows());
  parameter->update_rows(step, range, rows, others_too, data);
  row_counts().changed += rows.size();
  return message({});
}

// What is sent is as large each time, and pages that are fresh cost more than what they carry.
ParameterService::ParameterService(ParameterServiceOptions options)
    : impl_(std::make_unique<Impl>(options)) {
  runtime::install_caching_allocator();
}
ParameterService::~ParameterService() = default;

void ParameterService::reset() { impl_->reset(); }

void ParameterService::Impl::reset() {
  directory.clear();
  {
    const base::MutexLock lock(prepared_mutex);
    prepared.restore({});
    applied.notify_all();
  }
  const base::MutexLock lock(mutex);
  entries.clear();
  ids.clear();
  next_id = random_parameter_id();
  for (auto& [name, replies] : waiting) {
    for (const rpc::RpcReply& each : replies) {
      each.fail(
          Cancelled("[variable] another coordinator has taken over, with variables of its own; end "
                    "this one"));
    }
  }
  waiting.clear();
}

void ParameterService::follow(uint64_t generation, bool is_anew, std::function<void()> then) {
  impl_->fence.raise(generation, [impl = impl_.get(), is_anew, then = std::move(then)] {
    if (is_anew) impl->reset();
    then();
  });
}

std::size_t ParameterService::bytes() const {
  std::vector<Impl::Stored> all;
  {
    const base::MutexLock lock(impl_->mutex);
    for (const auto& [id, entry] : impl_->entries) all.push_back(entry.parameter);
  }
  std::size_t sum = 0;
  for (const auto& each : all) sum += each->bytes();
  return sum;
}

const ParameterService::Impl::Methods& ParameterService::Impl::reads() {
  static const Methods kReads = {
      {"ps.find", &Impl::find},           {"ps.bind", &Impl::bind_now},
      {"ps.pull", &Impl::pull},           {"ps.pull_rows", &Impl::pull_rows},
      {"ps.pull_ids", &Impl::pull_ids},   {"ps.table", &Impl::table},
      {"ps.push_step", &Impl::push_step}, {"ps.statistics", &Impl::statistics}};
  return kReads;
}

const ParameterService::Impl::Methods& ParameterService::Impl::changes() {
  static const Methods kChanges = {{"ps.ready", &Impl::ready}};
  return kChanges;
}

const ParameterService::Impl::Methods& ParameterService::Impl::changes_once() {
  static const Methods kOnce = {{"ps.declare", &Impl::declare},
                                {"ps.create", &Impl::create},
                                {"ps.write", &Impl::write},
                                {"ps.scatter", &Impl::scatter},
                                {"ps.push", &Impl::push},
                                {"ps.push_rows", &Impl::push_rows},
                                {"ps.push_whole", &Impl::push_whole},
                                {"ps.accumulate", &Impl::accumulate},
                                {"ps.accumulate_rows", &Impl::accumulate_rows},
                                {"ps.count_push", &Impl::count_push},
                                {"ps.complete_update", &Impl::complete_update},
                                {"ps.complete_count", &Impl::complete_count},
                                {"ps.make_table", &Impl::make_table},
                                {"ps.see", &Impl::see},
                                {"ps.push_ids", &Impl::push_ids},
                                {"ps.restore_table", &Impl::restore_table},
                                {kPrepareMethod, &Impl::prepare},
                                {kSettleMethod, &Impl::settle},
                                {"ps.make_slots", &Impl::make_slots},
                                {"ps.drop_slots", &Impl::drop_slots},
                                {"ps.forget", &Impl::forget},
                                {"ps.drop", &Impl::drop}};
  return kOnce;
}

std::vector<std::string> parameter_lanes() {
  return {"ps.pull", "ps.pull_rows", "ps.write",    "ps.scatter",    "ps.push",      "ps.push_rows",
          "ps.see",  "ps.pull_ids",  "ps.push_ids", "ps.statistics", "ps.push_whole"};
}

std::map<std::string, rpc::RpcHandler> parameter_methods(
    std::shared_ptr<ParameterService> service) {
  using Impl = ParameterService::Impl;
  std::map<std::string, rpc::RpcHandler> out;
  // A handler must not block: gRPC's threads only bring the message.
  const auto later = [&](const std::string& name,
                         std::function<void(const rpc::Payload&, rpc::RpcReply)> work) {
    out[name] = [service, work = std::move(work)](rpc::RpcRequest request, rpc::RpcReply reply) {
      Impl* const impl = service->impl_.get();
      auto task = [impl, work, generation = request.caller.generation,
                   payload = std::move(request.payload), reply = std::move(reply)] {
        try {
          const GenerationFence::Call call(impl->fence, generation);
          work(payload, reply);
        } catch (const c10::Error& e) {
          reply.fail(Internal(str_cat(kPs, e.what_without_backtrace())));
        } catch (const std::exception& e) {
          reply.fail(e);
        }
      };
      if (request.may_block) return task();
      impl->threads.add(std::move(task));
    };
  };
  Impl* const impl = service->impl_.get();
  const auto add = [&](const std::string& name, Impl::Method method) {
    later(name, [impl, method](const rpc::Payload& payload, const rpc::RpcReply& reply) {
      PayloadReader data(kPs, payload, &reply);
      reply.send(impl->do_it(method, data));
    });
  };
  const auto add_once = [&](const std::string& name, Impl::Method method) {
    later(name, [impl, method](const rpc::Payload& payload, const rpc::RpcReply& reply) {
      impl->do_once(method, payload, reply);
    });
  };
  for (const auto& [name, method] : Impl::reads()) {
    if (method != &Impl::bind_now) add(name, method);
  }
  for (const auto& [name, method] : Impl::changes()) add(name, method);
  for (const auto& [name, method] : Impl::changes_once()) add_once(name, method);
  add("ps.open", &Impl::open);
  add("ps.close", &Impl::close);
  later("ps.bind", [impl](const rpc::Payload& payload, const rpc::RpcReply& reply) {
    impl->bind(payload, reply);
  });
  return out;
}

}  // namespace cohort::internal::coordinator
