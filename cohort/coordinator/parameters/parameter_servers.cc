// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/parameter_servers.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/coordinator/parameters/call_numbers.h"
#include "cohort/coordinator/parameters/calls.h"
#include "cohort/coordinator/parameters/drops.h"
#include "cohort/coordinator/parameters/shard_rows.h"
#include "cohort/coordinator/partitioners.h"
#include "cohort/runtime/memory.h"

namespace cohort::internal::coordinator {
namespace {

constexpr const char* kOperation = "[parameter_servers] ";
// A value of so much travels with the call that makes the variable.
constexpr std::size_t kMostFirstBytes = std::size_t{32} << 20;

// Of a call that only frees memory: nobody stands still for it.
constexpr std::chrono::milliseconds kDropTimeout = std::chrono::seconds(3);

uint64_t microseconds_now() {
  using std::chrono::microseconds;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<microseconds>(now).count());
}

std::vector<std::unique_ptr<CallNumbers>> numbers_of(
    const std::vector<std::shared_ptr<rpc::RpcClient>>& servers) {
  std::vector<std::unique_ptr<CallNumbers>> out;
  for (const auto& each : servers) out.push_back(std::make_unique<CallNumbers>(each));
  return out;
}

void skip_header(PayloadReader& in) { in.header(); }

rpc::Payload id_message(uint64_t id) {
  rpc::MessageWriter out;
  out.number(id);
  return message(out);
}

rpc::Payload name_message(const std::string& name) {
  rpc::MessageWriter out;
  out.text(name);
  return message(out);
}

rpc::Payload name_message(const std::string& name, uint64_t generation) {
  rpc::MessageWriter out;
  out.text(name);
  out.number(generation);
  return message(out);
}

// Of slots that have ended, for Drops; no variable is called so.
std::string slots_key(uint64_t shard, const std::string& set) {
  return str_cat('\0', shard, ' ', set);
}

}  // namespace

std::size_t ParameterHandle::row_bytes() const {
  const int64_t elements = rows() == 0 ? 0 : c10::multiply_integers(shape) / rows();
  return static_cast<std::size_t>(elements) * c10::elementSize(dtype);
}

Shape ParameterHandle::shape_of_rows(int64_t count) const {
  Shape out = shape;
  if (!out.empty()) out[0] = count;
  return out;
}

std::string ParameterHandle::shard_name(std::size_t shard) const {
  return shards.size() == 1 ? name : str_cat(name, "/part_", shard);
}

ParameterServers::ParameterServers(std::vector<std::shared_ptr<rpc::RpcClient>> servers,
                                   ParameterServersOptions options)
    : servers_(std::move(servers)),
      numbers_(numbers_of(servers_)),
      options_(options),
      drops_(std::make_unique<Drops>(
          numbers_,
          Drops::Options{.one_try = std::min(options.timeout, kDropTimeout),
                         .all_tries = options.are_groups ? options.timeout : kDropTimeout * 0})),
      last_closure_(microseconds_now()) {
  COHORT_CHECK_ARG(!servers_.empty(), kOperation, "expected at least 1 parameter server, got none");
  runtime::install_caching_allocator();
}

ParameterServers::~ParameterServers() {
  drops_->wait_to_end();
  Calls calls(std::min(options_.timeout, kDropTimeout));
  for (const auto& each : numbers_) {
    const uint64_t client = each->client();
    if (client != 0) calls.start(each->server(), "ps.close", id_message(client));
  }
  try {
    calls.wait();
  } catch (const std::exception&) {  // it has ended, and forgotten this client
  }
}

rpc::Payload ParameterServers::call(int server, const char* method, const rpc::Payload& request) {
  rpc::Payload answer;
  Calls calls(options_.timeout);
  calls.start(
      *servers_[static_cast<std::size_t>(server)], method, request,
      [&](const rpc::Payload& payload) { answer = payload; }, /*wait_for_server=*/true);
  calls.wait();
  return answer;
}

rpc::Payload ParameterServers::call_once(int server, const char* method,
                                         const rpc::Payload& request) {
  rpc::Payload answer;
  Calls calls(options_.timeout);
  calls.start_once(
      *numbers_[static_cast<std::size_t>(server)], method, request,
      [&](const rpc::Payload& payload) { answer = payload; }, /*wait_for_server=*/true);
  calls.wait();
  return answer;
}

namespace {

std::vector<BoundShard> read_shards(rpc::MessageReader& in, int servers) {
  std::vector<BoundShard> out(in.number_up_to(uint64_t{1} << 20));
  for (BoundShard& each : out) {
    each.place.server = static_cast<int>(in.number_up_to(static_cast<uint64_t>(servers) - 1));
    each.place.first = in.signed_number();
    each.place.rows = in.signed_number();
  }
  in.end();
  return out;
}

}  // namespace

void ParameterServers::bind_shards(ParameterHandle& variable) {
  Calls calls(options_.timeout);
  for (std::size_t i = 0; i < variable.shards.size(); ++i) {
    BoundShard& shard = variable.shards[i];
    calls.start(at(shard), "ps.bind", name_message(variable.shard_name(i), variable.generation),
                [&shard, &variable](const rpc::Payload& payload) {
                  PayloadReader data(kOperation, payload);
                  const std::string header = data.header();
                  rpc::MessageReader in(kOperation, header);
                  shard.id = in.number();
                  const DType dtype = read_dtype(in);
                  const Shape shape = read_shape(in);
                  COHORT_CHECK(
                      dtype == variable.dtype && shape == variable.shape_of_rows(shard.place.rows),
                      "[parameter_servers] expected rows of variable \"", variable.name, "\" as ",
                      dtype_name(variable.dtype),
                      bracketed(variable.shape_of_rows(shard.place.rows)), ", the server has ",
                      dtype_name(dtype), bracketed(shape),
                      ": start the job's programs anew from one build");
                });
  }
  calls.wait();
}

void ParameterServers::make_shard(const ParameterHandle& variable, std::size_t index,
                                  const std::function<Tensor(int64_t, int64_t)>& make_part,
                                  BoundShard& shard) {
  const Tensor value = make_part(shard.place.rows, shard.place.first).detach().contiguous();
  const bool is_whole = value.nbytes() <= kMostFirstBytes;
  rpc::MessageWriter out;
  out.text(variable.shard_name(index));
  out.number(variable.generation);
  out.number(wire_dtype(variable.dtype));
  write_shape(out, variable.shape_of_rows(shard.place.rows));
  out.number(is_whole ? 1 : 0);
  rpc::Payload request = message(out);
  if (is_whole) append_bytes(request, value);
  const rpc::Payload answer = call_once(shard.place.server, "ps.create", request);
  PayloadReader data(kOperation, answer);
  const std::string header = data.header();
  shard.id = rpc::MessageReader(kOperation, header).number();
  if (is_whole) return;
  ParameterHandle alone = variable;
  alone.shape = variable.shape_of_rows(shard.place.rows);
  alone.shards = {shard};
  alone.shards[0].place.first = 0;
  write(alone, {}, variables::Write::kAssign, value);
  call(shard.place.server, "ps.ready", id_message(shard.id));
}

ParameterHandle ParameterServers::make_or_bind(
    Declaration what, const std::function<Tensor(int64_t rows, int64_t first)>& make_part,
    bool* made) {
  const WithoutTransaction at_once;
  drops_->wait();  // else a variable that has just ended might be found under its name
  what.servers = count();
  rpc::MessageWriter out;
  out.text(what.name);
  out.number(wire_dtype(what.dtype));
  write_shape(out, what.shape);
  out.signed_number(what.parts);
  out.signed_number(what.server ? *what.server + 1 : 0);
  out.signed_number(what.servers);
  out.number(std::max(what.ended, drops_->given_up(what.name)));
  const rpc::Payload answer = call_once(0, "ps.declare", message(out));
  PayloadReader data(kOperation, answer);
  const std::string header = data.header();
  rpc::MessageReader in(kOperation, header);
  const bool is_new = in.number_up_to(1) == 1;
  if (made != nullptr) *made = is_new;
  const uint64_t generation = in.number();
  ParameterHandle variable{what.name, what.dtype, what.shape, generation, read_shards(in, count())};
  if (!is_new) {
    bind_shards(variable);
    return variable;
  }
  try {
    for (std::size_t i = 0; i < variable.shards.size(); ++i) {
      make_shard(variable, i, make_part, variable.shards[i]);
    }
  } catch (...) {
    drop(variable);
    release_drops();  // others wait for one that is declared
    throw;
  }
  return variable;
}

ParameterHandle ParameterServers::bind(const std::string& name) {
  const rpc::Payload answer = call(0, "ps.find", name_message(name));
  PayloadReader data(kOperation, answer);
  const std::string header = data.header();
  rpc::MessageReader in(kOperation, header);
  ParameterHandle out;
  out.name = name;
  out.dtype = read_dtype(in);
  out.shape = read_shape(in);
  out.generation = in.number();
  out.shards = read_shards(in, count());
  bind_shards(out);
  return out;
}

bool ParameterServers::begin(uint64_t session, uint64_t origin) {
  rpc::MessageWriter out;
  out.number(session);
  out.number(origin);
  bool is_resumed = true;
  for (int server = 0; server < count(); ++server) {
    call(server, "ps.formed", message({}));
    const std::string answer = call_once(server, "ps.begin", rpc::Payload(out.str())).text();
    is_resumed = rpc::MessageReader(kOperation, answer).number_up_to(1) == 1 && is_resumed;
  }
  return is_resumed;
}

void ParameterServers::begin_closures_behind(uint64_t last) {
  if (last_closure_ < last) last_closure_ = last;
}

void ParameterServers::drop(const ParameterHandle& variable) {
  drops_->add({.server = 0,
               .method = "ps.forget",
               .request = name_message(variable.name, variable.generation),
               .key = variable.name,
               .generation = variable.generation});
  for (const BoundShard& shard : variable.shards) {
    if (shard.id == 0) continue;
    drops_->add({.server = static_cast<std::size_t>(shard.place.server),
                 .method = "ps.drop",
                 .request = id_message(shard.id)});
  }
}

void ParameterServers::hold_drops() { drops_->hold(); }
void ParameterServers::release_drops() { drops_->release(); }

Tensor ParameterServers::write(const ParameterHandle& variable, const StoredPlace& place,
                               variables::Write kind, const Tensor& x) {
  const Tensor rows = by_rows(variable, x.contiguous());
  Tensor out;
  Calls calls(options_.timeout);
  for (const BoundShard& shard : variable.shards) {
    in_messages(variable, shard.place.rows, [&](int64_t first, int64_t count) {
      rpc::MessageWriter header;
      header.number(shard.id);
      write_place(header, place);
      header.number(static_cast<uint64_t>(kind));
      write_range(header, {first, count});
      rpc::Payload request = message(header);
      append_bytes(request, rows.narrow(0, shard.place.first + first, count));
      const bool is_all = variable.shards.size() == 1 && count == variable.rows();
      change(calls, shard, "ps.write", request, [&, is_all](const rpc::Payload& payload) {
        PayloadReader in(kOperation, payload);
        skip_header(in);
        if (!is_all || in.left() == 0) return;
        in.expect(x.nbytes());
        out = empty(variable.shape, variable.dtype);
        in.read(out.mutable_data_ptr(), out.nbytes());
      });
    });
  }
  calls.wait();
  return out;
}

void ParameterServers::scatter(const ParameterHandle& variable, variables::Scatter kind,
                               const IndexedSlices& slices) {
  const Tensor index = slices.indices.to(kInt64).contiguous();
  const std::span rows(index.const_data_ptr<int64_t>(), static_cast<std::size_t>(index.numel()));
  const Tensor values = slices.values.detach().contiguous();
  Calls calls(options_.timeout);
  for (const BoundShard& shard : variable.shards) {
    std::vector<int64_t> mine;   // as the shard counts them, in the order given
    std::vector<int64_t> which;  // of the slices
    const auto send = [&] {
      if (mine.empty()) return;
      rpc::MessageWriter header;
      header.number(shard.id);
      header.number(static_cast<uint64_t>(kind));
      header.number(mine.size());
      rpc::Payload request = message(header);
      append_rows(request, std::exchange(mine, {}));
      const auto count = static_cast<int64_t>(which.size());
      append_bytes(request, values.index_select(0, from_vector(which, {count})));
      which.clear();
      // One after the other: of several updates of a row the last one stays.
      change(calls, shard, "ps.scatter", request);
      calls.wait();
    };
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const int64_t local = rows[i] - shard.place.first;
      if (local < 0 || local >= shard.place.rows) continue;
      mine.push_back(local);
      which.push_back(static_cast<int64_t>(i));
      if (mine.size() == rows_of_message(variable)) send();
    }
    send();
  }
}

void ParameterServers::make_slots(const ParameterHandle& variable, const std::string& set,
                                  const std::vector<double>& initial,
                                  std::vector<variables::SlotForm> forms) {
  forms.resize(initial.size());
  drops_->wait();
  Calls calls(options_.timeout);
  for (const BoundShard& shard : variable.shards) {
    rpc::MessageWriter header;
    header.number(shard.id);
    header.text(set);
    header.number(initial.size());
    for (const variables::SlotForm& form : forms) write_form(header, form);
    header.number(drops_->given_up(slots_key(shard.id, set)) > 0 ? 1 : 0);
    rpc::Payload request = message(header);
    const auto owner = std::make_shared<const std::vector<double>>(initial);
    request.append({.bytes = std::as_bytes(std::span(*owner)), .owner = owner});
    calls.start_once(numbers_at(shard), "ps.make_slots", request);
  }
  calls.wait();
  for (const BoundShard& shard : variable.shards) drops_->forget(slots_key(shard.id, set));
}

void ParameterServers::drop_slots(const ParameterHandle& variable, const std::string& set) {
  for (const BoundShard& shard : variable.shards) {
    rpc::MessageWriter header;
    header.number(shard.id);
    header.text(set);
    drops_->add({.server = static_cast<std::size_t>(shard.place.server),
                 .method = "ps.drop_slots",
                 .request = message(header),
                 .key = slots_key(shard.id, set)});
  }
}

}  // namespace cohort::internal::coordinator
