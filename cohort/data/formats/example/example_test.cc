// SPDX-License-Identifier: Apache-2.0
//
// Examples: the bytes that protobuf writes, and what parsing by a spec makes of them.
#include "cohort/data/formats/example/example.h"

#include <gtest/gtest.h>

#include "cohort/data/formats/example/example_parser.h"
#include "cohort/data/formats/tf_record/tf_record.h"
#include "cohort/data/test_files.h"

namespace cohort {
namespace {

using namespace std::string_literals;
using testing::error_text;
using Strings = std::vector<std::string>;
using Floats = std::vector<float>;
using Ints = std::vector<int64_t>;

std::string from_hex(const std::string& hex) {
  std::string out;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return out;
}

std::string person(const Features& features) { return Example{features}.serialize(); }

// Made by protobuf for Python from the published message definitions.
const char* const kExampleHex =
    "0a3b0a160a03616765120f1a0d0a0b1dffffffffffffffffff010a0e0a046e616d6512060a040a0261620a110a0177"
    "120c120a0a080000003f00000040";
const char* const kSequenceHex =
    "0a0d0a0b0a02696412051a030a010712150a130a0178120e0a0812060a040000803f0a021200";

TEST(ExampleBytes, AreProtobufs) {
  const Example e{{{"age", Ints{29, -1}}, {"name", Strings{"ab"}}, {"w", Floats{0.5, 2}}}};
  EXPECT_EQ(e.serialize(), from_hex(kExampleHex));
  EXPECT_EQ(Example::parse(from_hex(kExampleHex)).features, e.features);
  const SequenceExample s{{{"id", Ints{7}}}, {{"x", {Floats{1}, Floats{}}}}};
  EXPECT_EQ(s.serialize(), from_hex(kSequenceHex));
  EXPECT_EQ(SequenceExample::parse(from_hex(kSequenceHex)).context, s.context);
  EXPECT_EQ(SequenceExample::parse(from_hex(kSequenceHex)).feature_lists, s.feature_lists);
}

TEST(ExampleBytes, UnpackedUnknownAndRepeatedFieldsAreRead) {
  // Unpacked integers 1 and 2 (field 1, varint), an unknown field 9, the key twice, no kind.
  const std::string ints = from_hex(
      "0a0161"
      "1206"
      "1a04"
      "08010802");
  const std::string again = from_hex(
      "0a0161"
      "1205"
      "1a03"
      "0a0105");
  const std::string none = from_hex(
      "0a0162"
      "1200");
  auto field = [](const std::string& tag, const std::string& body) {
    return from_hex(tag) + static_cast<char>(body.size()) + body;
  };
  const std::string first = field("0a", field("0a", ints) + from_hex("4803"));
  EXPECT_EQ(Example::parse(first).features.at("a"), Feature(Ints{1, 2}));
  const std::string both = field("0a", field("0a", ints) + field("0a", none) + field("0a", again));
  EXPECT_EQ(Example::parse(both).features.at("a"), Feature(Ints{5}));
  EXPECT_EQ(Example::parse(both).features.at("b"), Feature());
  const FeatureSpecs specs = {{"a", FixedLenFeature{FeatureType::kInt64}},
                              {"b", FixedLenFeature{FeatureType::kInt64, {}, scalar(8, kInt64)}}};
  const Element parsed = parse_single_example(both, specs);
  EXPECT_EQ(parsed["a"].as<int64_t>(), 5);
  EXPECT_EQ(parsed["b"].as<int64_t>(), 8);
  // Unpacked floats: field 1, fixed32.
  const std::string floats = from_hex(
      "0a0163"
      "1207"
      "1205"
      "0d0000003f");
  EXPECT_EQ(Example::parse(field("0a", field("0a", floats))).features.at("c"),
            Feature(Floats{0.5}));
}

TEST(ExampleBytes, DamageIsDataLossOrAnotherExample) {
  const std::string whole = from_hex(kExampleHex);
  EXPECT_THROW(Example::parse(whole.substr(0, whole.size() - 1)), DataLoss);
  EXPECT_THROW(Example::parse("\xff"), DataLoss);
  for (std::size_t i = 0; i < whole.size() * 8; ++i) {
    std::string changed = whole;
    changed[i / 8] = static_cast<char>(changed[i / 8] ^ (1 << (i % 8)));
    try {
      Example::parse(changed);
      parse_single_example(changed, {{"age", RaggedFeature{FeatureType::kInt64}}});
    } catch (const Error&) {  // Either is right; a crash is not.
    }
  }
}

TEST(ParseExample, FixedLength) {
  const FeatureSpecs specs = {
      {"image", FixedLenFeature{FeatureType::kFloat32, {2, 2}}},
      {"label", FixedLenFeature{FeatureType::kInt64}},
      {"name", FixedLenFeature{FeatureType::kString, {}, Element("nobody"s)}}};
  const Strings serialized = {
      person({{"image", Floats{1, 2, 3, 4}}, {"label", Ints{7}}, {"name", Strings{"a"}}}),
      person({{"image", Floats{5, 6, 7, 8}}, {"label", Ints{-9}}, {"other", Ints{0}}})};
  const Element batch = parse_example(serialized, specs);
  EXPECT_EQ(batch.spec().to_string(), "(image float32[2,2,2], label int64[2], name string[2])");
  EXPECT_EQ(to_vector<float>(batch["image"].tensor()), (Floats{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(to_vector<int64_t>(batch["label"].tensor()), (Ints{7, -9}));
  EXPECT_EQ(batch["name"].strings(), (Strings{"a", "nobody"}));
  const Element single = parse_single_example(serialized[1], specs);
  EXPECT_EQ(single.spec().to_string(), "(image float32[2,2], label int64[], name string[])");
  EXPECT_EQ(single["name"].string(), "nobody");
  EXPECT_EQ(ExampleParser(specs).batch_spec().to_string(),
            "(image float32[?,2,2], label int64[?], name string[?])");
  EXPECT_EQ(parse_example({}, specs)["image"].spec().to_string(), "float32[0,2,2]");
}

TEST(ParseExample, SparseAndRagged) {
  const Strings serialized = {person({{"x", Ints{1, 2}}}), person({}), person({{"x", Ints{3}}})};
  const Element sparse =
      parse_example(serialized, {{"x", VarLenFeature{FeatureType::kInt64}}})["x"];
  EXPECT_EQ(to_vector<int64_t>(sparse["indices"].tensor()), (Ints{0, 0, 0, 1, 2, 0}));
  EXPECT_EQ(to_vector<int64_t>(sparse["values"].tensor()), (Ints{1, 2, 3}));
  EXPECT_EQ(to_vector<int64_t>(sparse["dense_shape"].tensor()), (Ints{3, 2}));
  const FeatureSpecs ragged_specs = {{"x", RaggedFeature{FeatureType::kInt64}}};
  const Element ragged = parse_example(serialized, ragged_specs)["x"];
  EXPECT_EQ(to_vector<int64_t>(ragged["values"].tensor()), (Ints{1, 2, 3}));
  EXPECT_EQ(to_vector<int64_t>(ragged["row_splits"].tensor()), (Ints{0, 2, 2, 3}));
  EXPECT_EQ(to_vector<int64_t>(parse_single_example(serialized[0], ragged_specs)["x"].tensor()),
            (Ints{1, 2}));
  const Element one = parse_single_example(person({{"s", Strings{"a", "b"}}}),
                                           {{"s", VarLenFeature{FeatureType::kString}}})["s"];
  EXPECT_EQ(one["values"].strings(), (Strings{"a", "b"}));
  EXPECT_EQ(to_vector<int64_t>(one["indices"].tensor()), (Ints{0, 1}));
  EXPECT_EQ(to_vector<int64_t>(one["dense_shape"].tensor()), Ints{2});
}

TEST(ParseExample, ErrorsNameExampleAndFeature) {
  const FeatureSpecs specs = {{"x", FixedLenFeature{FeatureType::kFloat32, {2}}}};
  auto text = [&](const Features& second) {
    return error_text<InvalidArgument>([&] {
      parse_example({person({{"x", Floats{1, 2}}}), person(second)}, specs);
    });
  };
  EXPECT_EQ(text({}),
            "[parse_example] example 1, feature x: expected values, because it has no "
            "default, got none");
  EXPECT_EQ(text({{"x", Floats{1, 2, 3}}}),
            "[parse_example] example 1, feature x: expected 2 values, got 3");
  EXPECT_EQ(text({{"x", Ints{1, 2}}}),
            "[parse_example] example 1, feature x: expected float32 values, got int64 values");
  EXPECT_THROW(parse_example({"\x0a\x05"}, specs), DataLoss);
  EXPECT_THROW(ExampleParser({}), InvalidArgument);
  EXPECT_THROW(ExampleParser({{"x", FixedLenFeature{FeatureType::kInt64, {kUnknownDim}}}}),
               InvalidArgument);
  EXPECT_THROW(ExampleParser({{"x", FixedLenFeature{FeatureType::kInt64, {3}, tensor({1, 2})}}}),
               InvalidArgument);
}

TEST(ParseExample, StringsOfAnyShape) {
  const FeatureSpecs specs = {{"x", FixedLenFeature{FeatureType::kString, {2}, Element("-")}}};
  const Element batch =
      parse_example({person({{"x", Strings{"a", std::string("\0b", 2)}}}), person({})}, specs);
  EXPECT_EQ(batch["x"].spec().to_string(), "string[2,2]");
  EXPECT_EQ(batch["x"].strings(), (Strings{"a", std::string("\0b", 2), "-", "-"}));
  EXPECT_EQ(parse_example({}, specs)["x"].spec().to_string(), "string[0,2]");
  EXPECT_THROW(parse_example({person({{"x", Strings{"a", "b", "c"}}})}, specs), InvalidArgument);
  const Element one = parse_single_example(person({{"x", Strings{"a", "b"}}}), specs);
  EXPECT_EQ(one["x"].strings(), (Strings{"a", "b"}));
}

// Whoever writes examples may write their features in any order.
TEST(ParseExample, FindsFeaturesInAnyOrder) {
  const std::string ab = person({{"a", Ints{1}}, {"b", Ints{2}}, {"c", Ints{3}}});
  // The same entries the other way round: each has 12 bytes behind the two of the message.
  const std::string ba = ab.substr(0, 2) + ab.substr(26, 12) + ab.substr(14, 12) + ab.substr(2, 12);
  const FeatureSpecs specs = {{"a", FixedLenFeature{FeatureType::kInt64}},
                              {"c", FixedLenFeature{FeatureType::kInt64, {}, tensor({9})}}};
  const Element batch = parse_example({ab, ba, ab, person({{"a", Ints{4}}})}, specs);
  EXPECT_EQ(to_vector<int64_t>(batch["a"].tensor()), (Ints{1, 1, 1, 4}));
  EXPECT_EQ(to_vector<int64_t>(batch["c"].tensor()), (Ints{3, 3, 3, 9}));
}

TEST(ParseExample, Sequences) {
  const SequenceExample s{{{"id", Ints{7}}},
                          {{"x", {Floats{1, 2}, Floats{3, 4}, Floats{5, 6}}},
                           {"words", {Strings{"a"}, Strings{}, Strings{"b", "c"}}}}};
  const FeatureSpecs context = {{"id", FixedLenFeature{FeatureType::kInt64}}};
  const Element e = parse_single_sequence_example(
      s.serialize(), context,
      {{"x", FixedLenSequenceFeature{FeatureType::kFloat32, {2}}},
       {"words", RaggedFeature{FeatureType::kString}},
       {"none", FixedLenSequenceFeature{FeatureType::kInt64, {}, true}}});
  EXPECT_EQ(e[0]["id"].as<int64_t>(), 7);
  EXPECT_EQ(e[1]["x"].spec().to_string(), "float32[3,2]");
  EXPECT_EQ(to_vector<float>(e[1]["x"].tensor()), (Floats{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(e[1]["words"]["values"].strings(), (Strings{"a", "b", "c"}));
  EXPECT_EQ(to_vector<int64_t>(e[1]["words"]["row_splits"].tensor()), (Ints{0, 1, 1, 3}));
  EXPECT_EQ(e[1]["none"].spec().to_string(), "int64[0]");
  EXPECT_THROW(
      parse_single_sequence_example(s.serialize(), context, {{"y", FixedLenSequenceFeature{}}}),
      InvalidArgument);
  EXPECT_EQ(error_text<InvalidArgument>([&] {
              parse_single_sequence_example(
                  s.serialize(), context,
                  {{"x", FixedLenSequenceFeature{FeatureType::kFloat32, {3}}}});
            }),
            "[parse_single_sequence_example] step 0, feature x: expected 3 values, got 2");
}

class ParseExampleFiles : public testing::FilesTest {};

TEST_F(ParseExampleFiles, InAPipeline) {
  {
    TfRecordWriter writer(path("a"));
    for (int64_t i = 0; i < 10; ++i) {
      writer.write(person({{"x", Floats{static_cast<float>(i), 0.5}}, {"y", Ints{i}}}));
    }
  }
  const FeatureSpecs specs = {{"x", FixedLenFeature{FeatureType::kFloat32, {2}}},
                              {"y", FixedLenFeature{FeatureType::kInt64}}};
  const auto records = Dataset::tf_records({path("a")});
  const auto batches = records.batch(4).apply(parse_example_dataset(specs, {.parallel_calls = 2}));
  EXPECT_EQ(batches.element_spec().to_string(), "(x float32[?,2], y int64[?])");
  Ints labels;
  for (const Element& e : batches) {
    for (int64_t y : to_vector<int64_t>(e["y"].tensor())) labels.push_back(y);
  }
  EXPECT_EQ(labels, (Ints{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  const auto singles = records.apply(parse_example_dataset(specs));
  EXPECT_EQ(singles.element_spec().to_string(), "(x float32[2], y int64[])");
  EXPECT_EQ(singles.skip(9).make_iterator().next()->operator[]("y").as<int64_t>(), 9);
  EXPECT_THROW(Dataset::range(3).apply(parse_example_dataset(specs)), InvalidArgument);
}

}  // namespace
}  // namespace cohort
