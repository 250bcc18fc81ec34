// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/internal/example_columns.h"

#include "cohort/base/check.h"

namespace cohort::internal {
namespace {

template <class T>
constexpr bool kIsString = std::is_same_v<T, std::string>;

template <class T>
TensorSpec leaf_spec(Shape shape) {
  if constexpr (kIsString<T>) {
    return TensorSpec::strings(std::move(shape));
  } else {
    return {std::move(shape), dtype_of<T>};
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

template <class T>
Element element_of(std::vector<T> values, Shape shape) {
  if constexpr (kIsString<T>) {
    return shape.empty() ? Element(std::move(values.front())) : Element(std::move(values));
  } else {
    return from_vector(values, shape);
  }
}

// --- Features of a fixed length ------------------------------------------------------------------

template <class T>
class FixedBuilder final : public ColumnBuilder {
 public:
  /// `defaults` are the values of one example; empty: there have to be some.
  FixedBuilder(const std::string& name, Shape shape, int64_t width, const std::vector<T>& defaults)
      : name_(name), shape_(std::move(shape)), width_(width), defaults_(defaults) {
    int64_t total = 1;
    for (int64_t d : shape_) total *= d;
    if constexpr (kIsString<T>) {
      strings_.resize(static_cast<std::size_t>(total));
      at_ = strings_.data();
    } else {
      tensor_ = empty(shape_, dtype_of<T>);
      at_ = tensor_.template mutable_data_ptr<T>();
    }
  }

  void add(std::string_view feature) override {
    std::string_view list;
    if (!find_list<T>(name_, feature, list)) {
      COHORT_CHECK_ARG(!defaults_.empty() || width_ == 0, "feature ", name_,
                       ": expected values, because it has no default, got none");
      at_ = std::copy(defaults_.begin(), defaults_.end(), at_);
      return;
    }
    FixedSink<T> sink{at_, width_};
    decode_list<T>(list, sink);
    COHORT_CHECK_ARG(sink.count == width_, "feature ", name_, ": expected ", width_,
                     " values, got ", sink.count);
    at_ += width_;
  }
  Element finish() override {
    if constexpr (kIsString<T>) {
      return element_of(std::move(strings_), shape_);
    } else {
      return tensor_;
    }
  }

 private:
  const std::string& name_;
  const Shape shape_;
  const int64_t width_;
  const std::vector<T>& defaults_;
  Tensor tensor_;
  std::vector<std::string> strings_;
  T* at_ = nullptr;
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
    if (kIsString<T> && shape_.size() > 1) {
      throw Unimplemented(str_cat("[parse_example] feature ", name,
                                  ": expected strings of shape [] or [n], got ", bracketed(shape_),
                                  "; strings of more dimensions are not there yet"));
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
    if (kIsString<T> && shape.size() > 1) {
      throw Unimplemented(str_cat("[parse_example] feature ", name(),
                                  ": expected strings of shape [] in a batch, got ",
                                  bracketed(shape_), "; parse single examples instead"));
    }
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
      VectorSink<T> sink{values_};
      decode_list<T>(list, sink);
    }
    splits_.push_back(static_cast<int64_t>(values_.size()));
  }

  Element finish() override {
    const auto count = static_cast<int64_t>(values_.size());
    Element values = element_of(std::move(values_), {count});
    if (layout_ == Layout::kSparse) return sparse(std::move(values), count);
    if (!batch_) return values;
    return Element::named(
        {{"values", std::move(values)},
         {"row_splits", from_vector(splits_, {static_cast<int64_t>(splits_.size())})}});
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
  std::vector<T> values_;
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
    if (!batch) return values;
    return ElementSpec::named(
        {{"values", values}, {"row_splits", TensorSpec{{kUnknownDim}, kInt64}}});
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

}  // namespace cohort::internal
