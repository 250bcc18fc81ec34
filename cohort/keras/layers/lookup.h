// SPDX-License-Identifier: Apache-2.0
//
// Texts and integers as indices into a vocabulary, with the names, options and defaults of
// Keras 3.
//
//   keras::StringLookup number_of;
//   number_of.adapt(std::vector<std::string>{"red", "green", "red"});
//   number_of.get_vocabulary();                                        // [UNK], red, green
//   const Tensor ids = number_of(std::vector<std::string>{"green", "blue"});      // 2, 0
//
// A vocabulary is state: checkpoints and .keras files keep it (there as Keras does, as an asset, or
// in the config where Keras would read other tokens in the asset's lines), files of weights alone
// do not.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "cohort/keras/layer.h"
#include "cohort/keras/layers/adapting.h"
#include "cohort/keras/layers/hashing.h"
#include "cohort/keras/layers/internal/stored_extras.h"

namespace cohort::keras {

namespace internal {
template <class Token>
struct Vocabulary;
template <class Token>
struct TokenCounts;
/// What stands for all that is not in a vocabulary.
template <class Token>
std::optional<Token> default_oov_token() {
  if constexpr (std::is_same_v<Token, std::string>) {
    return "[UNK]";
  } else {
    return -1;
  }
}
}  // namespace internal

/// Of StringLookup and IntegerLookup. Token: std::string or int64_t.
template <class Token>
struct LookupOptions {
  std::optional<int64_t> max_tokens = {};  ///< The size of a vocabulary, special tokens included.
  int64_t num_oov_indices = 1;             ///< Numbers for what is not in it; 0: that is an error.
  std::optional<Token> mask_token = {};    ///< Has the number 0 where the output is "int".
  std::optional<Token> oov_token = internal::default_oov_token<Token>();
  std::vector<Token> vocabulary = {};    ///< Instead of adapt().
  std::vector<double> idf_weights = {};  ///< One for each token of `vocabulary`, for "tf_idf".
  bool invert = false;                   ///< Numbers in, tokens out.
  std::string output_mode = "int";       ///< Or "one_hot", "multi_hot", "count", "tf_idf".
  bool pad_to_max_tokens = false;        ///< Vectors of max_tokens numbers.
  std::string oov_method = "floormod";   ///< Of integers, or "farmhash": which oov number.
  std::optional<HashSalt> salt = {};     ///< For hashed oov numbers.
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

template <class Token>
struct LookupConfig : LookupOptions<Token> {
  std::optional<int64_t> vocabulary_size = {};  ///< What a file says, until its vocabulary is here.
  static void fields(auto& c, auto&& f) {
    f("invert", c.invert);
    f("max_tokens", c.max_tokens);
    f("num_oov_indices", c.num_oov_indices);
    f("oov_token", c.oov_token);
    f("mask_token", c.mask_token);
    f("output_mode", c.output_mode);
    f.constant("sparse", false);
    f("pad_to_max_tokens", c.pad_to_max_tokens);
    f.nullable("idf_weights", c.idf_weights, {});
    f.nullable("vocabulary", c.vocabulary, {});
    f("vocabulary_size", c.vocabulary_size);
    f.extra("oov_method", c.oov_method, "floormod");
    f.extra("salt", c.salt, {});
    if constexpr (std::is_same_v<Token, std::string>) {
      f.constant("encoding", "utf-8");
    } else {
      f.constant("vocabulary_dtype", "int64");
    }
  }
};

template <class Token>
class LookupLayer : public LayerImpl<LookupConfig<Token>, AdaptingLayer>,
                    public internal::StoredExtras {
 public:
  using Base = LayerImpl<LookupConfig<Token>, AdaptingLayer>;
  explicit LookupLayer(LookupConfig<Token> config);
  bool may_have_weights() const override { return false; }
  Tensor call(const Tensor& x, const CallArgs& args) override;
  Element call_nest(const Element& inputs, const CallArgs&) override;
  Shape compute_output_shape(const Shape& input_shape) const override;
  ElementSpec compute_output_spec(const ElementSpec& inputs) const override;
  Config get_config() const override;
  Config get_build_config() const override { return Config::object(); }
  Config serialize() const override;

  /// The tokens by number; those for what is not there are oov_token.
  std::vector<Token> get_vocabulary(bool include_special_tokens = true) const;
  int64_t vocabulary_size() const;
  /// Tokens by number, with the special ones in front or without them; of a layer that was given a
  /// vocabulary in its place, for files and checkpoints, too.
  /// Errors: InvalidArgument for a token that comes twice, or more than max_tokens.
  void set_vocabulary(const std::vector<Token>& tokens,
                      const std::vector<double>& idf_weights = {});

  std::map<std::string, std::string> assets() const override;
  void set_assets(const std::map<std::string, std::string>& assets) override;
  std::map<std::string, Tensor> named_values() const override;
  void set_named_values(const std::map<std::string, Tensor>& values) override;

  /// Internal: whether there is one, and for layers that have this one inside.
  bool has_vocabulary() const;
  void describe_vocabulary(Config& config) const;  ///< Where files have it in the config.
  void begin_learning() override;
  void learn(const Element& batch) override;
  void finish_learning() override;
  TrackedParts tracked_parts() const override;

 protected:
  Element as_batch(const Element& data) const override;

 private:
  using Views = std::vector<
      typename std::conditional_t<std::is_same_v<Token, std::string>, std::string_view, int64_t>>;
  void check_options() const;
  int64_t oov_start() const;
  int64_t token_start() const;
  int64_t depth() const;
  bool has_given_vocabulary() const { return !this->config().vocabulary.empty(); }
  bool is_in_config() const;
  Tensor numbers_of(const Views& tokens, const Shape& shape) const;
  Element tokens_of(const Tensor& numbers) const;
  Tensor encoded(const Tensor& numbers, const Tensor& row_splits) const;
  void put_vocabulary(std::vector<Token> tokens, std::vector<float> idf_weights);

  std::string mode_;
  std::shared_ptr<internal::Vocabulary<Token>> vocabulary_;
  std::shared_ptr<const internal::Vocabulary<Token>> given_;  // null: none was given
  std::shared_ptr<internal::TokenCounts<Token>> counts_;      // while learning
};

extern template class LookupLayer<std::string>;
extern template class LookupLayer<int64_t>;

class StringLookupLayer : public LookupLayer<std::string> {
 public:
  using LookupLayer::LookupLayer;
};
class IntegerLookupLayer : public LookupLayer<int64_t> {
 public:
  using LookupLayer::LookupLayer;
};

/// What the handles of both share; of them, and of TextVectorization, see the layers.
template <class L, class Token>
class LookupHandle : public AdaptingHandle {
 public:
  explicit LookupHandle(LookupOptions<Token> options)
      : AdaptingHandle(std::make_shared<L>(LookupConfig<Token>{std::move(options), {}})) {}
  std::vector<Token> get_vocabulary(bool include_special_tokens = true) const {
    return layer().get_vocabulary(include_special_tokens);
  }
  int64_t vocabulary_size() const { return layer().vocabulary_size(); }
  void set_vocabulary(const std::vector<Token>& tokens,
                      const std::vector<double>& idf_weights = {}) const {
    layer().set_vocabulary(tokens, idf_weights);
  }

 private:
  L& layer() const { return static_cast<L&>(this->use()); }
};

using StringLookupOptions = LookupOptions<std::string>;
using IntegerLookupOptions = LookupOptions<int64_t>;

/// The number of each text in a vocabulary, by falling frequency where adapt() makes it; with
/// `invert` the text of each number, for which call it on an Element: lookup(Element(numbers)).
/// Shapes: "int" as the input, int64; else as CategoryEncoding, [b, vocabulary_size()].
/// Errors: FailedPrecondition for a call without a vocabulary, and for adapt() of a layer that was
///         given one; InvalidArgument for options that exclude each other, and for texts outside of
///         the vocabulary where num_oov_indices = 0. Cost: a probe of a hash table for each text.
/// TF: keras.layers.StringLookup.
class StringLookup : public LookupHandle<StringLookupLayer, std::string> {
 public:
  explicit StringLookup(StringLookupOptions options = {});
};

/// As StringLookup, of whole numbers. TF: keras.layers.IntegerLookup.
class IntegerLookup : public LookupHandle<IntegerLookupLayer, int64_t> {
 public:
  explicit IntegerLookup(IntegerLookupOptions options = {});
};

}  // namespace cohort::keras
