// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/text_vectorization.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/checkpoint/trackable.h"

namespace cohort::keras {
namespace {

constexpr const char* kInnerPlace = "_lookup_layer/";  // Keras's files have the vocabulary twice

// As TensorFlow's: ASCII alone.
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
char lower_case(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool is_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

// How many bytes of UTF-8 the text begins with make one character; 0: none.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t count = first >= 0xf0 && first < 0xf5   ? 4
                            : first >= 0xe0 && first < 0xf0 ? 3
                            : first >= 0xc2 && first < 0xe0 ? 2
                                                            : 0;
  if (count == 0 || text.size() < count) return 0;
  unsigned lowest = 0x80, highest = 0xbf;  // of the second
  if (first == 0xe0) lowest = 0xa0;
  if (first == 0xed) highest = 0x9f;
  if (first == 0xf0) lowest = 0x90;
  if (first == 0xf4) highest = 0x8f;
  if (byte(1) < lowest || byte(1) > highest) return 0;
  for (std::size_t i = 2; i < count; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  }
  return count;
}

void split_characters(std::string_view text, std::vector<std::string>& tokens) {
  while (!text.empty()) {
    const std::size_t count = character_bytes(text);
    tokens.emplace_back(count == 0 ? "\xef\xbf\xbd" : text.substr(0, count));
    text.remove_prefix(std::max<std::size_t>(count, 1));
  }
}

void split_words(std::string_view text, std::vector<std::string>& tokens) {
  std::size_t i = 0;
  while (i < text.size()) {
    while (i < text.size() && is_space(text[i])) ++i;
    const std::size_t begin = i;
    while (i < text.size() && !is_space(text[i])) ++i;
    if (i > begin) tokens.emplace_back(text.substr(begin, i - begin));
  }
}

// Of the tokens from `first` on: those of each width, one width after the other.
void join_ngrams(const std::vector<int64_t>& widths, std::size_t first,
                 std::vector<std::string>& tokens) {
  const std::vector<std::string> words(tokens.begin() + static_cast<std::ptrdiff_t>(first),
                                       tokens.end());
  tokens.resize(first);
  for (const int64_t width : widths) {
    const auto count = static_cast<std::size_t>(width);
    for (std::size_t i = 0; i + count <= words.size(); ++i) {
      std::string joined = words[i];
      for (std::size_t j = 1; j < count; ++j) joined += " " + words[i + j];
      tokens.push_back(std::move(joined));
    }
  }
}

LookupConfig<std::string> lookup_config(const TextVectorizationConfig& c) {
  LookupConfig<std::string> lookup;
  lookup.max_tokens = c.max_tokens;
  lookup.mask_token = "";
  lookup.vocabulary = c.vocabulary;
  lookup.idf_weights = c.idf_weights;
  lookup.output_mode = c.output_mode;
  lookup.pad_to_max_tokens = c.pad_to_max_tokens;
  lookup.vocabulary_size = c.vocabulary_size;
  return lookup;
}

Config name_or_null(const std::string& name) { return name.empty() ? Config() : Config(name); }

[[noreturn]] void refuse_text_function(const char* option) {
  throw Unimplemented(str_cat("[text_vectorization] expected ", option,
                              " by name, or none, for a config; functions cannot be in files"));
}

}  // namespace

Standardize::Standardize(std::string name) : name_(std::move(name)) {
  const bool known =
      name_ == "lower_and_strip_punctuation" || name_ == "lower" || name_ == "strip_punctuation";
  COHORT_CHECK_ARG(known,
                   "[text_vectorization] expected standardize lower_and_strip_punctuation, lower, "
                   "strip_punctuation, a function or {}, got \"",
                   name_, "\"");
}

Config Standardize::serialize() const {
  if (function_) refuse_text_function("standardize");
  return name_or_null(name_);
}

Standardize Standardize::deserialize(const Config& config) {
  if (config.is_null()) return {};
  if (config.is_text()) return config.text();
  refuse_text_function("standardize");
}

SplitText::SplitText(std::string name) : name_(std::move(name)) {
  COHORT_CHECK_ARG(name_ == "whitespace" || name_ == "character",
                   "[text_vectorization] expected split whitespace, character, a function or {}, "
                   "got \"",
                   name_, "\"");
}

Config SplitText::serialize() const {
  if (function_) refuse_text_function("split");
  return name_or_null(name_);
}

SplitText SplitText::deserialize(const Config& config) {
  if (config.is_null()) return {};
  if (config.is_text()) return config.text();
  refuse_text_function("split");
}

NGrams::NGrams(int64_t up_to) {
  for (int64_t width = 1; width <= up_to; ++width) widths.push_back(width);
}

Config NGrams::serialize() const {
  if (widths.empty()) return {};
  if (!is_list) return widths.back();
  return Config::List(widths.begin(), widths.end());
}

NGrams NGrams::deserialize(const Config& config) {
  if (config.is_null()) return {};
  if (config.is_number()) return config.integer();
  NGrams ngrams;
  ngrams.widths = ConfigValue<std::vector<int64_t>>::read(config);
  ngrams.is_list = true;
  return ngrams;
}

TextVectorizationLayer::TextVectorizationLayer(TextVectorizationConfig config)
    : LayerImpl(std::move(config)),
      lookup_(std::make_shared<StringLookupLayer>(lookup_config(this->config()))) {
  const auto& c = this->config();
  set_autocast(false);
  const bool is_int = c.output_mode == "int";
  COHORT_CHECK_ARG(is_int || !c.output_sequence_length,
                   "[text_vectorization] expected output_sequence_length for output_mode int "
                   "alone, got ",
                   c.output_mode);
  COHORT_CHECK_ARG(is_int || !c.ragged,
                   "[text_vectorization] expected ragged for output_mode int alone, got ",
                   c.output_mode);
  const bool positive = std::ranges::all_of(c.ngrams.widths, [](int64_t w) { return w > 0; });
  COHORT_CHECK_ARG(positive, "[text_vectorization] expected ngrams of at least 1 token");
}

std::string TextVectorizationLayer::standardized(std::string_view text) const {
  const Standardize& how = config().standardize;
  std::string out(text);
  if (how.function()) return how.function()(out);
  if (how.lowers()) std::ranges::transform(out, out.begin(), lower_case);
  if (how.strips()) std::erase_if(out, is_punctuation);
  return out;
}

void TextVectorizationLayer::split(std::string_view text, std::vector<std::string>& tokens) const {
  const SplitText& how = config().split;
  const std::size_t first = tokens.size();
  if (how.function()) {
    for (std::string& token : how.function()(std::string(text))) tokens.push_back(std::move(token));
  } else if (how.is_by_character()) {
    split_characters(text, tokens);
  } else {
    split_words(text, tokens);
  }
  if (!config().ngrams.widths.empty()) join_ngrams(config().ngrams.widths, first, tokens);
}

Element TextVectorizationLayer::tokens_of(const Element& texts) const {
  COHORT_CHECK_ARG(texts.has_value() && texts.is_string(), "[", name(), "] expected strings, got ",
                   texts.spec().to_string());
  const Shape shape = texts.spec().leaf().shape;
  std::vector<std::string> tokens;
  if (config().split.is_none()) {
    for (const std::string_view text : texts.string_views()) tokens.push_back(standardized(text));
    if (!config().ngrams.widths.empty()) {
      throw Unimplemented(str_cat("[", name(), "] expected a split for ngrams, got none"));
    }
    return {std::move(tokens), shape};
  }
  const bool fits = shape.size() < 2 || (shape.size() == 2 && shape[1] == 1);
  COHORT_CHECK_ARG(fits, "[", name(), "] expected texts of shape [b] or [b, 1], got ",
                   bracketed(shape));
  std::vector<int64_t> splits = {0};
  for (const std::string_view text : texts.string_views()) {
    split(standardized(text), tokens);
    splits.push_back(static_cast<int64_t>(tokens.size()));
  }
  return Element::ragged(std::move(tokens),
                         from_vector(splits, {static_cast<int64_t>(splits.size())}));
}

// As many numbers of each row as output_sequence_length says, or the longest one has.
Tensor TextVectorizationLayer::padded(const Element& rows) const {
  const Tensor& numbers = rows["values"].tensor();
  const Tensor& splits = rows["row_splits"].tensor();
  const auto* const begins = splits.const_data_ptr<int64_t>();
  const int64_t count = splits.numel() - 1;
  int64_t length = 0;
  for (int64_t row = 0; row < count; ++row) {
    length = std::max(length, begins[row + 1] - begins[row]);
  }
  length = config().output_sequence_length.value_or(length);
  Tensor out = at::zeros({count, length}, at::TensorOptions(kInt64));
  auto* const to = out.data_ptr<int64_t>();
  const auto* const from = numbers.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < count; ++row) {
    const int64_t end = std::min(begins[row + 1], begins[row] + length);
    std::copy(from + begins[row], from + end, to + row * length);
  }
  return out;
}

Tensor TextVectorizationLayer::call(const Tensor& x, const CallArgs&) {
  throw InvalidArgument(
      str_cat("[", name(), "] expected strings, got ", Element(x).spec().to_string()));
}

Element TextVectorizationLayer::call_nest(const Element& inputs, const CallArgs& args) {
  const Element& texts = inputs[0];
  const bool is_one = texts.is_string() && texts.spec().leaf().shape.empty();
  const Element numbers = lookup_->call_nest(tokens_of(texts), args);
  if (numbers.is_tensor() && is_one && config().output_mode != "int" && !config().split.is_none()) {
    return numbers.tensor().squeeze(0);
  }
  if (config().output_mode != "int" || config().ragged) return numbers;
  if (numbers.is_ragged()) {
    const Tensor out = padded(numbers);
    return is_one ? out.squeeze(0) : out;
  }
  const Tensor& all = numbers.tensor();
  if (!config().output_sequence_length || all.dim() == 0) return all;
  const int64_t length = *config().output_sequence_length;
  const int64_t taken = std::min(length, all.size(-1));
  Shape shape = shape_of(all);
  shape.back() = length;
  Tensor out = at::zeros(shape, at::TensorOptions(kInt64));
  out.narrow(-1, 0, taken).copy_(all.narrow(-1, 0, taken));
  return out;
}

Shape TextVectorizationLayer::compute_output_shape(const Shape& input_shape) const {
  if (config().output_mode == "int") {
    if (config().split.is_none() && !config().output_sequence_length) return input_shape;
    return {input_shape.empty() ? kUnknownDim : input_shape[0],
            config().output_sequence_length.value_or(kUnknownDim)};
  }
  if (config().split.is_none()) return lookup_->compute_output_shape(input_shape);
  return lookup_->compute_output_shape(
      {input_shape.empty() ? kUnknownDim : input_shape[0], kUnknownDim});
}

ElementSpec TextVectorizationLayer::compute_output_spec(const ElementSpec& inputs) const {
  return TensorSpec{compute_output_shape(inputs[0].leaf().shape),
                    config().output_mode == "tf_idf" ? kFloat32 : kInt64};
}

Config TextVectorizationLayer::get_config() const {
  Config config = LayerImpl::get_config();
  if (lookup_->has_vocabulary()) config.set("vocabulary_size", lookup_->vocabulary_size());
  return config;
}

Config TextVectorizationLayer::serialize() const {
  Config whole = LayerImpl::serialize();
  Config config = whole.at("config");
  lookup_->describe_vocabulary(config);
  whole.set("config", config);
  return whole;
}

void TextVectorizationLayer::begin_learning() { lookup_->begin_learning(); }
void TextVectorizationLayer::learn(const Element& batch) { lookup_->learn(tokens_of(batch)); }
void TextVectorizationLayer::finish_learning() { lookup_->finish_learning(); }

Element TextVectorizationLayer::as_batch(const Element& data) const {
  const Shape shape = data.spec().leaf().shape;
  if (!config().split.is_none() || shape.size() != 1) return data;
  return {data.strings(), {shape[0], 1}};
}

TrackedParts TextVectorizationLayer::tracked_parts() const {
  TrackedParts parts = LayerImpl::tracked_parts();
  for (TrackedValue& value : lookup_->tracked_parts().values) {
    parts.values.push_back(std::move(value));
  }
  return parts;
}

std::map<std::string, std::string> TextVectorizationLayer::assets() const {
  std::map<std::string, std::string> all;
  for (const auto& [path, bytes] : lookup_->assets()) {
    all[path] = bytes;
    all[kInnerPlace + path] = bytes;
  }
  return all;
}

void TextVectorizationLayer::set_assets(const std::map<std::string, std::string>& assets) {
  lookup_->set_assets(assets);
}

std::map<std::string, Tensor> TextVectorizationLayer::named_values() const {
  std::map<std::string, Tensor> all;
  for (const auto& [path, value] : lookup_->named_values()) {
    all[path] = value;
    all[kInnerPlace + path] = value;
  }
  return all;
}

void TextVectorizationLayer::set_named_values(const std::map<std::string, Tensor>& values) {
  lookup_->set_named_values(values);
}

TextVectorization::TextVectorization(TextVectorizationOptions options)
    : AdaptingHandle(std::make_shared<TextVectorizationLayer>(
          TextVectorizationConfig{std::move(options), {}})) {}

StringLookupLayer& TextVectorization::lookup() const {
  return static_cast<TextVectorizationLayer&>(use()).lookup();
}
std::vector<std::string> TextVectorization::get_vocabulary(bool include_special_tokens) const {
  return lookup().get_vocabulary(include_special_tokens);
}
int64_t TextVectorization::vocabulary_size() const { return lookup().vocabulary_size(); }
void TextVectorization::set_vocabulary(const std::vector<std::string>& tokens,
                                       const std::vector<double>& idf_weights) const {
  lookup().set_vocabulary(tokens, idf_weights);
}

}  // namespace cohort::keras
