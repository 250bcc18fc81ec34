// SPDX-License-Identifier: Apache-2.0
//
// Calls of parameter servers for pushes that are one update with others.
#include "cohort/coordinator/parameters/parameter_service_impl.h"
#include "cohort/coordinator/status/task_report.h"

namespace cohort::internal::coordinator {

static rpc::Payload answer_count(const PushCount& count) {
  rpc::MessageWriter out;
  out.number(count.step);
  out.number(count.is_late ? 1 : 0);
  return message(out);
}

rpc::Payload ParameterService::Impl::accumulate(rpc::MessageReader& in, PayloadReader& data) {
  const Stored parameter = read_id(in);
  const UpdateStep step = read_step(in);
  const PushStamp stamp = read_stamp(in);
  in.end();
  const PushCount pushed = parameter->accumulate(step, stamp, data);
  row_counts().changed += static_cast<uint64_t>(parameter->rows());
  return answer_count(pushed);
}

rpc::Payload ParameterService::Impl::accumulate_rows(rpc::MessageReader& in, PayloadReader& data) {
  const Stored parameter = read_id(in);
  const UpdateStep step = read_step(in);
  const PushStamp stamp = read_stamp(in);
  const std::size_t count = in.number();
  const bool others_too = in.number_up_to(1) == 1;
  in.end();
  const std::vector<int64_t> rows = data.ascending_rows(count, parameter->rows());
  const PushCount pushed = parameter->accumulate_rows(step, stamp, rows, others_too, data);
  row_counts().changed += rows.size();
  return answer_count(pushed);
}

rpc::Payload ParameterService::Impl::count_push(rpc::MessageReader& in, PayloadReader& data) {
  const Stored parameter = read_id(in);
  const PushStamp stamp = read_stamp(in);
  in.end();
  data.expect(0);
  return answer_count(parameter->count_push(stamp));
}

rpc::Payload ParameterService::Impl::complete_update(rpc::MessageReader& in, PayloadReader& data) {
  const Stored parameter = read_id(in);
  const std::string set = read_name(in);
  in.end();
  data.expect(0);
  parameter->complete_update(set);
  return message({});
}

rpc::Payload ParameterService::Impl::complete_count(rpc::MessageReader& in, PayloadReader& data) {
  const Stored parameter = read_id(in);
  in.end();
  data.expect(0);
  return answer_count({.step = parameter->complete_count()});
}

rpc::Payload ParameterService::Impl::push_step(rpc::MessageReader& in, PayloadReader& data) {
  const Stored parameter = read_id(in);
  in.end();
  data.expect(0);
  return answer_count({.step = parameter->push_step()});
}

}  // namespace cohort::internal::coordinator
