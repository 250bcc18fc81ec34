// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/formats/example/internal/example_columns.h"

#include "cohort/base/check.h"

namespace cohort::internal::data {
namespace {

template <class T>
constexpr bool kIsString = std::is_same_v<T, std::string>;

template <class T>
TensorSpec leaf_spec(Shape shape) {
  if constexpr (kIsString<T>) {
    return TensorSpec::strings(std::move(shape));
  } else {
    return {std::move(shape), runtime::dtype_of<T>};
  }
}

const char* kind_name(FeatureKind kind) {
  switch (kind) {
    case FeatureKind::kBytes:
      return "strings";
    case FeatureKind::kFloat:
      return "float32 values";
    case FeatureKind::kInt64:
      return "int64 values";
    default:
      return "no values";
  }
}

/// False if the feature is absent. Errors: InvalidArgument if it is of another type.
template <class T>
bool find_list(const std::string& name, std::string_view feature, std::string_view& list) {
  if (feature.data() == nullptr) return false;
  const FeatureKind kind = feature_list(feature, list);
  if (kind == FeatureKind::kNone) return false;
  COHORT_CHECK_ARG(kind == feature_kind_of<T>, "feature ", name, ": expected ",
                   kind_name(feature_kind_of<T>), ", got ", kind_name(kind));
  return true;
}

/// Where values are collected: strings in one block.
template <class T>
using Values = std::conditional_t<kIsString<T>, PackedStrings, std::vector<T>>;
template <class T>
using ValuesSink = std::conditional_t<kIsString<T>, PackedSink, VectorSink<T>>;

Element element_of(PackedStrings values, Shape shape) {
  if (shape.empty()) return std::string(values[0]);
  return Element::packed(std::move(values), std::move(shape));
}
template <class T>
Element element_of(const std::vector<T>& values, const Shape& shape) {
  return from_vector(values, shape);
}

// --- Features of a fixed length ------------------------------------------------------------------

/// The values of `T`s that a tensor has, in a tensor.
template <class T>
class FixedStore {
 public:
  explicit FixedStore(const Shape& shape)
      : tensor_(empty(shape, runtime::dtype_of<T>)), at_(tensor_.template mutable_data_ptr<T>()) {}

  void add(std::span<const T> values) { at_ = std::copy(values.begin(), values.end(), at_); }
  /// The number of values in the list; all of them are added if that is `width`.
  int64_t decode(std::string_view list, int64_t width) {
    FixedSink<T> sink{at_, width};
    decode_list<T>(list, sink);
    at_ += width;
    return sink.count;
  }
  Element finish(const Shape&) { return tensor_; }

 private:
  Tensor tensor_;
  T* at_;
};

template <>
class FixedStore<std::string> {
 public:
  explicit FixedStore(const Shape&) {}

  void add(std::span<const std::string> values) {
    for (const std::string& value : values) strings_.add(value);
  }
  int64_t decode(std::string_view list, int64_t) {
    const std::size_t before = strings_.size();
    PackedSink sink{strings_};
    decode_list<std::string>(list, sink);
    return static_cast<int64_t>(strings_.size() - before);
  }
  Element finish(const Shape& shape) { return element_of(std::move(strings_), shape); }

 private:
  PackedStrings strings_;
};

template <class T>
class FixedBuilder final : public ColumnBuilder {
 public:
  /// `defaults` are the values of one example; empty: there have to be some.
  FixedBuilder(const std::string& name, Shape shape, int64_t width, const std::vector<T>& defaults)
      : name_(name), shape_(std::move(shape)), width_(width), defaults_(defaults), store_(shape_) {}

  void add(std::string_view feature) override {
    std::string_view list;
    if (!find_list<T>(name_, feature, list)) {
      COHORT_CHECK_ARG(!defaults_.empty() || width_ == 0, "feature ", name_,
                       ": expected values, because it has no default, got none");
      return store_.add(defaults_);
    }
    const int64_t count = store_.decode(list, width_);
    COHORT_CHECK_ARG(count == width_, "feature ", name_, ": expected ", width_, " values, got ",
                     count);
  }
  Element finish() override { return store_.finish(shape_); }

 private:
  const std::string& name_;
  const Shape shape_;
  const int64_t width_;
  const std::vector<T>& defaults_;
  FixedStore<T> store_;
};

template <class T>
class FixedColumn final : public ExampleColumn {
 public:
  FixedColumn(const std::string& name, const FixedLenFeature& spec)
      : ExampleColumn(name), shape_(spec.shape) {
    for (int64_t d : shape_) {
      COHORT_CHECK_ARG(d >= 0, "[parse_example] feature ", name,
                       ": expected known dimensions, got ", bracketed(shape_));
      width_ = width_ * d;
    }
    if (spec.default_value) set_defaults(*spec.default_value);
  }

  ElementSpec spec(bool batch) const override {
    Shape shape = shape_;
    if (batch) shape.insert(shape.begin(), kUnknownDim);
    return leaf_spec<T>(std::move(shape));
  }
  std::unique_ptr<ColumnBuilder> builder(int64_t count, bool batch) const override {
    Shape shape = shape_;
    if (batch) shape.insert(shape.begin(), count);
    return std::make_unique<FixedBuilder<T>>(name(), std::move(shape), width_, defaults_);
  }

 private:
  void set_defaults(const Element& value) {
    const bool fits_type = kIsString<T> ? value.is_string() : value.is_tensor();
    COHORT_CHECK_ARG(fits_type, "[parse_example] feature ", name(), ": expected a default of ",
                     kind_name(feature_kind_of<T>), ", got ", value.spec().to_string());
    if constexpr (kIsString<T>) {
      defaults_ = value.rows() < 0 ? std::vector<std::string>{value.string()} : value.strings();
    } else {
      defaults_ = to_vector<T>(value.tensor());
    }
    if (defaults_.size() == 1) defaults_.resize(static_cast<std::size_t>(width_), defaults_[0]);
    COHORT_CHECK_ARG(static_cast<int64_t>(defaults_.size()) == width_, "[parse_example] feature ",
                     name(), ": expected a default of 1 or ", width_, " values, got ",
                     value.spec().to_string());
  }

  const Shape shape_;
  int64_t width_ = 1;
  std::vector<T> defaults_;
};

// --- Features of any length ----------------------------------------------------------------------

enum class Layout { kSparse, kRagged };

template <class T>
class VaryingBuilder final : public ColumnBuilder {
 public:
  VaryingBuilder(const std::string& name, Layout layout, bool batch)
      : name_(name), layout_(layout), batch_(batch) {}

  void add(std::string_view feature) override {
    std::string_view list;
    if (find_list<T>(name_, feature, list)) {
      ValuesSink<T> sink{values_};
      decode_list<T>(list, sink);
    }
    splits_.push_back(static_cast<int64_t>(values_.size()));
  }

  Element finish() override {
    const auto count = static_cast<int64_t>(values_.size());
    Element values = element_of(std::move(values_), {count});
    if (layout_ == Layout::kSparse) return sparse(std::move(values), count);
    if (!batch_) return values;
    return Element::ragged_parts(std::move(values),
                                 from_vector(splits_, {static_cast<int64_t>(splits_.size())}));
  }

 private:
  Element sparse(Element values, int64_t count) const {
    const int64_t rank = batch_ ? 2 : 1;
    std::vector<int64_t> indices, shape;
    int64_t longest = 0;
    for (std::size_t row = 0; row + 1 < splits_.size(); ++row) {
      const int64_t length = splits_[row + 1] - splits_[row];
      longest = std::max(longest, length);
      for (int64_t i = 0; i < length; ++i) {
        if (batch_) indices.push_back(static_cast<int64_t>(row));
        indices.push_back(i);
      }
    }
    if (batch_) shape.push_back(static_cast<int64_t>(splits_.size()) - 1);
    shape.push_back(longest);
    return Element::named({{"indices", from_vector(indices, {count, rank})},
                           {"values", std::move(values)},
                           {"dense_shape", from_vector(shape, {rank})}});
  }

  const std::string& name_;
  const Layout layout_;
  const bool batch_;
  Values<T> values_;
  std::vector<int64_t> splits_ = {0};
};

template <class T>
class VaryingColumn final : public ExampleColumn {
 public:
  VaryingColumn(const std::string& name, Layout layout) : ExampleColumn(name), layout_(layout) {}

  ElementSpec spec(bool batch) const override {
    const ElementSpec values = leaf_spec<T>({kUnknownDim});
    if (layout_ == Layout::kSparse) {
      const int64_t rank = batch ? 2 : 1;
      return ElementSpec::named({{"indices", TensorSpec{{kUnknownDim, rank}, kInt64}},
                                 {"values", values},
                                 {"dense_shape", TensorSpec{{rank}, kInt64}}});
    }
    return batch ? ElementSpec::ragged(values) : values;
  }
  std::unique_ptr<ColumnBuilder> builder(int64_t, bool batch) const override {
    return std::make_unique<VaryingBuilder<T>>(name(), layout_, batch);
  }

 private:
  const Layout layout_;
};

template <class T>
std::unique_ptr<ExampleColumn> make_column(const std::string& name, const FeatureSpec& spec) {
  if (const auto* fixed = std::get_if<FixedLenFeature>(&spec)) {
    return std::make_unique<FixedColumn<T>>(name, *fixed);
  }
  const bool sparse = std::holds_alternative<VarLenFeature>(spec);
  return std::make_unique<VaryingColumn<T>>(name, sparse ? Layout::kSparse : Layout::kRagged);
}

}  // namespace

std::unique_ptr<ExampleColumn> make_example_column(const std::string& name,
                                                   const FeatureSpec& spec) {
  switch (std::visit([](const auto& feature) { return feature.type; }, spec)) {
    case FeatureType::kString:
      return make_column<std::string>(name, spec);
    case FeatureType::kFloat32:
      return make_column<float>(name, spec);
    default:
      return make_column<int64_t>(name, spec);
  }
}

}  // namespace cohort::internal::data
