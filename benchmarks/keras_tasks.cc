// SPDX-License-Identifier: Apache-2.0
#include "keras_tasks.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cohort/base/check.h"
#include "cohort/data/formats/npy/npy.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/sequential.h"
#include "cohort/keras/utils.h"
#include "cohort/runtime/random.h"

namespace cohort::bench {
namespace {

namespace fs = std::filesystem;
using keras::KerasTensor;
using Model = std::shared_ptr<keras::Model>;

constexpr std::int64_t kWords = 2000;
constexpr std::int64_t kSteps = 40;
constexpr std::int64_t kTableRows = 10000;
constexpr std::int64_t kFields = 26;

std::string base_of(const std::string& model) { return model.substr(0, model.find("_bf16")); }

Model mlp() {
  return std::make_shared<keras::Sequential>(std::vector<keras::Layer>{
      keras::InputLayer({784}), keras::Dense(256, {.activation = "relu", .name = "dense_a"}),
      keras::Dense(256, {.activation = "relu", .name = "dense_b"}),
      keras::Dense(10, {.name = "dense_c"})});
}

KerasTensor normalized(const KerasTensor& x, std::int64_t filters, int size, int stride,
                       const std::string& name) {
  const KerasTensor y = keras::Conv2D(
      filters, size,
      {.strides = stride, .padding = "same", .use_bias = false, .name = name + "_conv"})(x);
  return keras::BatchNormalization({.name = name + "_bn"})(y);
}

KerasTensor relu(const KerasTensor& x) { return keras::ReLU()(x); }

Model cnn() {
  const KerasTensor image = keras::Input({28, 28, 1});
  KerasTensor x = relu(normalized(image, 32, 3, 1, "a"));
  x = relu(normalized(keras::MaxPooling2D()(x), 64, 3, 1, "b"));
  x = keras::Flatten()(keras::MaxPooling2D()(x));
  return std::make_shared<keras::Model>(image, keras::Dense(10, {.name = "dense"})(x));
}

KerasTensor residual_block(const KerasTensor& x, std::int64_t filters, int stride,
                           const std::string& name) {
  KerasTensor y = relu(normalized(x, filters, 3, stride, name + "_1"));
  y = normalized(y, filters, 3, 1, name + "_2");
  const KerasTensor skip = stride == 1 ? x : normalized(x, filters, 1, stride, name + "_skip");
  return relu(keras::Add()({y, skip}));
}

Model resnet20() {
  const KerasTensor image = keras::Input({32, 32, 3});
  KerasTensor x = relu(normalized(image, 16, 3, 1, "stem"));
  for (int stage = 0; stage < 3; ++stage) {
    for (int block = 0; block < 3; ++block) {
      x = residual_block(x, std::int64_t{16} << stage, stage > 0 && block == 0 ? 2 : 1,
                         str_cat("s", stage, "b", block));
    }
  }
  x = keras::GlobalAveragePooling2D()(x);
  return std::make_shared<keras::Model>(image, keras::Dense(10, {.name = "dense"})(x));
}

Model lstm() {
  const KerasTensor words = keras::Input({kSteps}, {.dtype = kInt32});
  KerasTensor x = keras::Embedding(kWords, 64, {.name = "words"})(words);
  x = keras::LSTM(64, {.name = "lstm"})(x);
  return std::make_shared<keras::Model>(words, keras::Dense(2, {.name = "dense"})(x));
}

KerasTensor transformer_block(const KerasTensor& x, const std::string& name) {
  const KerasTensor seen = keras::MultiHeadAttention(4, 16, {.name = name + "_seen"})({x, x});
  const KerasTensor a =
      keras::LayerNormalization({.name = name + "_norm1"})(keras::Add()({x, seen}));
  KerasTensor y = keras::Dense(256, {.activation = "relu", .name = name + "_wide"})(a);
  y = keras::Dense(64, {.name = name + "_narrow"})(y);
  return keras::LayerNormalization({.name = name + "_norm2"})(keras::Add()({a, y}));
}

Model transformer() {
  const KerasTensor words = keras::Input({kSteps}, {.dtype = kInt32});
  KerasTensor x = keras::Embedding(kWords, 64, {.name = "words"})(words);
  x = transformer_block(transformer_block(x, "a"), "b");
  x = keras::GlobalAveragePooling1D()(x);
  return std::make_shared<keras::Model>(words, keras::Dense(2, {.name = "dense"})(x));
}

Model wide_deep() {
  const KerasTensor ids = keras::Input({kFields}, {.dtype = kInt32, .name = "ids"});
  const KerasTensor numbers = keras::Input({13}, {.name = "numbers"});
  KerasTensor deep = keras::Flatten()(keras::Embedding(kTableRows, 16, {.name = "deep"})(ids));
  deep = keras::Concatenate()({deep, numbers});
  deep = keras::Dense(64, {.activation = "relu", .name = "dense_a"})(deep);
  deep = keras::Dense(32, {.activation = "relu", .name = "dense_b"})(deep);
  const KerasTensor wide = keras::Flatten()(keras::Embedding(kTableRows, 1, {.name = "wide"})(ids));
  const KerasTensor parts = keras::Concatenate()({deep, wide});
  return std::make_shared<keras::Model>(KerasTensor{ids, numbers},
                                        keras::Dense(2, {.name = "dense_c"})(parts));
}

Model make_model(const std::string& name) {
  const std::string base = base_of(name);
  Model model = layers_of(base);
  const keras::SparseCategoricalCrossentropy loss({.from_logits = true});
  if (base == "resnet20") {
    // As it is trained; and Adam's first steps are of one size whatever the gradient is, so that
    // twenty normalised layers make different losses of what frameworks round differently.
    model->compile(
        {.optimizer = keras::SGD({.learning_rate = 0.001, .momentum = 0.9}), .loss = loss});
  } else {
    // The frameworks apply epsilon on different sides of the bias correction; so small a one makes
    // no difference.
    model->compile({.optimizer = keras::Adam({.epsilon = 1e-12}), .loss = loss});
  }
  return model;
}

std::vector<Tensor> make_inputs(const std::string& model, std::int64_t rows) {
  const std::string base = base_of(model);
  if (base == "mlp") return {random_uniform({rows, 784})};
  if (base == "cnn") return {random_uniform({rows, 28, 28, 1})};
  if (base == "resnet20") return {random_uniform({rows, 32, 32, 3})};
  if (base == "wide_deep") {
    return {random_below(kTableRows, {rows, kFields}), random_normal({rows, 13})};
  }
  return {random_below(kWords, {rows, kSteps})};
}

std::string input_file(const std::string& folder, std::size_t i) {
  return str_cat(folder, "/x", i, ".npy");
}

}  // namespace

std::shared_ptr<keras::Model> layers_of(const std::string& model) {
  return model == "mlp"           ? mlp()
         : model == "cnn"         ? cnn()
         : model == "resnet20"    ? resnet20()
         : model == "lstm"        ? lstm()
         : model == "transformer" ? transformer()
                                  : wide_deep();
}

Tensor random_below(std::int64_t end, const Shape& shape) {
  return (random_uniform(shape) * static_cast<double>(end)).to(kInt32).clamp_max(end - 1);
}

// "a_seen.query.kernel.npy": the layer's name before the weight's, which may lack it.
void write_weights(const keras::Model& model, const std::string& folder) {
  for (const keras::Layer& layer : model.layers()) {
    const std::string prefix = layer.name() + "/";
    for (const Variable& weight : layer.variables()) {
      std::string name = weight.name().starts_with(prefix) ? weight.name() : prefix + weight.name();
      std::replace(name.begin(), name.end(), '/', '.');
      data::write_npy(folder + name + ".npy", weight.value());
    }
  }
}

PolicyScope::PolicyScope(bool mixed) {
  keras::set_dtype_policy(mixed ? "mixed_bfloat16" : keras::DTypePolicy());
}
PolicyScope::~PolicyScope() { keras::set_dtype_policy(keras::DTypePolicy()); }

std::string KerasCase::name() const { return str_cat(model, ":", batch, ":", replicas); }

const std::vector<std::string>& keras_models() {
  static const std::vector<std::string> all = {
      "mlp", "cnn", "resnet20", "lstm", "transformer", "wide_deep", "mlp_bf16", "transformer_bf16"};
  return all;
}

KerasCase parse_keras_case(const std::string& text) {
  std::istringstream in(text);
  KerasCase c;
  char colon = 0;
  std::getline(in, c.model, ':');
  in >> c.batch >> colon >> c.replicas;
  const auto& models = keras_models();
  const bool known = std::find(models.begin(), models.end(), c.model) != models.end();
  std::string names;
  for (const std::string& model : models) names += (names.empty() ? "" : ", ") + model;
  COHORT_CHECK_ARG(in && in.eof() && colon == ':' && c.batch > 0 && c.replicas > 0 && known,
                   "[keras_bench] expected model:batch:replicas with a model of ", names, ", got ",
                   text);
  return c;
}

void write_task(const KerasCase& c, const std::string& folder) {
  fs::create_directories(folder + "/weights");
  set_seed(20261123);
  const std::int64_t rows = kTaskBatches * c.global_batch();
  const std::vector<Tensor> inputs = make_inputs(c.model, rows);
  for (std::size_t i = 0; i < inputs.size(); ++i) data::write_npy(input_file(folder, i), inputs[i]);
  const std::int64_t classes = inputs[0].scalar_type() == kFloat32 ? 10 : 2;
  data::write_npy(folder + "/y.npy", random_below(classes, {rows}));

  const PolicyScope policy(c.model != base_of(c.model));
  const Model model = make_model(c.model);
  model->save(folder + "/model.keras");
  write_weights(*model, folder + "/weights/");
  std::ofstream out(folder + "/case.txt");
  out << "model " << c.model << "\nbatch " << c.batch << "\nreplicas " << c.replicas << "\nbatches "
      << kTaskBatches << "\ninputs " << inputs.size() << '\n';
  COHORT_CHECK_STATE(out, "[keras_bench] cannot write into ", folder);
}

KerasTask::KerasTask(const std::string& folder) : model_file(folder + "/model.keras") {
  std::ifstream in(folder + "/case.txt");
  std::string key;
  std::int64_t batches = 0;
  std::size_t count = 0;
  in >> key >> benchmark_case.model >> key >> benchmark_case.batch >> key >>
      benchmark_case.replicas >> key >> batches >> key >> count;
  COHORT_CHECK_STATE(in, "[keras_bench] ", folder, " has no task");
  for (std::size_t i = 0; i < count; ++i) inputs.push_back(data::read_npy(input_file(folder, i)));
  labels = data::read_npy(folder + "/y.npy");
}

Dataset KerasTask::rows() const {
  std::vector<Element> parts(inputs.begin(), inputs.end());
  Element x = parts.size() == 1 ? parts[0] : Element::tuple(std::move(parts));
  return Dataset::from_tensor_slices(Element{std::move(x), labels});
}

}  // namespace cohort::bench
