// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/lookup.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <span>

#include "cohort/base/check.h"
#include "cohort/checkpoint/trackable.h"
#include "cohort/keras/layers/internal/category_codes.h"
#include "cohort/keras/layers/internal/hash_functions.h"
#include "cohort/keras/layers/internal/vocabulary.h"

namespace cohort::keras {

namespace {

constexpr std::array<const char*, 5> kLookupModes = {"int", "one_hot", "multi_hot", "count",
                                                     "tf_idf"};
constexpr const char* kVocabularyFile = "vocabulary.txt";
constexpr const char* kIdfWeights = "vars/idf_weights";
constexpr int64_t kNowhere = std::numeric_limits<int64_t>::max();  // counts in no vector

// Leaves of the inputs as a lookup sees them.
std::vector<std::string_view> views_of(const Element& leaf, const std::string*) {
  return leaf.string_views();
}
std::vector<int64_t> views_of(const Element& leaf, const int64_t*) {
  const Tensor numbers = leaf.tensor().detach().to(at::kCPU, kInt64).contiguous();
  const auto* const begin = numbers.const_data_ptr<int64_t>();
  return {begin, begin + numbers.numel()};
}

Element element_of(std::vector<std::string> tokens, const Shape& shape) {
  if (shape.empty()) return tokens.front();
  return {std::move(tokens), shape};
}
Element element_of(const std::vector<int64_t>& tokens, const Shape& shape) {
  return from_vector(tokens, shape);
}

}  // namespace

template <class Token>
LookupLayer<Token>::LookupLayer(LookupConfig<Token> config)
    : Base(std::move(config)),
      mode_(internal::output_mode_of("lookup", this->config().output_mode, kLookupModes)),
      vocabulary_(std::make_shared<internal::Vocabulary<Token>>()) {
  this->set_autocast(false);
  check_options();
  if (!has_given_vocabulary()) return;
  set_vocabulary(this->config().vocabulary, this->config().idf_weights);
  given_ = std::make_shared<const internal::Vocabulary<Token>>(*vocabulary_);
}

template <class Token>
void LookupLayer<Token>::check_options() const {
  const auto& c = this->config();
  COHORT_CHECK_ARG(!c.max_tokens || *c.max_tokens > 1, "[lookup] expected max_tokens above 1, got ",
                   *c.max_tokens);
  COHORT_CHECK_ARG(!c.pad_to_max_tokens || c.max_tokens,
                   "[lookup] expected max_tokens for pad_to_max_tokens, got none");
  constexpr int64_t kMostOov = std::numeric_limits<int32_t>::max();
  COHORT_CHECK_ARG(c.num_oov_indices >= 0 && c.num_oov_indices <= kMostOov,
                   "[lookup] expected num_oov_indices from 0 to ", kMostOov, ", got ",
                   c.num_oov_indices);
  COHORT_CHECK_ARG(!c.invert || mode_ == "int",
                   "[lookup] expected output_mode int for invert, got ", mode_);
  COHORT_CHECK_ARG(!c.invert || c.oov_token, "[lookup] expected an oov_token for invert, got none");
  COHORT_CHECK_ARG(c.idf_weights.empty() || mode_ == "tf_idf",
                   "[lookup] expected idf_weights for output_mode tf_idf alone, got output_mode ",
                   mode_);
  const bool known = c.oov_method == "floormod" || c.oov_method == "farmhash";
  COHORT_CHECK_ARG(known, "[lookup] expected oov_method floormod or farmhash, got \"", c.oov_method,
                   "\"");
  COHORT_CHECK_ARG(!c.salt || (std::is_same_v<Token, std::string>) || c.oov_method == "farmhash",
                   "[lookup] expected oov_method farmhash for salt, got ", c.oov_method);
}

template <class Token>
int64_t LookupLayer<Token>::oov_start() const {
  return this->config().mask_token && mode_ == "int" ? 1 : 0;
}

template <class Token>
int64_t LookupLayer<Token>::token_start() const {
  return oov_start() + this->config().num_oov_indices;
}

template <class Token>
int64_t LookupLayer<Token>::vocabulary_size() const {
  return token_start() + vocabulary_->table.size();
}

template <class Token>
int64_t LookupLayer<Token>::depth() const {
  const auto& c = this->config();
  if (c.pad_to_max_tokens) return *c.max_tokens;
  return has_vocabulary() ? vocabulary_size() : c.vocabulary_size.value_or(kUnknownDim);
}

template <class Token>
bool LookupLayer<Token>::has_vocabulary() const {
  return vocabulary_->is_known;
}

template <class Token>
std::vector<Token> LookupLayer<Token>::get_vocabulary(bool include_special_tokens) const {
  std::vector<Token> all;
  if (include_special_tokens) {
    const auto& c = this->config();
    if (oov_start() == 1) all.push_back(*c.mask_token);
    all.insert(all.end(), static_cast<std::size_t>(c.num_oov_indices),
               c.oov_token.value_or(Token{}));
  }
  const std::vector<Token>& tokens = vocabulary_->table.tokens();
  all.insert(all.end(), tokens.begin(), tokens.end());
  return all;
}

template <class Token>
void LookupLayer<Token>::put_vocabulary(std::vector<Token> tokens, std::vector<float> idf_weights) {
  internal::Vocabulary<Token> next{internal::TokenTable<Token>(std::move(tokens)),
                                   std::move(idf_weights), true, given_ != nullptr};
  *vocabulary_ = std::move(next);
}

template <class Token>
void LookupLayer<Token>::set_vocabulary(const std::vector<Token>& given,
                                        const std::vector<double>& idf_weights) {
  const auto& c = this->config();
  COHORT_CHECK_ARG(!given.empty(), "[set_vocabulary] expected tokens for \"", this->name(),
                   "\", got none");
  const auto start = static_cast<std::size_t>(token_start());
  const auto masks = given.begin() + std::min<std::ptrdiff_t>(oov_start(), std::ssize(given));
  const bool in_front =
      given.size() >= start && (c.oov_token || c.num_oov_indices == 0) &&
      std::all_of(given.begin(), masks, [&](const Token& t) { return t == *c.mask_token; }) &&
      std::all_of(masks, given.begin() + static_cast<std::ptrdiff_t>(start),
                  [&](const Token& t) { return t == *c.oov_token; });
  const std::size_t first = in_front ? start : 0;
  std::set<Token> seen;
  for (std::size_t i = first; i < given.size(); ++i) {
    COHORT_CHECK_ARG(seen.insert(given[i]).second,
                     "[set_vocabulary] expected each token once for \"", this->name(), "\", got \"",
                     given[i], "\" twice");
    const bool reserved = given[i] == c.mask_token || (c.invert && given[i] == c.oov_token);
    COHORT_CHECK_ARG(!reserved, "[set_vocabulary] expected the special token \"", given[i],
                     "\" of \"", this->name(), "\" in front or not at all, got it at ", i);
  }
  const auto size = token_start() + static_cast<int64_t>(given.size() - first);
  COHORT_CHECK_ARG(!c.max_tokens || size <= *c.max_tokens,
                   "[set_vocabulary] expected at most max_tokens = ", c.max_tokens.value_or(0),
                   " tokens for \"", this->name(), "\", got ", size);
  const bool wants = mode_ == "tf_idf";
  COHORT_CHECK_ARG(idf_weights.size() == (wants ? given.size() : 0), "[set_vocabulary] expected ",
                   wants ? given.size() : 0, " idf_weights for \"", this->name(),
                   "\", in output_mode ", mode_, ", got ", idf_weights.size());
  std::vector<float> weights(idf_weights.begin(), idf_weights.end());
  if (wants && !in_front) {
    const double sum = std::accumulate(idf_weights.begin(), idf_weights.end(), 0.0);
    weights.insert(weights.begin(), static_cast<std::size_t>(token_start()),
                   static_cast<float>(sum / static_cast<double>(idf_weights.size())));
  }
  if (wants && c.pad_to_max_tokens) weights.resize(static_cast<std::size_t>(*c.max_tokens));
  put_vocabulary({given.begin() + static_cast<std::ptrdiff_t>(first), given.end()},
                 std::move(weights));
}

template <class Token>
void LookupLayer<Token>::begin_learning() {
  COHORT_CHECK_STATE(!has_given_vocabulary(),
                     "[adapt] expected a layer that is to learn its vocabulary, got \"",
                     this->name(), "\", which was given one");
  counts_ = std::make_shared<internal::TokenCounts<Token>>();
}

// All of one axis is one document, for tf_idf; strings given as they are, one each.
template <class Token>
Element LookupLayer<Token>::as_batch(const Element& data) const {
  if (data.is_tuple()) return data;
  const Shape shape = data.spec().leaf().shape;
  if (shape.size() != 1) return data;
  if (data.is_tensor()) return data.tensor().unsqueeze(-1);
  return {data.strings(), {shape[0], 1}};
}

template <class Token>
void LookupLayer<Token>::learn(const Element& batch) {
  const bool ragged = batch.is_ragged();
  const Element& leaf = ragged ? batch["values"] : batch;
  const Views tokens = views_of(leaf, static_cast<const Token*>(nullptr));
  std::vector<std::size_t> ends;
  if (ragged) {
    const Tensor splits = batch["row_splits"].tensor().to(kInt64).contiguous();
    const auto* const begin = splits.const_data_ptr<int64_t>();
    ends.assign(begin + 1, begin + splits.numel());
  } else {
    const Shape shape = leaf.spec().leaf().shape;
    const std::size_t rows = shape.size() < 2 ? 1 : static_cast<std::size_t>(shape[0]);
    for (std::size_t row = 1; row <= rows; ++row) ends.push_back(tokens.size() / rows * row);
  }
  std::size_t i = 0;
  for (const std::size_t end : ends) {
    for (; i < end; ++i) counts_->add(tokens[i]);
    ++counts_->documents;
  }
}

template <class Token>
void LookupLayer<Token>::finish_learning() {
  const auto& c = this->config();
  const std::shared_ptr<internal::TokenCounts<Token>> counts = std::move(counts_);
  counts->forget(c.mask_token);
  counts->forget(c.oov_token);
  using Count = typename internal::TokenCounts<Token>::Count;
  std::vector<std::pair<const Token*, Count>> all;
  for (const auto& [token, count] : counts->of) all.emplace_back(&token, count);
  std::ranges::sort(all, [](const auto& a, const auto& b) {
    return a.second.times != b.second.times ? a.second.times > b.second.times : *a.first > *b.first;
  });
  if (c.max_tokens) {
    const int64_t most = std::max<int64_t>(*c.max_tokens - token_start(), 0);
    if (static_cast<int64_t>(all.size()) > most) all.resize(static_cast<std::size_t>(most));
  }
  std::vector<Token> tokens;
  std::vector<float> weights;
  for (const auto& [token, count] : all) {
    tokens.push_back(*token);
    const auto documents = static_cast<double>(counts->documents);
    weights.push_back(
        static_cast<float>(std::log(1 + documents / (1 + static_cast<double>(count.documents)))));
  }
  if (mode_ != "tf_idf") {
    weights.clear();
  } else {
    const float sum = std::accumulate(weights.begin(), weights.end(), 0.0F);
    const float mean = weights.empty() ? 0.0F : sum / static_cast<float>(weights.size());
    weights.insert(weights.begin(), static_cast<std::size_t>(token_start()), mean);
    if (c.pad_to_max_tokens) weights.resize(static_cast<std::size_t>(*c.max_tokens));
  }
  put_vocabulary(std::move(tokens), std::move(weights));
}

template <class Token>
Tensor LookupLayer<Token>::numbers_of(const Views& tokens, const Shape& shape) const {
  const auto& c = this->config();
  const internal::TokenTable<Token>& table = vocabulary_->table;
  const int64_t start = token_start(), oov = oov_start();
  const int64_t masked = mode_ == "int" ? 0 : kNowhere;
  const internal::TextBins bin_of(std::max<int64_t>(c.num_oov_indices, 1),
                                  c.salt ? std::optional(c.salt->key) : std::nullopt);
  const bool hashes = std::is_same_v<Token, std::string> || c.oov_method == "farmhash";
  Tensor numbers = empty(shape, kInt64);
  auto* out = numbers.template data_ptr<int64_t>();
  for (const auto& token : tokens) {
    const int64_t found = table.find(token);
    if (found >= 0) {
      *out++ = start + found;
    } else if (c.mask_token && token == *c.mask_token) {
      *out++ = masked;
    } else if (c.num_oov_indices == 0) {
      throw InvalidArgument(str_cat("[", this->name(),
                                    "] expected tokens of the vocabulary, got \"", token,
                                    "\": num_oov_indices = 1 has a number for others"));
    } else if (c.num_oov_indices == 1) {
      *out++ = oov;
    } else if (hashes) {
      *out++ = oov + bin_of(token);
    } else if constexpr (!std::is_same_v<Token, std::string>) {
      const int64_t rest = token % c.num_oov_indices;
      *out++ = oov + (rest < 0 ? rest + c.num_oov_indices : rest);
    }
  }
  return numbers;
}

template <class Token>
Element LookupLayer<Token>::tokens_of(const Tensor& numbers) const {
  const auto& c = this->config();
  const std::vector<Token>& known = vocabulary_->table.tokens();
  std::vector<Token> tokens;
  for (const int64_t number : views_of(numbers, static_cast<const int64_t*>(nullptr))) {
    const int64_t place = number - token_start();
    const bool in_it = place >= 0 && place < static_cast<int64_t>(known.size());
    if (in_it) {
      tokens.push_back(known[static_cast<std::size_t>(place)]);
    } else {
      tokens.push_back(number == 0 && c.mask_token ? *c.mask_token : *c.oov_token);
    }
  }
  return element_of(std::move(tokens), shape_of(numbers));
}

template <class Token>
Tensor LookupLayer<Token>::encoded(const Tensor& numbers, const Tensor& row_splits) const {
  const bool weighs = mode_ == "tf_idf";
  const std::string mode = weighs ? "count" : mode_;
  const Tensor out =
      row_splits.defined()
          ? internal::encode_ragged_categories(numbers, row_splits, mode, depth(),
                                               weighs ? kFloat32 : kInt64)
          : internal::encode_categories(numbers, mode, depth(), weighs ? kFloat32 : kInt64);
  if (!weighs) return out;
  const auto& weights = vocabulary_->idf_weights;
  return out * from_vector(weights, {static_cast<int64_t>(weights.size())}).to(out.device());
}

template <class Token>
Tensor LookupLayer<Token>::call(const Tensor& x, const CallArgs& args) {
  return call_nest(Element(x), args).tensor();
}

template <class Token>
Element LookupLayer<Token>::call_nest(const Element& inputs, const CallArgs&) {
  COHORT_CHECK_STATE(has_vocabulary(), "[", this->name(),
                     "] expected a vocabulary, got none: call adapt() or set_vocabulary() first");
  if (this->config().invert) return tokens_of(inputs[0].tensor());
  const bool ragged = inputs.is_ragged();
  const Element& leaf = ragged ? inputs["values"] : inputs[0];
  if (std::is_same_v<Token, std::string> && !leaf.is_string()) {
    throw InvalidArgument(
        str_cat("[", this->name(), "] expected strings, got ", inputs.spec().to_string()));
  }
  const Tensor numbers =
      numbers_of(views_of(leaf, static_cast<const Token*>(nullptr)), leaf.spec().leaf().shape);
  const c10::Device place = leaf.is_string() ? at::kCPU : leaf.tensor().device();
  if (!ragged) return (mode_ == "int" ? numbers : encoded(numbers, {})).to(place);
  const Tensor splits = inputs["row_splits"].tensor();
  if (mode_ == "int") return Element::ragged(numbers, splits);
  if (mode_ == "one_hot") {
    throw Unimplemented(str_cat("[", this->name(),
                                "] expected rows of one length for output_mode one_hot, got "
                                "ragged ones: pad them, or use multi_hot or count"));
  }
  return encoded(numbers, splits);
}

template <class Token>
Shape LookupLayer<Token>::compute_output_shape(const Shape& input_shape) const {
  return internal::encoded_shape(input_shape, mode_, depth());
}

template <class Token>
ElementSpec LookupLayer<Token>::compute_output_spec(const ElementSpec& inputs) const {
  const Shape shape = compute_output_shape(inputs[0].leaf().shape);
  if (this->config().invert && std::is_same_v<Token, std::string>)
    return TensorSpec::strings(shape);
  return TensorSpec{shape, mode_ == "tf_idf" ? kFloat32 : kInt64};
}

template <class Token>
Config LookupLayer<Token>::get_config() const {
  Config config = Base::get_config();
  config.set("output_mode", mode_);
  if (has_vocabulary()) config.set("vocabulary_size", vocabulary_size());
  return config;
}

template <class Token>
Config LookupLayer<Token>::serialize() const {
  Config whole = Base::serialize();
  Config config = whole.at("config");
  describe_vocabulary(config);
  whole.set("config", config);
  return whole;
}

template <class Token>
bool LookupLayer<Token>::is_in_config() const {
  return has_given_vocabulary() ||
         (vocabulary_->table.size() > 0 && !internal::fit_lines(get_vocabulary()));
}

template <class Token>
void LookupLayer<Token>::describe_vocabulary(Config& config) const {
  if (!is_in_config() || (given_ != nullptr && !vocabulary_->is_replaced)) return;
  const std::vector<Token>& tokens = vocabulary_->table.tokens();
  config.set("vocabulary", ConfigValue<std::vector<Token>>::write(tokens));
  const std::vector<float>& weights = vocabulary_->idf_weights;
  if (mode_ != "tf_idf") return;
  std::vector<double> of_tokens;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    of_tokens.push_back(weights.at(static_cast<std::size_t>(token_start()) + i));
  }
  config.set("idf_weights", ConfigValue<std::vector<double>>::write(of_tokens));
}

template <class Token>
TrackedParts LookupLayer<Token>::tracked_parts() const {
  TrackedParts parts = Base::tracked_parts();
  const auto vocabulary = vocabulary_;
  const auto given = given_;
  // No bytes: what the layer was made with.
  parts.values.push_back(tracked_bytes(
      "vocabulary",
      [vocabulary, given] {
        const bool says_nothing = given != nullptr && !vocabulary->is_replaced;
        return says_nothing ? std::string() : internal::bytes_of(*vocabulary);
      },
      [vocabulary, given](std::string_view bytes) {
        *vocabulary =
            given != nullptr && bytes.empty() ? *given : internal::vocabulary_of<Token>(bytes);
        vocabulary->is_replaced = given != nullptr && !bytes.empty();
      }));
  return parts;
}

template <class Token>
std::map<std::string, std::string> LookupLayer<Token>::assets() const {
  if (is_in_config()) return {};
  return {{kVocabularyFile, internal::lines_of(get_vocabulary())}};
}

template <class Token>
void LookupLayer<Token>::set_assets(const std::map<std::string, std::string>& assets) {
  if (has_given_vocabulary()) return;
  const auto file = assets.find(kVocabularyFile);
  COHORT_CHECK_ARG(file != assets.end(), "[load_model] expected the vocabulary of \"", this->name(),
                   "\" among the assets, got none");
  const std::vector<Token> tokens = internal::tokens_of_lines<Token>(file->second);
  const std::vector<float> read = vocabulary_->idf_weights;
  put_vocabulary({}, read);
  const std::vector<Token> special = get_vocabulary();
  if (tokens.size() <= special.size()) {
    COHORT_CHECK_ARG(
        !this->config().oov_token || std::equal(tokens.begin(), tokens.end(), special.begin()),
        "[load_model] expected the special tokens of \"", this->name(),
        "\" in front of its vocabulary among the assets, got other ones alone");
    return;
  }
  set_vocabulary(tokens, std::vector<double>(mode_ == "tf_idf" ? tokens.size() : 0));
  vocabulary_->idf_weights = read;
  COHORT_CHECK_ARG(mode_ != "tf_idf" || static_cast<int64_t>(read.size()) == depth(),
                   "[load_model] expected as many idf_weights as tokens of \"", this->name(),
                   "\", got ", read.size(), " for ", depth());
}

template <class Token>
std::map<std::string, Tensor> LookupLayer<Token>::named_values() const {
  if (mode_ != "tf_idf") return {};
  const auto& weights = vocabulary_->idf_weights;
  return {{kIdfWeights, from_vector(weights, {static_cast<int64_t>(weights.size())})}};
}

template <class Token>
void LookupLayer<Token>::set_named_values(const std::map<std::string, Tensor>& values) {
  if (mode_ != "tf_idf") return;
  const auto found = values.find(kIdfWeights);
  COHORT_CHECK_ARG(found != values.end(), "[load_model] expected idf_weights of \"", this->name(),
                   "\" in the file, got none");
  const Tensor weights = found->second.to(kFloat32).contiguous();
  const auto* const begin = weights.const_data_ptr<float>();
  vocabulary_->idf_weights.assign(begin, begin + weights.numel());
}

template class LookupLayer<std::string>;
template class LookupLayer<int64_t>;

StringLookup::StringLookup(StringLookupOptions options) : LookupHandle(std::move(options)) {}
IntegerLookup::IntegerLookup(IntegerLookupOptions options) : LookupHandle(std::move(options)) {}

}  // namespace cohort::keras
