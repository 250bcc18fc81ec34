// SPDX-License-Identifier: Apache-2.0
//
// One feature of many examples: what it is to be, and its values as they are collected.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cohort/data/formats/example/example_parser.h"
#include "cohort/data/formats/example/internal/example_wire.h"

namespace cohort::internal::data {

/// The values of one parse.
class ColumnBuilder {
 public:
  virtual ~ColumnBuilder() = default;
  /// The bytes of the next example's feature; without data: it has none.
  /// Errors: InvalidArgument that begins "feature name: ".
  virtual void add(std::string_view feature) = 0;
  virtual Element finish() = 0;
};

/// Threads: immutable.
class ExampleColumn {
 public:
  explicit ExampleColumn(std::string name) : name_(std::move(name)) {}
  virtual ~ExampleColumn() = default;
  const std::string& name() const { return name_; }
  virtual ElementSpec spec(bool batch) const = 0;
  /// For `count` examples; not a batch: one, whose element has no first dimension for it.
  virtual std::unique_ptr<ColumnBuilder> builder(int64_t count, bool batch) const = 0;

 private:
  const std::string name_;
};

std::unique_ptr<ExampleColumn> make_example_column(const std::string& name,
                                                   const FeatureSpec& spec);

}  // namespace cohort::internal::data
