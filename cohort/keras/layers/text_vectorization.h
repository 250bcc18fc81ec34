// SPDX-License-Identifier: Apache-2.0
//
// Texts as numbers of their words, with the names, options and defaults of Keras 3.
//
//   keras::TextVectorization vectorize({.max_tokens = 20000, .output_sequence_length = 200});
//   vectorize.adapt(texts);                            // a Dataset, or strings
//   const Tensor ids = vectorize(std::vector<std::string>{"To be, or not to be"});
//
// In an input pipeline, whose elements are (texts, labels):
//
//   train.map([vectorize](const Element& e) { return Element{vectorize(e[0]), e[1]}; });
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/keras/layer.h"
#include "cohort/keras/layers/adapting.h"
#include "cohort/keras/layers/lookup.h"

namespace cohort::keras {

/// How texts are changed before they are split: by name, by a function of the program, or, {},
/// not at all.
class Standardize {
 public:
  using Function = std::function<std::string(const std::string&)>;
  Standardize() = default;
  Standardize(const char* name) : Standardize(std::string(name)) {}  // NOLINT: implicit by design
  /// "lower_and_strip_punctuation", "lower" or "strip_punctuation".
  Standardize(std::string name);                                      // NOLINT
  Standardize(Function function) : function_(std::move(function)) {}  // NOLINT
  template <class F>
  requires std::is_invocable_r_v<std::string, F, const std::string&> Standardize(F function)
      : function_(std::move(function)) {}  // NOLINT
  bool lowers() const { return name_.starts_with("lower"); }
  bool strips() const { return name_.ends_with("strip_punctuation"); }
  const Function& function() const { return function_; }
  bool operator==(const Standardize& other) const {
    return !function_ && !other.function_ && name_ == other.name_;
  }
  /// Errors: Unimplemented for a function.
  Config serialize() const;
  static Standardize deserialize(const Config& config);

 private:
  std::string name_;
  Function function_;
};

/// How texts become tokens: by name, by a function of the program, or, {}, not at all.
class SplitText {
 public:
  using Function = std::function<std::vector<std::string>(const std::string&)>;
  SplitText() = default;
  SplitText(const char* name) : SplitText(std::string(name)) {}  // NOLINT: implicit by design
  SplitText(std::string name);  // NOLINT: "whitespace", "character"
  template <class F>
  requires std::is_invocable_r_v < std::vector<std::string>, F,
  const std::string& > SplitText(F function) : function_(std::move(function)) {}  // NOLINT
  bool is_none() const { return name_.empty() && !function_; }
  bool is_by_character() const { return name_ == "character"; }
  const Function& function() const { return function_; }
  bool operator==(const SplitText& other) const {
    return !function_ && !other.function_ && name_ == other.name_;
  }
  Config serialize() const;
  static SplitText deserialize(const Config& config);

 private:
  std::string name_;
  Function function_;
};

/// How many tokens make one together: 3 is {1, 2, 3}.
struct NGrams {
  std::vector<int64_t> widths = {};  ///< Empty: tokens as they are.
  bool is_list = false;              ///< How the config has it.

  NGrams() = default;
  NGrams(int64_t up_to);                                                        // NOLINT
  NGrams(std::initializer_list<int64_t> each) : widths(each), is_list(true) {}  // NOLINT
  bool operator==(const NGrams&) const = default;
  Config serialize() const;
  static NGrams deserialize(const Config& config);
};

struct TextVectorizationOptions {
  std::optional<int64_t> max_tokens = {};  ///< The size of the vocabulary, special tokens included.
  Standardize standardize = "lower_and_strip_punctuation";
  SplitText split = "whitespace";
  NGrams ngrams = {};
  std::string output_mode = "int";                     ///< Or "multi_hot", "count", "tf_idf".
  std::optional<int64_t> output_sequence_length = {};  ///< Unset: the longest text of the batch.
  bool pad_to_max_tokens = false;                      ///< Vectors of max_tokens numbers.
  std::vector<std::string> vocabulary = {};            ///< Instead of adapt().
  std::vector<double> idf_weights = {};  ///< One for each token of `vocabulary`, for "tf_idf".
  bool ragged = false;                   ///< "int" as rows of unlike lengths: Element::ragged.
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct TextVectorizationConfig : TextVectorizationOptions {
  std::optional<int64_t> vocabulary_size = {};  ///< What a file says, until its vocabulary is here.
  static void fields(auto& c, auto&& f) {
    f("max_tokens", c.max_tokens);
    f("standardize", c.standardize);
    f("split", c.split);
    f("ngrams", c.ngrams);
    f("output_mode", c.output_mode);
    f("output_sequence_length", c.output_sequence_length);
    f("pad_to_max_tokens", c.pad_to_max_tokens);
    f.constant("sparse", false);
    f("ragged", c.ragged);
    f.nullable("vocabulary", c.vocabulary, {});
    f.nullable("idf_weights", c.idf_weights, {});
    f.constant("encoding", "utf-8");
    f("vocabulary_size", c.vocabulary_size);
  }
};

class TextVectorizationLayer : public LayerImpl<TextVectorizationConfig, AdaptingLayer>,
                               public internal::StoredExtras {
 public:
  explicit TextVectorizationLayer(TextVectorizationConfig config);
  bool may_have_weights() const override { return false; }
  Tensor call(const Tensor& x, const CallArgs&) override;
  Element call_nest(const Element& inputs, const CallArgs& args) override;
  Shape compute_output_shape(const Shape& input_shape) const override;
  ElementSpec compute_output_spec(const ElementSpec& inputs) const override;
  Config get_config() const override;
  Config serialize() const override;
  /// The vocabulary.
  StringLookupLayer& lookup() const { return *lookup_; }

  std::map<std::string, std::string> assets() const override;
  void set_assets(const std::map<std::string, std::string>& assets) override;
  std::map<std::string, Tensor> named_values() const override;
  void set_named_values(const std::map<std::string, Tensor>& values) override;

 protected:
  bool has_build_config() const override { return true; }
  void begin_learning() override;
  void learn(const Element& batch) override;
  void finish_learning() override;
  Element as_batch(const Element& data) const override;
  TrackedParts tracked_parts() const override;

 private:
  /// Rows of tokens, ragged; without `split` strings of the inputs' shape.
  Element tokens_of(const Element& texts) const;
  std::string standardized(std::string_view text) const;
  void split(std::string_view text, std::vector<std::string>& tokens) const;
  Tensor padded(const Element& rows) const;

  std::shared_ptr<StringLookupLayer> lookup_;
};

/// Texts in lower case and without punctuation, split at white space, as the numbers of their words
/// in a vocabulary, padded with 0; or as one vector of what words a text has.
/// Lower case is that of ASCII, as in TensorFlow.
/// Shapes: [b] or [b, 1] to [b, output_sequence_length], int64; "multi_hot" and "count", int64, and
/// "tf_idf", float32: [b, vocabulary_size()]. Errors: as StringLookup.
/// TF: keras.layers.TextVectorization.
class TextVectorization : public AdaptingHandle {
 public:
  explicit TextVectorization(TextVectorizationOptions options = {});
  std::vector<std::string> get_vocabulary(bool include_special_tokens = true) const;
  int64_t vocabulary_size() const;
  void set_vocabulary(const std::vector<std::string>& tokens,
                      const std::vector<double>& idf_weights = {}) const;

 private:
  StringLookupLayer& lookup() const;
};

}  // namespace cohort::keras
