// SPDX-License-Identifier: Apache-2.0
//
// Calls of parameter servers for variables whose rows belong to ids.
#include "cohort/base/check.h"
#include "cohort/coordinator/parameters/answer_rows.h"
#include "cohort/coordinator/parameters/parameter_service_impl.h"
#include "cohort/coordinator/status/task_report.h"

namespace cohort::internal::coordinator {
namespace {

// Of one page: of a table of millions of ids there are several.
constexpr uint64_t kMostOfPage = uint64_t{1} << 20;

}  // namespace

rpc::Payload ParameterService::Impl::make_table(rpc::MessageReader& in, PayloadReader& data) {
  const Stored parameter = read_id(in);
  const variables::IdTableOptions asked = read_table_options(in);
  in.end();
  data.expect(0);
  parameter->make_table(asked);
  return message({});
}

rpc::Payload ParameterService::Impl::see(rpc::MessageReader& in, PayloadReader& data) {
  const Stored parameter = read_id(in);
  const std::size_t count = in.number_up_to(data.left());
  const bool begins_step = in.number_up_to(1) == 1;
  in.end();
  const std::vector<int64_t> named = data.integers(count);
  const std::vector<int64_t> counts = data.integers(count);
  data.expect(0);
  for (const int64_t each : counts) {
    COHORT_CHECK_ARG(each > 0 && each <= int64_t{1} << 40,
                     "[ps.see] expected how often ids were seen, got ", each);
  }
  rpc::MessageWriter out;
  out.signed_number(parameter->see_ids(named, counts, begins_step));
  return message(out);
}

rpc::Payload ParameterService::Impl::pull_ids(rpc::MessageReader& in, PayloadReader& data) {
  const Stored parameter = read_id(in);
  const std::size_t count = in.number_up_to(data.left());
  in.end();
  const std::vector<int64_t> named = data.integers(count);
  data.expect(0);
  row_counts().read += named.size();
  return answer_with(data, named.size() * (parameter->row_bytes() + 1),
                     [&](std::byte* to, Filled) { parameter->read_ids(named, to); });
}

rpc::Payload ParameterService::Impl::push_ids(rpc::MessageReader& in, PayloadReader& data) {
  const Stored parameter = read_id(in);
  const UpdateStep step = read_step(in);
  const std::size_t count = in.number_up_to(data.left());
  const bool others_too = in.number_up_to(1) == 1;
  in.end();
  const std::vector<int64_t> named = data.integers(count);
  for (std::size_t i = 1; i < named.size(); ++i) {
    COHORT_CHECK_ARG(named[i - 1] < named[i], "[ps.push_ids] expected each id once, in ascending ",
                     "order, got ", named[i - 1], " and then ", named[i]);
  }
  parameter->update_ids(step, named, others_too, data);
  row_counts().changed += named.size();
  return message({});
}

rpc::Payload ParameterService::Impl::table(rpc::MessageReader& in, PayloadReader& data) {
  const Stored parameter = read_id(in);
  const uint64_t first = in.number();
  const uint64_t most = in.number_up_to(kMostOfPage);
  in.end();
  data.expect(0);
  TablePage page = parameter->table_page(first, most);
  rpc::MessageWriter out;
  for (const int64_t each :
       {page.counts.size, page.counts.candidates, page.counts.evicted, page.counts.refused}) {
    out.signed_number(each);
  }
  out.number(page.version);
  out.number(page.total);
  out.number(page.of_rows);
  const auto sets = parameter->slot_sets();
  out.number(sets.size());
  for (const auto& [name, slots] : sets) {
    out.text(name);
    out.number(slots);
  }
  out.number(page.part.size());
  rpc::Payload answer = message(out);
  append_rows(answer, std::move(page.part));
  return answer;
}

rpc::Payload ParameterService::Impl::restore_table(rpc::MessageReader& in, PayloadReader& data) {
  const Stored parameter = read_id(in);
  const uint64_t total = in.number();
  const uint64_t of_rows = in.number();
  const uint64_t first = in.number();
  const std::size_t count = in.number_up_to(data.left());
  in.end();
  const std::vector<int64_t> part = data.integers(count);
  data.expect(0);
  parameter->restore_table(total, of_rows, first, part);
  return message({});
}

}  // namespace cohort::internal::coordinator
