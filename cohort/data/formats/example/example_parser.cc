// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/formats/example/example_parser.h"

#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/base/handle.h"
#include "cohort/data/formats/example/example.h"
#include "cohort/data/formats/example/internal/example_columns.h"

namespace cohort::data {
namespace {

using internal::data::ExampleColumn;

ElementSpec named_specs(const std::vector<std::unique_ptr<ExampleColumn>>& columns, bool batch) {
  std::vector<std::pair<std::string, ElementSpec>> parts;
  for (const auto& column : columns) parts.emplace_back(column->name(), column->spec(batch));
  return ElementSpec::named(std::move(parts));
}

}  // namespace

class ExampleParser::Plan {
 public:
  explicit Plan(const FeatureSpecs& features) {
    COHORT_CHECK_ARG(!features.empty(), "[parse_example] expected at least 1 feature, got none");
    for (const auto& [name, spec] : features) {
      columns_.push_back(internal::data::make_example_column(name, spec));
    }
  }

  ElementSpec spec(bool batch) const { return named_specs(columns_, batch); }

  Element parse(std::span<const std::string_view> serialized, bool batch) const {
    const auto count = static_cast<int64_t>(serialized.size());
    std::vector<std::unique_ptr<internal::data::ColumnBuilder>> builders;
    for (const auto& column : columns_) builders.push_back(column->builder(count, batch));
    std::vector<std::string_view> found(columns_.size());
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < serialized.size(); ++i) {
      try {
        find(serialized[i], order, found);
        for (std::size_t c = 0; c < found.size(); ++c) builders[c]->add(found[c]);
      } catch (const InvalidArgument& e) {
        throw InvalidArgument(str_cat("[parse_example] example ", i, ", ", e.what()));
      } catch (const DataLoss& e) {
        throw DataLoss(str_cat("[parse_example] example ", i, ": ", e.what()));
      }
    }
    std::vector<std::pair<std::string, Element>> parts;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      parts.emplace_back(columns_[c]->name(), builders[c]->finish());
    }
    return Element::named(std::move(parts));
  }

 private:
  /// The bytes of every column's feature; without data where there is none. Whoever writes examples
  /// writes their features in one order: `order` has the columns of the last example's entries, and
  /// most names are where they were.
  void find(std::string_view serialized, std::vector<std::size_t>& order,
            std::vector<std::string_view>& found) const {
    std::fill(found.begin(), found.end(), std::string_view());
    std::size_t entry = 0;
    internal::data::for_each_message(serialized, 1, [&](std::string_view features) {
      internal::data::for_each_entry(
          features, 1, [&](std::string_view name, std::string_view value) {
            if (entry == order.size()) order.push_back(0);
            std::size_t& column = order[entry++];
            if (column == columns_.size() || columns_[column]->name() != name) column = place(name);
            if (column < columns_.size()) found[column] = value;
          });
    });
  }

  /// Of the column; past the end if nobody wants the feature.
  std::size_t place(std::string_view name) const {
    const auto at =
        std::lower_bound(columns_.begin(), columns_.end(), name,
                         [](const auto& column, std::string_view n) { return column->name() < n; });
    const bool there = at != columns_.end() && (*at)->name() == name;
    return static_cast<std::size_t>((there ? at : columns_.end()) - columns_.begin());
  }

  std::vector<std::unique_ptr<ExampleColumn>> columns_;  ///< By name.
};

ExampleParser::ExampleParser(FeatureSpecs features)
    : plan_(std::make_shared<const Plan>(features)) {}

Element ExampleParser::parse_single(std::string_view serialized) const {
  return internal::base::held(plan_, "ExampleParser")->parse({&serialized, 1}, false);
}
Element ExampleParser::parse(const std::vector<std::string>& serialized) const {
  return internal::base::held(plan_, "ExampleParser")
      ->parse(std::vector<std::string_view>(serialized.begin(), serialized.end()), true);
}
Element ExampleParser::parse_batch(const Element& serialized) const {
  return internal::base::held(plan_, "ExampleParser")->parse(serialized.string_views(), true);
}
ElementSpec ExampleParser::single_spec() const {
  return internal::base::held(plan_, "ExampleParser")->spec(false);
}
ElementSpec ExampleParser::batch_spec() const {
  return internal::base::held(plan_, "ExampleParser")->spec(true);
}

Element parse_example(const std::vector<std::string>& serialized, const FeatureSpecs& features) {
  return ExampleParser(features).parse(serialized);
}

Element parse_single_example(std::string_view serialized, const FeatureSpecs& features) {
  return ExampleParser(features).parse_single(serialized);
}

namespace {

/// The steps of one list as the rows of a batch: each step is a feature.
Element parse_steps(const std::string& name, const SequenceFeatureSpec& spec,
                    const std::vector<std::string_view>* steps) {
  const auto* fixed = std::get_if<FixedLenSequenceFeature>(&spec);
  COHORT_CHECK_ARG(steps != nullptr || fixed == nullptr || fixed->allow_missing,
                   "[parse_single_sequence_example] expected a list ", name, ", got none");
  const FeatureSpec of_step = fixed != nullptr
                                  ? FeatureSpec(FixedLenFeature{fixed->type, fixed->shape})
                                  : FeatureSpec(std::get<RaggedFeature>(spec));
  const auto column = internal::data::make_example_column(name, of_step);
  const std::size_t count = steps == nullptr ? 0 : steps->size();
  const auto builder = column->builder(static_cast<int64_t>(count), true);
  for (std::size_t i = 0; i < count; ++i) {
    try {
      builder->add((*steps)[i]);
    } catch (const InvalidArgument& e) {
      throw InvalidArgument(str_cat("[parse_single_sequence_example] step ", i, ", ", e.what()));
    }
  }
  return builder->finish();
}

std::map<std::string, std::vector<std::string_view>> find_lists(std::string_view serialized) {
  std::map<std::string, std::vector<std::string_view>> out;
  internal::data::for_each_message(serialized, 2, [&](std::string_view lists) {
    internal::data::for_each_entry(lists, 1, [&](std::string_view name, std::string_view list) {
      auto& steps = out[std::string(name)];
      steps.clear();
      internal::data::for_each_message(list, 1, [&](std::string_view f) { steps.push_back(f); });
    });
  });
  return out;
}

}  // namespace

Element parse_single_sequence_example(std::string_view serialized, const FeatureSpecs& context,
                                      const SequenceFeatureSpecs& sequences) {
  // A SequenceExample's context stands where an Example has its features.
  Element features =
      context.empty() ? Element::named({}) : ExampleParser(context).parse_single(serialized);
  std::vector<std::pair<std::string, Element>> parts;
  try {
    const auto lists = find_lists(serialized);
    for (const auto& [name, spec] : sequences) {
      const auto found = lists.find(name);
      parts.emplace_back(name,
                         parse_steps(name, spec, found == lists.end() ? nullptr : &found->second));
    }
  } catch (const DataLoss& e) {
    throw DataLoss(str_cat("[parse_single_sequence_example] ", e.what()));
  }
  return {std::move(features), Element::named(std::move(parts))};
}

std::function<Dataset(const Dataset&)> parse_example_dataset(FeatureSpecs features,
                                                             MapOptions options) {
  const ExampleParser parser(std::move(features));
  return [parser, options](const Dataset& input) {
    const ElementSpec& spec = input.element_spec();
    COHORT_CHECK_ARG(spec.is_leaf() && spec.leaf().is_string && spec.leaf().shape.size() <= 1,
                     "[parse_example_dataset] expected strings or batches of strings, got ",
                     spec.to_string());
    MapOptions of_map = options;
    if (spec.leaf().shape.empty()) {
      of_map.spec = parser.single_spec();
      return input.map([parser](const Element& e) { return parser.parse_single(e.string()); },
                       of_map);
    }
    of_map.spec = parser.batch_spec();
    return input.map([parser](const Element& e) { return parser.parse_batch(e); }, of_map);
  };
}

}  // namespace cohort::data
