// SPDX-License-Identifier: Apache-2.0
//
// Categories without a vocabulary, with the names, options and defaults of Keras 3, and the hash
// functions of TensorFlow: a text has the number that it has there.
//
//   keras::Hashing bin_of(1000);
//   const Tensor bins = bin_of(std::vector<std::string>{"red", "green"});
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "cohort/keras/layer.h"

namespace cohort::keras {

/// A key of two numbers for SipHash; one number stands for both.
struct HashSalt {
  std::array<int64_t, 2> key = {};

  HashSalt(int64_t both) : key{both, both} {}                      // NOLINT: implicit by design
  HashSalt(int64_t first, int64_t second) : key{first, second} {}  // NOLINT
  bool operator==(const HashSalt&) const = default;
  Config serialize() const;
  static HashSalt deserialize(const Config& config);
};

/// The type of results that may be whole numbers; unset: int64 for numbers of bins, else floatx().
struct ResultDType {
  std::optional<DType> dtype = {};

  ResultDType() = default;
  ResultDType(DType given) : dtype(given) {}  // NOLINT: implicit by design
  operator DTypePolicy() const;               // NOLINT
  bool operator==(const ResultDType&) const = default;
  Config serialize() const;
  static ResultDType deserialize(const Config& config);
};

/// A text, a number, or nothing: what stands for "no value".
struct MaskValue {
  std::variant<std::monostate, int64_t, std::string> value = {};

  MaskValue() = default;
  MaskValue(int64_t number) : value(number) {}               // NOLINT: implicit by design
  MaskValue(std::string text) : value(std::move(text)) {}    // NOLINT
  MaskValue(const char* text) : value(std::string(text)) {}  // NOLINT
  bool operator==(const MaskValue&) const = default;
  Config serialize() const;
  static MaskValue deserialize(const Config& config);
};

struct HashingOptions {
  MaskValue mask_value = {};  ///< Has bin 0, and the others the bins from 1 on.
  std::optional<HashSalt> salt =
      {};                           ///< Then it is SipHash-2-4, with this key, and not FarmHash64.
  std::string output_mode = "int";  ///< Or "one_hot", "multi_hot", "count".
  ResultDType dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct HashingConfig : HashingOptions {
  int64_t num_bins = 0;
  static void fields(auto& c, auto&& f) {
    f.required("num_bins", c.num_bins);
    f("salt", c.salt);
    f("mask_value", c.mask_value);
    f("output_mode", c.output_mode);
    f.constant("sparse", false);
  }
};

class HashingLayer : public LayerImpl<HashingConfig> {
 public:
  explicit HashingLayer(HashingConfig config);
  bool may_have_weights() const override { return false; }
  Shape compute_output_shape(const Shape& input_shape) const override;
  ElementSpec compute_output_spec(const ElementSpec& inputs) const override;
  Tensor call(const Tensor& x, const CallArgs&) override;
  Element call_nest(const Element& inputs, const CallArgs&) override;

 private:
  Tensor encoded(const Tensor& bins) const;
};

/// The bin of each text or whole number (as its digits): its hash modulo the bins, or that bin as
/// CategoryEncoding has it. Floating-point numbers are truncated.
/// Shapes: "int" as the input; else as CategoryEncoding. TF: keras.layers.Hashing.
class Hashing : public Layer {
 public:
  explicit Hashing(int64_t num_bins, HashingOptions options = {});
};

struct HashedCrossingOptions {
  std::string output_mode = "int";  ///< Or "one_hot".
  ResultDType dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct HashedCrossingConfig : HashedCrossingOptions {
  int64_t num_bins = 0;
  static void fields(auto& c, auto&& f) {
    f.required("num_bins", c.num_bins);
    f("output_mode", c.output_mode);
    f.constant("sparse", false);
  }
};

class HashedCrossingLayer : public LayerImpl<HashedCrossingConfig, NestLayer> {
 public:
  explicit HashedCrossingLayer(HashedCrossingConfig config);
  bool may_have_weights() const override { return false; }
  ElementSpec compute_output_spec(const ElementSpec& inputs) const override;
  Element call_nest(const Element& inputs, const CallArgs&) override;
  Config get_config() const override;
};

/// The bin of what two or more features are together, such as a town and an hour: texts or whole
/// numbers. Shapes: each [b] or [b, 1], as is the result; "one_hot": [b, num_bins].
/// Errors: InvalidArgument for features of other shapes, or fewer than two.
/// TF: keras.layers.HashedCrossing.
class HashedCrossing : public Layer {
 public:
  explicit HashedCrossing(int64_t num_bins, HashedCrossingOptions options = {});
};

}  // namespace cohort::keras
