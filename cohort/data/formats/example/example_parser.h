// SPDX-License-Identifier: Apache-2.0
//
// Serialized examples into elements with named components.
//
//   auto train = Dataset::tf_records(files).shuffle(10000).batch(128).apply(parse_example_dataset(
//       {{"image", FixedLenFeature{FeatureType::kFloat32, {784}}},
//        {"label", FixedLenFeature{FeatureType::kInt64}}}));
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cohort/data/dataset.h"

namespace cohort::data {

enum class FeatureType { kString, kFloat32, kInt64 };

/// A feature of as many values as `shape` has.
struct FixedLenFeature {
  FeatureType type = FeatureType::kFloat32;
  Shape shape = {};
  /// For examples without the feature: of `shape`, or one value for all.
  std::optional<Element> default_value = {};
};

/// Any number of values, as a sparse tensor: named components indices int64[n,2], values [n] and
/// dense_shape int64[2]; of one example [n,1] and [1].
struct VarLenFeature {
  FeatureType type = FeatureType::kFloat32;
};

/// Any number of values: Element::ragged of values [n], a row for each example; of one example the
/// values alone.
struct RaggedFeature {
  FeatureType type = FeatureType::kFloat32;
};

/// In a sequence, per step a feature of as many values as `shape` has: [steps, shape...].
struct FixedLenSequenceFeature {
  FeatureType type = FeatureType::kFloat32;
  Shape shape = {};
  bool allow_missing = false;  ///< A list that is not there has no steps.
};

using FeatureSpec = std::variant<FixedLenFeature, VarLenFeature, RaggedFeature>;
using FeatureSpecs = std::map<std::string, FeatureSpec>;
using SequenceFeatureSpec = std::variant<FixedLenSequenceFeature, RaggedFeature>;
using SequenceFeatureSpecs = std::map<std::string, SequenceFeatureSpec>;

/// Reads examples by their specs. Copies share it. Threads: immutable.
/// Order: components by name. Features that no spec names are passed over, and of features with
/// one name the last one counts.
/// Errors: of the constructor InvalidArgument for no spec, an unknown dimension, or a default of
/// another type or shape; of parse and parse_single InvalidArgument that names example and feature
/// if it is absent without a default, of another type, or of another number of values; DataLoss if
/// the bytes are no Example.
class ExampleParser {
 public:
  explicit ExampleParser(FeatureSpecs features);

  Element parse_single(std::string_view serialized) const;
  Element parse(const std::vector<std::string>& serialized) const;
  /// Of a batch of strings. Cost: does not copy them.
  Element parse_batch(const Element& serialized) const;
  /// Of what parse_single and parse return.
  ElementSpec single_spec() const;
  ElementSpec batch_spec() const;

 private:
  class Plan;

  std::shared_ptr<const Plan> plan_;
};

/// TF: tf.io.parse_example, tf.io.parse_single_example.
Element parse_example(const std::vector<std::string>& serialized, const FeatureSpecs& features);
Element parse_single_example(std::string_view serialized, const FeatureSpecs& features);

/// (context, sequences), both with named components. Errors: as ExampleParser.
/// TF: tf.io.parse_single_sequence_example.
Element parse_single_sequence_example(std::string_view serialized, const FeatureSpecs& context,
                                      const SequenceFeatureSpecs& sequences);

/// For Dataset::apply: parses single examples or batches of them, whichever the dataset has.
/// TF: tf.data.experimental.parse_example_dataset.
std::function<Dataset(const Dataset&)> parse_example_dataset(FeatureSpecs features,
                                                             MapOptions options = {});

}  // namespace cohort::data
