// SPDX-License-Identifier: Apache-2.0
//
// tf.train.Example and SequenceExample: what TFRecord files usually hold.
//
//   Example e{{{"image", std::vector<std::string>{png}}, {"label", std::vector<int64_t>{3}}}};
//   writer.write(e.serialize());
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace cohort::data {

/// Bytes, floats or integers; std::monostate is a feature without a kind, which counts as absent.
using Feature = std::variant<std::monostate, std::vector<std::string>, std::vector<float>,
                             std::vector<int64_t>>;
using Features = std::map<std::string, Feature>;

/// TF: tf.train.Example.
struct Example {
  Features features;

  /// Order: by name, so that equal examples give equal bytes.
  std::string serialize() const;
  /// Errors: DataLoss if the bytes are no Example.
  static Example parse(std::string_view bytes);
};

/// TF: tf.train.SequenceExample.
struct SequenceExample {
  Features context;
  std::map<std::string, std::vector<Feature>> feature_lists;

  std::string serialize() const;
  static SequenceExample parse(std::string_view bytes);
};

}  // namespace cohort::data
