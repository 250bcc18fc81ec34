// SPDX-License-Identifier: Apache-2.0
//
// ONNX files byte by byte, without ONNX: tests/interop has onnxruntime run them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "cohort/keras/layers/layers.h"
#include "cohort/keras/onnx/protobuf.h"
#include "cohort/keras/sequential.h"
#include "cohort/runtime/random.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using internal::onnx::Message;

// A message as it is read: texts and messages by field, numbers as text.
class Fields {
 public:
  explicit Fields(std::string_view bytes) {
    while (!bytes.empty()) {
      const uint64_t key = varint(bytes);
      std::vector<std::string>& values = values_[static_cast<int>(key >> 3)];
      const uint64_t way = key & 7;
      if (way == 0) {
        values.push_back(std::to_string(static_cast<int64_t>(varint(bytes))));
      } else {
        const uint64_t size = way == 5 ? 4 : varint(bytes);
        EXPECT_TRUE(way == 2 || way == 5) << way;
        EXPECT_LE(size, bytes.size());
        values.emplace_back(bytes.substr(0, size));
        bytes.remove_prefix(std::min<std::size_t>(size, bytes.size()));
      }
    }
  }
  std::vector<std::string> all(int field) const {
    const auto found = values_.find(field);
    return found == values_.end() ? std::vector<std::string>() : found->second;
  }
  std::string one(int field) const {
    EXPECT_EQ(all(field).size(), 1U) << field;
    return all(field).empty() ? std::string() : all(field)[0];
  }
  Fields part(int field) const { return Fields(one(field)); }

 private:
  static uint64_t varint(std::string_view& bytes) {
    uint64_t value = 0;
    for (int shift = 0; !bytes.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes.front());
      bytes.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    ADD_FAILURE() << "a number without end";
    return value;
  }
  std::map<int, std::vector<std::string>> values_;
};

Fields exported(const Model& model) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("onnx_" + std::to_string(getpid()) + ".onnx"))
          .string();
  model.export_to(path);
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::filesystem::remove(path);
  return Fields(bytes);
}

std::vector<std::string> operators(const Fields& graph) {
  std::vector<std::string> names;
  for (const std::string& node : graph.all(1)) names.push_back(Fields(node).one(4));
  return names;
}

std::string bytes_of(const Tensor& value) {
  return {static_cast<const char*>(value.const_data_ptr()), value.nbytes()};
}

// Numbers of the specification of Protocol Buffers.
TEST(Protobuf, WritesFieldsAsTheyLieInFiles) {
  EXPECT_EQ(Message().integer(1, 150).bytes(), "\x08\x96\x01");
  EXPECT_EQ(Message().text(2, "testing").bytes(), "\x12\x07testing");
  EXPECT_EQ(Message().message(3, Message().integer(1, 150)).bytes(), "\x1a\x03\x08\x96\x01");
  EXPECT_EQ(Message().integer(1, -2).bytes(), "\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01");
  EXPECT_EQ(Message().real(2, 1.0F).bytes(), std::string("\x15\x00\x00\x80\x3f", 5));
}

TEST(Onnx, IsAModelOfNodesConstantsInputsAndOutputs) {
  Sequential model({InputLayer({3}, {.name = "features"}),
                    Dense(4, {.activation = "tanh", .name = "hidden"}), Dropout(0.5),
                    Dense(2, {.use_bias = false, .name = "scores"})});
  const Fields file = exported(model);
  EXPECT_EQ(file.one(1), "8");
  EXPECT_EQ(file.part(8).one(2), "18");
  const Fields graph = file.part(7);
  EXPECT_EQ(operators(graph), (std::vector<std::string>{"Gemm", "Tanh", "MatMul", "Identity"}));
  const Fields input = graph.part(11), type = input.part(2).part(1);
  EXPECT_EQ(input.one(1), "features");
  EXPECT_EQ(type.one(1), "1");
  const std::vector<std::string> sizes = type.part(2).all(1);
  ASSERT_EQ(sizes.size(), 2U);
  EXPECT_EQ(Fields(sizes[0]).one(2), "batch");
  EXPECT_EQ(Fields(sizes[1]).one(1), "3");
  EXPECT_EQ(graph.part(12).one(1), "scores");
  const std::vector<std::string> constants = graph.all(5);
  const auto weights = model.variables();
  ASSERT_EQ(constants.size(), weights.size());
  for (std::size_t i = 0; i < constants.size(); ++i) {
    EXPECT_EQ(Fields(constants[i]).one(9), bytes_of(weights[i].value())) << weights[i].name();
  }
}

TEST(Onnx, HasWhatSeveralCallsUseOnce) {
  const KerasTensor a = Input({3}, {.name = "a"}), b = Input({3}, {.name = "b"});
  const Dense shared(3, {.name = "shared"});
  const Model model({a, b}, {shared(a), Add()({shared(shared(b)), a})});
  const Fields graph = exported(model).part(7);
  EXPECT_EQ(operators(graph),
            (std::vector<std::string>{"Gemm", "Gemm", "Gemm", "Sum", "Identity", "Identity"}));
  EXPECT_EQ(graph.all(5).size(), 2U);
  EXPECT_EQ(graph.all(11).size(), 2U);
  EXPECT_EQ(graph.all(12).size(), 2U);
}

TEST(Onnx, RunsRecurrentCellsInTheBodyOfAScan) {
  const Sequential model({InputLayer({5, 3}), LSTM(4), Dense(1)});
  const Fields graph = exported(model).part(7);
  const std::vector<std::string> names = operators(graph);
  const auto scan = std::ranges::find(names, "Scan");
  ASSERT_NE(scan, names.end());
  const Fields node(graph.all(1)[static_cast<std::size_t>(scan - names.begin())]);
  EXPECT_EQ(node.all(1).size(), 3U);  // two states and the steps
  EXPECT_EQ(node.all(2).size(), 3U);
  bool has_body = false;
  for (const std::string& attribute : node.all(5)) {
    const Fields fields(attribute);
    if (fields.one(1) != "body") continue;
    has_body = true;
    EXPECT_EQ(fields.part(6).all(11).size(), 3U);
    EXPECT_EQ(fields.part(6).all(12).size(), 3U);
  }
  EXPECT_TRUE(has_body);
}

TEST(Onnx, IsTheSameUnderAllStrategies) {
  const auto kernel = [] {
    set_seed(7);
    Sequential model({InputLayer({3}), Dense(2)});
    return Fields(exported(model).part(7).all(5)[0]).one(9);
  };
  const std::string alone = kernel();
  const MirroredStrategy strategy(std::vector<Device>{"CPU:0", "CPU:1"});
  const Scope scope = strategy.scope();
  EXPECT_EQ(kernel(), alone);
}

struct OwnDense : LayerBase {
  Tensor call(const Tensor& x, const CallArgs&) override { return x * 2; }
  std::string class_name() const override { return "Dense"; }
};

TEST(Onnx, SaysWhichLayerIsNotWritten) {
  const auto refuses = [](std::vector<std::string> parts, std::vector<Layer> layers) {
    layers.insert(layers.begin(), InputLayer({8, 8, 3}));
    const Sequential model(layers);
    testing::expect_error<Unimplemented>({"export_to", parts[0], parts[1]},
                                         [&] { model.export_to("m.onnx"); });
  };
  refuses({"AutoContrast", "\"even\""}, {AutoContrast({.name = "even"})});
  refuses({"Dense", "\"own\""}, {[] {
            const auto layer = std::make_shared<OwnDense>();
            layer->set_name("own");
            return Layer(layer);
          }()});
  refuses({"mixed_bfloat16", "\"narrow\""},
          {Dense(2, {.dtype = "mixed_bfloat16", .name = "narrow"})});
  refuses({"sparsemax", "\"sparse\""}, {Dense(2, {.activation = "sparsemax", .name = "sparse"})});
  EXPECT_FALSE(std::filesystem::exists("m.onnx"));
}

}  // namespace
}  // namespace cohort::keras
