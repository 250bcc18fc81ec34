// SPDX-License-Identifier: Apache-2.0
//
// A parameter server's slots, and steps that look at a variable as a whole.
#include <vector>

#include "cohort/coordinator/parameters/parameter_service_impl.h"
#include "cohort/coordinator/status/task_report.h"

namespace cohort::internal::coordinator {
namespace {

struct WholePart {
  WholeStep step;
  RowRange range;
  bool moves_columns;
};
WholePart read_part(rpc::MessageReader& in) {
  WholePart out{.step = read_whole_step(in), .range = {}, .moves_columns = false};
  out.range.first = in.signed_number();
  out.range.count = in.signed_number();
  out.moves_columns = in.number_up_to(1) == 1;
  in.end();
  return out;
}

}  // namespace

rpc::Payload ParameterService::Impl::make_slots(rpc::MessageReader& in, PayloadReader& data) {
  const Stored parameter = read_id(in);
  const std::string set = read_name(in);
  std::vector<double> initial(in.number_up_to(update_rules::kMaxSlots));
  std::vector<variables::SlotForm> forms;
  for (std::size_t s = 0; s < initial.size(); ++s) forms.push_back(read_form(in));
  const bool anew = in.number_up_to(1) == 1;
  in.end();
  data.expect(initial.size() * sizeof(double));
  data.read(initial.data(), initial.size() * sizeof(double));
  parameter->make_slots(set, initial, forms, anew);
  return message({});
}

rpc::Payload ParameterService::Impl::drop_slots(rpc::MessageReader& in, PayloadReader& data) {
  const Stored parameter = read_id(in);
  const std::string set = read_name(in);
  in.end();
  data.expect(0);
  parameter->drop_slots(set);
  return message({});
}

rpc::Payload ParameterService::Impl::statistics(rpc::MessageReader& in, PayloadReader& data) {
  const Stored parameter = read_id(in);
  const WholePart part = read_part(in);
  const variables::WholeSums sums =
      parameter->sums(part.step, part.range, part.moves_columns, data);
  rpc::MessageWriter out;
  out.float64(sums.value);
  out.float64(sums.update);
  return message(out);
}

rpc::Payload ParameterService::Impl::push_whole(rpc::MessageReader& in, PayloadReader& data) {
  const Stored parameter = read_id(in);
  const WholePart part = read_part(in);
  parameter->update_whole(part.step, part.range, part.moves_columns, data);
  row_counts().changed += static_cast<uint64_t>(part.range.count);
  return message({});
}

}  // namespace cohort::internal::coordinator
