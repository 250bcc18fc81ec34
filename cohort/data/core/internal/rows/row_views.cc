// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/core/internal/rows/row_views.h"

#include "cohort/data/core/internal/rows/batching.h"

namespace cohort::internal::data {
namespace {

class SubsetRows final : public RowSource {
 public:
  SubsetRows(RowSourcePtr source, std::vector<int64_t> rows)
      : source_(std::move(source)), rows_(std::move(rows)) {}

  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  const ElementSpec& spec() const override { return source_->spec(); }
  Element row(int64_t index) const override {
    return source_->row(rows_[static_cast<std::size_t>(index)]);
  }
  Element gather(std::span<const int64_t> rows) const override {
    std::vector<int64_t> numbers;
    numbers.reserve(rows.size());
    for (int64_t row : rows) numbers.push_back(rows_[static_cast<std::size_t>(row)]);
    return source_->gather(numbers);
  }

 private:
  const RowSourcePtr source_;
  const std::vector<int64_t> rows_;
};

class ElementRows final : public RowSource {
 public:
  ElementRows(std::vector<Element> elements, ElementSpec spec)
      : elements_(std::move(elements)), spec_(std::move(spec)) {}

  int64_t size() const override { return static_cast<int64_t>(elements_.size()); }
  const ElementSpec& spec() const override { return spec_; }
  Element row(int64_t index) const override { return elements_[static_cast<std::size_t>(index)]; }
  Element gather(std::span<const int64_t> rows) const override {
    std::vector<Element> parts;
    parts.reserve(rows.size());
    for (int64_t index : rows) parts.push_back(row(index));
    return stack_elements(parts, "[dataset.batch]");
  }

 private:
  const std::vector<Element> elements_;
  const ElementSpec spec_;
};

class ComponentRows final : public RowSource {
 public:
  ComponentRows(RowSourcePtr source, std::size_t component)
      : source_(std::move(source)), component_(component), spec_(source_->spec()[component]) {}

  int64_t size() const override { return source_->size(); }
  const ElementSpec& spec() const override { return spec_; }
  Element row(int64_t index) const override { return source_->row(index)[component_]; }
  Element gather(std::span<const int64_t> rows) const override {
    return source_->gather(rows)[component_];
  }

  const RowSourcePtr& source() const { return source_; }
  std::size_t component() const { return component_; }

 private:
  const RowSourcePtr source_;
  const std::size_t component_;
  const ElementSpec spec_;
};

Element named_tuple(std::vector<Element> parts, const std::vector<std::string>& names) {
  if (names.empty()) return Element::tuple(std::move(parts));
  std::vector<std::pair<std::string, Element>> named;
  for (std::size_t i = 0; i < parts.size(); ++i) named.emplace_back(names[i], std::move(parts[i]));
  return Element::named(std::move(named));
}

ElementSpec tuple_spec(const std::vector<RowSourcePtr>& parts,
                       const std::vector<std::string>& names) {
  std::vector<ElementSpec> specs;
  std::vector<std::pair<std::string, ElementSpec>> named;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    specs.push_back(parts[i]->spec());
    if (!names.empty()) named.emplace_back(names[i], parts[i]->spec());
  }
  return names.empty() ? ElementSpec::tuple(std::move(specs))
                       : ElementSpec::named(std::move(named));
}

class TupleRows final : public RowSource {
 public:
  TupleRows(std::vector<RowSourcePtr> parts, std::vector<std::string> names)
      : parts_(std::move(parts)), names_(std::move(names)), spec_(tuple_spec(parts_, names_)) {}

  int64_t size() const override { return parts_.front()->size(); }
  const ElementSpec& spec() const override { return spec_; }
  Element row(int64_t index) const override {
    std::vector<Element> out;
    out.reserve(parts_.size());
    for (const RowSourcePtr& part : parts_) out.push_back(part->row(index));
    return named_tuple(std::move(out), names_);
  }
  Element gather(std::span<const int64_t> rows) const override {
    std::vector<Element> out;
    out.reserve(parts_.size());
    for (const RowSourcePtr& part : parts_) out.push_back(part->gather(rows));
    return named_tuple(std::move(out), names_);
  }

 private:
  const std::vector<RowSourcePtr> parts_;
  const std::vector<std::string> names_;
  const ElementSpec spec_;
};

/// What all parts are the components of, in their order; null if they are not.
RowSourcePtr common_source(const std::vector<RowSourcePtr>& parts,
                           const std::vector<std::string>& names) {
  RowSourcePtr source;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto* part = dynamic_cast<const ComponentRows*>(parts[i].get());
    if (part == nullptr || part->component() != i) return nullptr;
    if (i == 0) source = part->source();
    if (part->source() != source) return nullptr;
  }
  const bool whole = source->spec().size() == parts.size() && source->spec().names() == names &&
                     !source->spec().is_ragged();
  return whole ? source : nullptr;
}

}  // namespace

RowSourcePtr make_subset_rows(RowSourcePtr source, std::vector<int64_t> rows) {
  return std::make_shared<SubsetRows>(std::move(source), std::move(rows));
}

RowSourcePtr make_element_rows(std::vector<Element> elements, ElementSpec spec) {
  return std::make_shared<ElementRows>(std::move(elements), std::move(spec));
}

RowSourcePtr make_component_rows(RowSourcePtr source, std::size_t component) {
  return std::make_shared<ComponentRows>(std::move(source), component);
}

RowSourcePtr make_tuple_rows(std::vector<RowSourcePtr> parts, std::vector<std::string> names) {
  if (RowSourcePtr source = common_source(parts, names)) return source;
  return std::make_shared<TupleRows>(std::move(parts), std::move(names));
}

}  // namespace cohort::internal::data
