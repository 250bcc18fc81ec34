// SPDX-License-Identifier: Apache-2.0
//
// Preprocessing layers beyond golden_layers_test.cc: where their data come from, where they stand,
// and how their state is kept.
#include "cohort/keras/layers/preprocessing.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "cohort/checkpoint/checkpoint.h"
#include "cohort/checkpoint/test_objects.h"
#include "cohort/data/dataset.h"
#include "cohort/keras/layers/hashing.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/layers/text_vectorization.h"
#include "cohort/keras/sequential.h"
#include "cohort/keras/test_golden.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/keras/text_input.h"
#include "cohort/runtime/random.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using cohort::testing::expect_error;
using cohort::testing::strategy_of;
using testing::read_golden;
using Texts = std::vector<std::string>;

Tensor numbers(std::vector<int64_t> values) {
  const auto count = static_cast<int64_t>(values.size());
  return from_vector(values, {count});
}

TEST(Preprocessing, AdaptOfBatchesOfAnySizeIsThatOfTheWhole) {
  set_seed(3);
  const Tensor data = random_normal({37, 4}) * 5 + 100;
  const Normalization whole;
  whole.adapt(data);
  for (const int64_t size : {1, 5, 36, 64}) {
    const Normalization parts;
    parts.adapt(Dataset::from_tensor_slices(data).batch(size));
    EXPECT_TRUE(parts.variables()[0].value().allclose(whole.variables()[0].value(), 1e-6));
    EXPECT_TRUE(parts.variables()[1].value().allclose(whole.variables()[1].value(), 1e-6));
  }
  const Tensor normal = whole(data);
  EXPECT_TRUE(normal.mean(0).abs().max().item<double>() < 1e-4);
  EXPECT_TRUE((normal.to(kFloat64).square().mean(0) - 1).abs().max().item<double>() < 1e-4);
}

TEST(Preprocessing, AdaptTakesWhatDatasetsGive) {
  const Tensor data = arange(12, kFloat32).reshape({6, 2});
  const Normalization rows, pairs, some;
  rows.adapt(Dataset::from_tensor_slices(data));  // elements of one axis
  pairs.adapt(Dataset::from_tensor_slices({data, arange(6)}).batch(4));
  some.adapt(Dataset::from_tensor_slices(data).batch(2), {.steps = 1});
  EXPECT_TRUE(rows.variables()[0].value().equal(pairs.variables()[0].value()));
  EXPECT_FLOAT_EQ(some.variables()[0].value()[0].item<float>(), 1);
  expect_error<InvalidArgument>({"empty dataset"},
                                [&] { rows.adapt(Dataset::from_tensor_slices(data).take(0)); });
  expect_error<InvalidArgument>({"[-1, 2]"}, [&] {
    rows.adapt(arange(9, kFloat32).reshape({3, 3}));
  });
  expect_error<FailedPrecondition>(
      {"given"}, [&] { Normalization({.mean = 1.0, .variance = 2.0}).adapt(data); });
}

TEST(Preprocessing, AdaptIsTheSameForAllNumbersOfReplicas) {
  for (const int replicas : {0, 1, 2, 3}) {
    const Strategy strategy = strategy_of(replicas);
    const auto scope = strategy.scope();
    Sequential model({Normalization(), Dense(1)});
    auto& normalize = dynamic_cast<AdaptingLayer&>(model.layers()[0].base());
    normalize.adapt(arange(10, kFloat32).reshape({5, 2}));
    EXPECT_FLOAT_EQ(normalize.variables()[1].value()[0].item<float>(), 8);
    model.compile({.optimizer = "sgd", .loss = "mse"});
    // Seven rows: an uneven batch, and with three replicas one of a single row.
    model.fit(Dataset::from_tensor_slices({random_normal({7, 2}), random_normal({7, 1})}).batch(4),
              {.verbose = Verbose::kSilent});
    EXPECT_FLOAT_EQ(normalize.variables()[1].value()[0].item<float>(), 8);
  }
}

// Where the mean has another number of features than the inputs. Expected: Keras 3.
TEST(Preprocessing, NormalizationOfOtherWidthsBroadcastsOrSaysSo) {
  for (const bool invert : {false, true}) {
    const Normalization normalize(
        {.mean = {1., 2., 3.}, .variance = {1., 1., 1.}, .invert = invert, .name = "normal"});
    EXPECT_EQ(shape_of(normalize(ones({2, 3}))), (Shape{2, 3}));
    const Tensor row =
        invert ? from_vector<float>({2, 3, 4}, {3}) : from_vector<float>({0, -1, -2}, {3});
    EXPECT_TRUE(normalize(ones({2, 1})).equal(row.expand({2, 3})));
    for (const Shape& other : {Shape{2, 4}, Shape{2, 2}, Shape{3}}) {
      expect_error<InvalidArgument>({"[normal]", "3]", bracketed(other)},
                                    [&] { normalize(ones(other)); });
    }
  }
  const Normalization one({.mean = 1., .variance = 4.});
  EXPECT_TRUE(one(zeros({2, 1})).equal(full({2, 1}, -0.5)));
  const Normalization planes({.axis = {1, 2}});
  planes.adapt(arange(24, kFloat32).reshape({4, 3, 2}));
  EXPECT_EQ(shape_of(planes(ones({2, 1, 2}))), (Shape{2, 3, 2}));
}

TEST(Preprocessing, TextsComeByThemselvesAndInPipelines) {
  const TextVectorization vectorize({.output_sequence_length = 3});
  const Texts texts = {"one two", "two", "three two one zero"};
  vectorize.adapt(Dataset::from_tensor_slices(Element(texts)).batch(2));
  EXPECT_EQ(vectorize.get_vocabulary(), (Texts{"", "[UNK]", "two", "one", "zero", "three"}));
  const Tensor direct = vectorize(Texts{"two one", "four"});
  EXPECT_TRUE(direct.equal(from_vector<int64_t>({2, 3, 0, 1, 0, 0}, {2, 3})));
  const Dataset mapped = Dataset::from_tensor_slices({Element(texts), arange(3)})
                             .batch(3)
                             .map(
                                 [vectorize](const Element& e) {
                                   return Element{vectorize(e[0]), e[1]};
                                 },
                                 {.parallel_calls = 2});
  for (const auto& [ids, labels] : mapped) {
    EXPECT_TRUE(ids.equal(vectorize(texts).tensor()));
    EXPECT_EQ(labels.size(0), 3);
  }
  EXPECT_TRUE(vectorize(std::string("one")).tensor().equal(numbers({3, 0, 0})));
}

TEST(Preprocessing, FunctionsOfTheProgramStandardizeAndSplit) {
  const TextVectorization vectorize(
      {.standardize = [](const std::string& text) { return text + "-x"; },
       .split =
           [](const std::string& text) {
             return Texts{text.substr(0, text.find('-')), text.substr(text.find('-') + 1)};
           },
       .vocabulary = {"a", "x"}});
  EXPECT_TRUE(
      vectorize(Texts{"a", "b"}).tensor().equal(from_vector<int64_t>({2, 3, 1, 3}, {2, 2})));
  expect_error<Unimplemented>({"functions cannot be in files"}, [&] { vectorize.get_config(); });
}

TEST(Preprocessing, LookupsInvert) {
  const StringLookup number_of({.vocabulary = {"a", "b"}});
  const StringLookup text_of({.vocabulary = number_of.get_vocabulary(), .invert = true});
  EXPECT_EQ(text_of(Element(numbers({2, 1, 0}))).strings(), (Texts{"b", "a", "[UNK]"}));
  expect_error<InvalidArgument>({"twice"}, [&] { StringLookup({.vocabulary = {"a", "a"}}); });
  expect_error<InvalidArgument>({"max_tokens = 2"}, [&] {
    StringLookup({.max_tokens = 2, .vocabulary = {"a", "b"}});
  });
  expect_error<InvalidArgument>({"num_oov_indices", "9223372036854775807"}, [] {
    StringLookup({.num_oov_indices = INT64_MAX, .vocabulary = {"a"}, .invert = true});
  });
  expect_error<FailedPrecondition>({"call adapt()"}, [] { StringLookup()(Texts{"a"}); });
  expect_error<InvalidArgument>(
      {"\"q\""}, [] { StringLookup({.num_oov_indices = 0, .vocabulary = {"a"}})(Texts{"q"}); });
  expect_error<InvalidArgument>({"expected strings"}, [&] { number_of(Element(numbers({1}))); });
  expect_error<FailedPrecondition>({"given"}, [&] { number_of.adapt(Texts{"c"}); });
}

// What Keras's lines of a file would make other tokens of goes into the config, where Keras looks
// first.
TEST(Preprocessing, VocabulariesThatLinesCannotHoldAreInTheConfig) {
  const auto again = [](const StringLookup& lookup) {
    const Layer layer = Layer::deserialize(lookup.serialize());
    return dynamic_cast<StringLookupLayer&>(layer.base()).get_vocabulary();
  };
  const auto assets_of = [](const StringLookup& lookup) {
    return dynamic_cast<StringLookupLayer&>(lookup.base()).assets();
  };
  for (const char* odd : {"", "x\u2028y", "\u2029", "a\x1d", "\u0085", "a\nb", "\v", "\r"}) {
    const StringLookup lookup;
    lookup.adapt(Texts{"b", "b", odd});
    EXPECT_EQ(lookup.get_vocabulary(), (Texts{"[UNK]", "b", odd}));
    EXPECT_TRUE(assets_of(lookup).empty()) << odd;
    EXPECT_EQ(again(lookup), lookup.get_vocabulary());
    const TextVectorization texts({.standardize = {}, .split = {}});
    texts.adapt(Texts{"b", "b", odd, "c\u2028"});
    const Layer copy = Layer::deserialize(texts.serialize());
    EXPECT_EQ(dynamic_cast<TextVectorizationLayer&>(copy.base()).lookup().get_vocabulary(),
              texts.get_vocabulary());
  }
  const StringLookup plain;
  plain.adapt(Texts{"b", "", ""});  // an empty line that is not the last one
  EXPECT_EQ(assets_of(plain).at("vocabulary.txt"), "[UNK]\n\nb");
}

// The new one is what files say, and not what the layer was made with.
TEST(Preprocessing, AVocabularyInPlaceOfAGivenOneIsSaved) {
  const StringLookup lookup({.vocabulary = {"a", "b"}});
  lookup.set_vocabulary({"c", "d", "e"});
  EXPECT_TRUE(lookup(Texts{"e", "a"}).tensor().equal(numbers({3, 0})));
  const Layer copy = Layer::deserialize(lookup.serialize());
  EXPECT_EQ(dynamic_cast<StringLookupLayer&>(copy.base()).get_vocabulary(),
            (Texts{"[UNK]", "c", "d", "e"}));
  const StringLookup weighed({.vocabulary = {"a"}, .idf_weights = {2}, .output_mode = "tf_idf"});
  weighed.set_vocabulary({"b", "c"}, {1, 3});
  const Layer again = Layer::deserialize(weighed.serialize());
  const Element rows(Texts{"b", "c", "z"}, {1, 3});
  EXPECT_TRUE(again(rows).tensor().equal(weighed(rows).tensor()));
}

TEST(Preprocessing, RaggedRowsAreLookedUp) {
  const StringLookup number_of({.vocabulary = {"a", "b"}, .output_mode = "multi_hot"});
  const Element rows = Element::ragged(Texts{"a", "b", "a"}, numbers({0, 2, 2, 3}));
  EXPECT_TRUE(
      number_of(rows).tensor().equal(from_vector<int64_t>({0, 1, 1, 0, 0, 0, 0, 1, 0}, {3, 3})));
  const StringLookup ids({.vocabulary = {"a", "b"}});
  EXPECT_TRUE(ids(rows)["values"].tensor().equal(numbers({1, 2, 1})));
}

TEST(Preprocessing, EmptyBatchesHaveNoRows) {
  const TextVectorization vectorize({.vocabulary = {"a"}});
  EXPECT_EQ(shape_of(vectorize(Texts{}).tensor()), (Shape{0, 0}));
  EXPECT_EQ(shape_of(Hashing(3)(Texts{}).tensor()), (Shape{0}));
  const Tensor none = CategoryEncoding(4)(zeros({0, 2}, kInt64));
  EXPECT_EQ(shape_of(none), (Shape{0, 4}));
  expect_error<InvalidArgument>({"from 0 on"}, [] { CategoryEncoding(4)(full({1, 2}, -1)); });
}

class PreprocessingState : public cohort::testing::FolderTest {};

TEST_F(PreprocessingState, AVocabularyInPlaceOfAGivenOneIsInCheckpoints) {
  const StringLookup lookup({.vocabulary = {"a", "b"}});
  lookup.set_vocabulary({"c", "d", "e"});
  Checkpoint({{"lookup", lookup}}).save(path("set"));
  const StringLookup other({.vocabulary = {"a", "b"}});
  Checkpoint({{"lookup", other}}).restore(path("set"));
  EXPECT_EQ(other.get_vocabulary(), (Texts{"[UNK]", "c", "d", "e"}));
}

TEST_F(PreprocessingState, IsInCheckpoints) {
  const TextVectorization texts({.output_mode = "tf_idf"});
  const IntegerLookup ids;
  const Discretization bins({.num_bins = 3});
  const Normalization normalize;
  Checkpoint saved({{"texts", texts}, {"ids", ids}, {"bins", bins}, {"normalize", normalize}});
  texts.adapt(Texts{"a b", "b\nc"});
  ids.adapt(numbers({7, 7, -3}));
  bins.adapt(arange(30, kFloat32));
  normalize.adapt(arange(6, kFloat32).reshape({3, 2}));
  saved.save(path("all"));

  const TextVectorization texts2({.output_mode = "tf_idf"});
  const IntegerLookup ids2;
  const Discretization bins2({.num_bins = 3});
  const Normalization normalize2;
  Checkpoint restored(
      {{"texts", texts2}, {"ids", ids2}, {"bins", bins2}, {"normalize", normalize2}});
  restored.restore(path("all"));
  EXPECT_EQ(texts2.get_vocabulary(), texts.get_vocabulary());
  EXPECT_TRUE(texts2(Texts{"b z"}).tensor().equal(texts(Texts{"b z"}).tensor()));
  EXPECT_EQ(ids2.get_vocabulary(), (std::vector<int64_t>{-1, 7, -3}));
  EXPECT_EQ(bins2.bin_boundaries(), bins.bin_boundaries());
  const Tensor x = ones({1, 2});
  EXPECT_TRUE(normalize2(x).equal(normalize(x)));
}

// A vocabulary that is not the layer's, of a file that somebody has put together.
TEST_F(PreprocessingState, OfAnotherVocabularyIsRefused) {
  const StringLookup words;
  auto& layer = dynamic_cast<StringLookupLayer&>(words.base());
  expect_error<InvalidArgument>({"special tokens", words.name()}, [&] {
    layer.set_assets({{"vocabulary.txt", "garbage"}});
  });
  layer.set_assets({{"vocabulary.txt", "[UNK]"}});
  EXPECT_EQ(words.get_vocabulary(), (Texts{"[UNK]"}));
  const StringLookup weighed({.output_mode = "tf_idf"});
  auto& other = dynamic_cast<StringLookupLayer&>(weighed.base());
  other.set_named_values({{"vars/idf_weights", ones({1})}});
  expect_error<InvalidArgument>({"as many idf_weights as tokens", "got 1 for 3"}, [&] {
    other.set_assets({{"vocabulary.txt", "[UNK]\na\nb"}});
  });
}

// A layer of a file has its boundaries and num_bins, and may learn others.
TEST_F(PreprocessingState, IsWhatALoadedDiscretizationHasLearntSince) {
  const DiscretizationOptions options{.bin_boundaries = std::vector<double>{1, 3}, .num_bins = 3};
  const Discretization loaded(options), other(options);
  loaded.adapt(arange(30, kFloat32));
  ASSERT_EQ(loaded.bin_boundaries().size(), 2U);
  EXPECT_NEAR(loaded.bin_boundaries()[0], 9, 1e-5);
  EXPECT_NEAR(loaded.bin_boundaries()[1], 19, 1e-5);
  const Config config = loaded.base().get_config();
  EXPECT_EQ(ConfigValue<std::vector<double>>::read(config.at("bin_boundaries")),
            loaded.bin_boundaries());
  Checkpoint({{"bins", loaded}}).save(path("bins"));
  Checkpoint({{"bins", other}}).restore(path("bins"));
  EXPECT_EQ(other.bin_boundaries(), loaded.bin_boundaries());
}

// Behind all numbers, as numpy sorts them. Expected: Keras 3.
TEST(Preprocessing, DiscretizationLearnsFromDataWithNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Discretization bins({.num_bins = 3});
  bins.adapt(from_vector<float>({3, 1, nan, 2, 5, 4, nan, 0}, {8}));
  ASSERT_EQ(bins.bin_boundaries().size(), 2U);
  EXPECT_NEAR(bins.bin_boundaries()[0], 5. / 3, 1e-6);
  EXPECT_NEAR(bins.bin_boundaries()[1], 13. / 3, 1e-6);
  bins.adapt(Dataset::from_tensor_slices(from_vector<float>({1, nan, 2, 3, 0, 7}, {6})).batch(3));
  EXPECT_NEAR(bins.bin_boundaries()[0], 1, 1e-6);
  EXPECT_NEAR(bins.bin_boundaries()[1], 3, 1e-6);
}

// Texts of two classes that their first word tells.
Dataset labelled_texts() {
  const Texts texts = {"good one", "bad two", "good three", "bad", "good", "bad one two", "good"};
  return Dataset::from_tensor_slices(
             {Element(texts), from_vector<float>({1, 0, 1, 0, 1, 0, 1}, {7, 1})})
      .batch(4);
}

TEST(Preprocessing, AModelBeginsWithTexts) {
  for (const int replicas : {0, 1, 2, 3}) {
    set_seed(4);
    const Strategy strategy = strategy_of(replicas);
    const auto scope = strategy.scope();
    const TextVectorization vectorize({.output_mode = "multi_hot"});
    vectorize.adapt(labelled_texts());
    Sequential model({vectorize, Dense(1, {.activation = "sigmoid"})});
    model.compile({.optimizer = "adam", .loss = "binary_crossentropy"});
    const History history =
        model.fit(labelled_texts(), {.epochs = 30, .verbose = Verbose::kSilent});
    EXPECT_LT(history.history.at("loss").back(), history.history.at("loss").front());
    EXPECT_EQ(shape_of(model.predict(labelled_texts())), (Shape{7, 1}));
  }
}

Model two_texts() {
  const KerasTensor text = TextInput({1}, {.name = "text"});
  const KerasTensor words = TextInput({2}, {.name = "words"});
  const TextVectorization vectorize({.output_sequence_length = 3});
  vectorize.adapt(Texts{"a b", "b c"});
  const StringLookup bag({.output_mode = "tf_idf"});
  bag.adapt(Texts{"x", "y", "x"});
  const KerasTensor bow = Dense(2)(bag(words));
  const KerasTensor sequence = Flatten()(Embedding(6, 2)(vectorize(text)));
  return {{text, words}, Dense(1)(Concatenate()({bow, sequence}))};
}

Element two_inputs() {
  return {Element(Texts{"a b q", "c"}), Element(Texts{"x", "y", "z", "x"}, {2, 2})};
}

TEST_F(PreprocessingState, IsInModelFiles) {
  Model model = two_texts();
  model.save(path("m.keras"));
  const std::shared_ptr<Model> loaded = load_model(path("m.keras"));
  const Tensor expected = model(two_inputs()).tensor();
  EXPECT_TRUE((*loaded)(two_inputs()).tensor().equal(expected));
  model.save_weights(path("m.weights.h5"));
  Model other = two_texts();
  EXPECT_FALSE(other(two_inputs()).tensor().equal(expected));
  other.load_weights(path("m.weights.h5"));
  EXPECT_TRUE(other(two_inputs()).tensor().equal(expected));

  Sequential texts({TextVectorization({.output_sequence_length = 2, .vocabulary = {"a"}}),
                    Embedding(3, 2), Flatten(), Dense(1)});
  const Element some = Texts{"a b", "b"};
  const Tensor plain = texts(some).tensor();
  texts.save(path("s.keras"));
  EXPECT_TRUE((*load_model(path("s.keras")))(some).tensor().equal(plain));
}

// A file of real Keras: golden/write_text_model.py.
TEST_F(PreprocessingState, OfKerasIsRead) {
  const std::shared_ptr<Model> model = load_model(COHORT_GOLDEN "/text_model.keras");
  const Config golden = read_golden(COHORT_GOLDEN "/text_model.json");
  const auto texts = [&](const char* name, const Shape& shape) {
    return Element(ConfigValue<Texts>::read(golden.at(name)), shape);
  };
  const auto rows = [&](const char* name) {
    std::vector<double> values;
    for (const Config& row : golden.at(name).list()) {
      for (const Config& value : row.list()) values.push_back(value.number());
    }
    return from_vector<double>(values, {4, 2});
  };
  const Element inputs = {texts("text", {4, 1}), texts("words", {4, 2}), rows("ids").to(kInt64),
                          rows("numbers").to(kFloat32)};
  const Tensor want = rows("predictions").to(kFloat32);
  EXPECT_TRUE((*model)(inputs).tensor().allclose(want, 1e-5, 1e-6));
  const char* const keep = std::getenv("COHORT_TEXT_MODEL");
  const std::string copy = keep != nullptr ? keep : path("copy.keras");
  model->save(copy);
  EXPECT_TRUE((*load_model(copy))(inputs).tensor().allclose(want, 1e-5, 1e-6));
}

}  // namespace
}  // namespace cohort::keras
