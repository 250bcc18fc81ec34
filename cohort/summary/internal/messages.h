// SPDX-License-Identifier: Apache-2.0
//
// What stands in an event file: TensorFlow's protocol buffers Event, Summary, TensorProto and those
// of TensorBoard's plugins, as bytes. The numbers of fields are theirs (event.proto, summary.proto,
// tensor.proto, plugin_data.proto).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/summary/summary_writer.h"

namespace cohort::internal::summary {

/// Which of TensorBoard's plugins shows a value, and what it is told.
struct SummaryPlugin {
  std::string_view name = {};
  std::string_view content = {};
};

/// The first record of a file. `wall_time`: seconds since 1970.
std::string version_event(double wall_time);
/// An event with one value; `tensor` is a TensorProto.
std::string value_event(double wall_time, int64_t step, std::string_view tag,
                        const SummaryPlugin& plugin, std::string_view tensor);

std::string float_tensor(float value);
/// Shapes: [] for one text, else [texts].
std::string string_tensor(const std::vector<std::string>& texts, bool is_scalar);
/// Rows of [left, right, count], float64. Shapes: [buckets, 3].
std::string histogram_tensor(const Tensor& values, int buckets);
/// What the plugin "hparams" is told of a run that begins, and the tensor beside it.
std::string session_start(const std::vector<std::pair<std::string, HParam>>& values,
                          double wall_time);
std::string no_floats_tensor();

}  // namespace cohort::internal::summary
