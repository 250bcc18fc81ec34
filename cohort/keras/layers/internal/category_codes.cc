// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/internal/category_codes.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "cohort/base/check.h"

namespace cohort::keras::internal {
namespace {

// Where the categories of one sample are, and its row of the result.
struct CategorySamples {
  const int64_t* categories;
  const float* weights;  // null: 1
  int64_t outer, steps, inner, depth;
  bool counts;
};

void refuse_negative(int64_t category) {
  throw InvalidArgument(
      str_cat("[category_encoding] expected numbers of categories from 0 on, got ", category));
}

template <class T>
void tally(const CategorySamples& all, T* out) {
  for (int64_t o = 0; o < all.outer; ++o) {
    for (int64_t s = 0; s < all.steps; ++s) {
      const int64_t first = (o * all.steps + s) * all.inner;
      for (int64_t i = 0; i < all.inner; ++i) {
        const int64_t category = all.categories[first + i];
        if (category < 0) refuse_negative(category);
        if (category >= all.depth) continue;
        T& place = out[(o * all.inner + i) * all.depth + category];
        const float weight = all.weights == nullptr ? 1.0F : all.weights[first + i];
        place = all.counts ? static_cast<T>(static_cast<float>(place) + weight) : T(1);
      }
    }
  }
}

template <class T>
void mark_each(const CategorySamples& all, T* out) {
  const int64_t count = all.outer * all.steps * all.inner;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t category = all.categories[i];
    if (category >= 0 && category < all.depth) out[i * all.depth + category] = T(1);
  }
}

// Calls f(T*) with the values of `out`, or of a float32 copy that becomes it.
template <class F>
Tensor filled(const Shape& shape, DType dtype, const F& fill) {
  const bool direct = dtype == kInt64 || dtype == kFloat32;
  Tensor out = at::zeros(shape, at::TensorOptions(direct ? dtype : kFloat32));
  if (dtype == kInt64) {
    fill(out.data_ptr<int64_t>());
  } else {
    fill(out.data_ptr<float>());
  }
  return direct ? out : out.to(dtype);
}

bool is_one_hot(const std::string& mode) { return mode == "one_hot"; }

}  // namespace

std::string output_mode_of(const char* who, const std::string& given,
                           std::span<const char* const> allowed) {
  const std::string mode = given == "binary" ? "multi_hot" : given == "tf-idf" ? "tf_idf" : given;
  const bool known = std::ranges::any_of(allowed, [&](const char* one) { return mode == one; });
  const std::vector<std::string> names(allowed.begin(), allowed.end());
  COHORT_CHECK_ARG(known, "[", who, "] expected output_mode ", join(names, ", "), ", got \"", given,
                   "\"");
  return mode;
}

Shape encoded_shape(const Shape& input, const std::string& mode, int64_t depth) {
  if (mode == "int") return input;
  Shape shape = input;
  if (is_one_hot(mode)) {
    if (shape.size() > 1 && shape.back() == 1) shape.pop_back();
  } else if (shape.size() > 1) {
    shape.erase(shape.begin() + 1);
  } else {
    shape.clear();
  }
  shape.push_back(depth);
  return shape;
}

Tensor encode_categories(const Tensor& categories, const std::string& mode, int64_t depth,
                         DType dtype, const Tensor& weights) {
  if (mode == "int") return categories.to(dtype);
  const Tensor all = (categories.dim() == 0 ? categories.unsqueeze(-1) : categories)
                         .to(at::kCPU, kInt64)
                         .contiguous();
  const Shape shape = encoded_shape(shape_of(all), mode, depth);
  Tensor weighted;
  if (weights.defined()) weighted = weights.to(at::kCPU, kFloat32).expand_as(all).contiguous();
  const bool series = all.dim() > 1;
  const int64_t outer = series ? all.size(0) : 1;
  const int64_t steps = series ? all.size(1) : all.size(0);
  const int64_t each = outer * steps;
  const int64_t inner = each == 0 ? 0 : all.numel() / each;
  const CategorySamples samples{all.data_ptr<int64_t>(),
                                weighted.defined() ? weighted.data_ptr<float>() : nullptr,
                                outer,
                                steps,
                                inner,
                                depth,
                                mode == "count"};
  const Tensor encoded = filled(shape, dtype, [&](auto* out) {
    if (is_one_hot(mode)) {
      mark_each(samples, out);
    } else {
      tally(samples, out);
    }
  });
  return encoded.to(categories.device());
}

Tensor encode_ragged_categories(const Tensor& categories, const Tensor& row_splits,
                                const std::string& mode, int64_t depth, DType dtype) {
  const Tensor all = categories.to(at::kCPU, kInt64).contiguous();
  const Tensor splits = row_splits.to(at::kCPU, kInt64).contiguous();
  const auto* const begins = splits.data_ptr<int64_t>();
  const int64_t rows = splits.numel() - 1;
  return filled({rows, depth}, dtype, [&](auto* out) {
    for (int64_t row = 0; row < rows; ++row) {
      const CategorySamples sample{all.data_ptr<int64_t>() + begins[row],
                                   nullptr,
                                   1,
                                   begins[row + 1] - begins[row],
                                   1,
                                   depth,
                                   mode == "count"};
      tally(sample, out + row * depth);
    }
  });
}

Config config_without(const Config& config, const std::string& member) {
  Config out = Config::object();
  for (const auto& [name, value] : config.members()) {
    if (name != member) out.set(name, value);
  }
  return out;
}

}  // namespace cohort::keras::internal
