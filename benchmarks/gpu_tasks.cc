// SPDX-License-Identifier: Apache-2.0
#include "gpu_tasks.h"

#include <filesystem>
#include <fstream>

#include "cohort/base/check.h"
#include "cohort/data/formats/npy/npy.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/utils.h"
#include "cohort/runtime/random.h"
#include "keras_tasks.h"

namespace cohort::bench {
namespace {

using keras::KerasTensor;
using Model = std::shared_ptr<keras::Model>;

constexpr std::int64_t kFields = 26;
constexpr std::int64_t kNumbers = 13;

// Sizes of a task's model, as it is and as it is tried on a CPU.
struct Sizes {
  std::int64_t image, width, classes, blocks, steps, heads, table;
};
Sizes sizes(bool tiny) {
  return tiny ? Sizes{32, 8, 10, 1, 16, 4, 1000} : Sizes{224, 64, 1000, 0, 128, 8, 1'000'000};
}
std::int64_t transformer_width(bool tiny) { return tiny ? 64 : 512; }
std::int64_t transformer_depth(bool tiny) { return tiny ? 2 : 4; }

// Logits are float32, as Keras's guide to mixed precision has it.
KerasTensor logits(const KerasTensor& x, std::int64_t classes) {
  return keras::Dense(classes, {.dtype = kFloat32, .name = "dense"})(x);
}

KerasTensor normalized(const KerasTensor& x, std::int64_t filters, int size, int stride,
                       const std::string& name, const std::string& padding = "same") {
  const KerasTensor y = keras::Conv2D(
      filters, size,
      {.strides = stride, .padding = padding, .use_bias = false, .name = name + "_conv"})(x);
  return keras::BatchNormalization({.name = name + "_bn"})(y);
}

KerasTensor relu(const KerasTensor& x) { return keras::ReLU()(x); }

KerasTensor bottleneck(const KerasTensor& x, std::int64_t filters, int stride, bool widens,
                       const std::string& name) {
  KerasTensor y = relu(normalized(x, filters, 1, stride, name + "_1"));
  y = relu(normalized(y, filters, 3, 1, name + "_2"));
  y = normalized(y, 4 * filters, 1, 1, name + "_3");
  const KerasTensor skip = widens ? normalized(x, 4 * filters, 1, stride, name + "_skip") : x;
  return relu(keras::Add()({y, skip}));
}

// That of keras.applications: strides are in the first convolution of a block, of one pixel.
Model resnet50(bool tiny) {
  const Sizes size = sizes(tiny);
  const KerasTensor image = keras::Input({size.image, size.image, 3});
  KerasTensor x = keras::ZeroPadding2D(3)(image);
  x = relu(normalized(x, size.width, 7, 2, "stem", "valid"));
  x = keras::MaxPooling2D(3, {.strides = 2})(keras::ZeroPadding2D(1)(x));
  const std::vector<std::int64_t> blocks = {3, 4, 6, 3};
  for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
    const std::int64_t count = size.blocks > 0 ? size.blocks : blocks[stage];
    for (std::int64_t block = 0; block < count; ++block) {
      x = bottleneck(x, size.width << stage, stage > 0 && block == 0 ? 2 : 1, block == 0,
                     str_cat("s", stage, "b", block));
    }
  }
  x = keras::GlobalAveragePooling2D()(x);
  return std::make_shared<keras::Model>(image, logits(x, size.classes));
}

KerasTensor encoder_block(const KerasTensor& x, bool tiny, const std::string& name) {
  const std::int64_t width = transformer_width(tiny);
  const std::int64_t heads = sizes(tiny).heads;
  const KerasTensor seen =
      keras::MultiHeadAttention(heads, width / heads, {.name = name + "_seen"})({x, x});
  const KerasTensor a =
      keras::LayerNormalization({.name = name + "_norm1"})(keras::Add()({x, seen}));
  KerasTensor y = keras::Dense(4 * width, {.activation = "relu", .name = name + "_wide"})(a);
  y = keras::Dense(width, {.name = name + "_narrow"})(y);
  return keras::LayerNormalization({.name = name + "_norm2"})(keras::Add()({a, y}));
}

Model encoder(bool tiny) {
  const KerasTensor in = keras::Input({sizes(tiny).steps, transformer_width(tiny)});
  KerasTensor x = in;
  for (std::int64_t i = 0; i < transformer_depth(tiny); ++i) {
    x = encoder_block(x, tiny, str_cat("b", i));
  }
  x = keras::GlobalAveragePooling1D()(x);
  return std::make_shared<keras::Model>(in, logits(x, 10));
}

Model wide_deep(bool tiny) {
  const std::int64_t table = sizes(tiny).table;
  const KerasTensor ids = keras::Input({kFields}, {.dtype = kInt64, .name = "ids"});
  const KerasTensor numbers = keras::Input({kNumbers}, {.name = "numbers"});
  KerasTensor deep = keras::Flatten()(keras::Embedding(table, 32, {.name = "deep"})(ids));
  deep = keras::Concatenate()({deep, numbers});
  deep = keras::Dense(256, {.activation = "relu", .name = "dense_a"})(deep);
  deep = keras::Dense(128, {.activation = "relu", .name = "dense_b"})(deep);
  const KerasTensor wide = keras::Flatten()(keras::Embedding(table, 1, {.name = "wide"})(ids));
  return std::make_shared<keras::Model>(KerasTensor{ids, numbers},
                                        logits(keras::Concatenate()({deep, wide}), 2));
}

Model make_model(const GpuTask& task) {
  Model model = task.model == "resnet50"      ? resnet50(task.tiny)
                : task.model == "transformer" ? encoder(task.tiny)
                : task.model == "wide_deep"   ? wide_deep(task.tiny)
                                              : layers_of(task.model);
  const keras::SparseCategoricalCrossentropy loss({.from_logits = true});
  if (task.optimizer == "sgd") {
    model->compile(
        {.optimizer = keras::SGD({.learning_rate = task.learning_rate, .momentum = task.momentum}),
         .loss = loss});
  } else {
    // The frameworks apply epsilon on different sides of the bias correction; so small a one makes
    // no difference.
    model->compile(
        {.optimizer = keras::Adam({.learning_rate = task.learning_rate, .epsilon = 1e-12}),
         .loss = loss});
  }
  return model;
}

std::vector<Tensor> make_inputs(const GpuTask& task, std::int64_t rows) {
  const Sizes size = sizes(task.tiny);
  if (task.model == "mlp") return {random_uniform({rows, 784})};
  if (task.model == "cnn") return {random_uniform({rows, 28, 28, 1})};
  if (task.model == "resnet50") return {random_normal({rows, size.image, size.image, 3})};
  if (task.model == "transformer") {
    return {random_normal({rows, size.steps, transformer_width(task.tiny)})};
  }
  return {random_below(size.table, {rows, kFields}), random_normal({rows, kNumbers})};
}

std::int64_t classes(const GpuTask& task) {
  return task.model == "wide_deep" ? 2 : task.model == "resnet50" ? sizes(task.tiny).classes : 10;
}

std::string input_file(const std::string& folder, std::size_t i) {
  return str_cat(folder, "/x", i, ".npy");
}

}  // namespace

std::vector<GpuTask> gpu_tasks(bool tiny) {
  const auto transformer = [](const char* name, const char* precision, double tolerance) {
    return GpuTask{.name = name,
                   .model = "transformer",
                   .batches = 4,
                   .precision = precision,
                   .learning_rate = 1e-4,
                   .tolerance = tolerance};
  };
  const auto resnet = [](const char* name, const char* precision, double tolerance) {
    return GpuTask{.name = name,
                   .model = "resnet50",
                   .batch = 128,
                   .batches = 2,
                   .precision = precision,
                   .optimizer = "sgd",
                   .learning_rate = 1e-3,
                   .momentum = 0.9,
                   .tolerance = tolerance};
  };
  std::vector<GpuTask> all = {{.name = "mlp:32", .model = "mlp"},
                              {.name = "mlp:256", .model = "mlp", .batch = 256},
                              {.name = "cnn", .model = "cnn", .batch = 256},
                              resnet("resnet50", "bf16", 3e-2),
                              transformer("transformer_bf16", "bf16", 3e-2),
                              {.name = "wide_deep",
                               .model = "wide_deep",
                               .batch = 4096,
                               .optimizer = "sgd",
                               .learning_rate = 1e-2},
                              transformer("transformer_tf32", "tf32", 1e-2),
                              transformer("transformer_f32", "float32", 1e-3),
                              resnet("resnet50_f32", "float32", 1e-3)};
  for (GpuTask& task : all) {
    task.tiny = tiny;
    if (tiny) task.batch = std::min<std::int64_t>(task.batch, 8);
  }
  return all;
}

GpuTask find_gpu_task(const std::string& name, bool tiny) {
  std::string names;
  for (GpuTask& task : gpu_tasks(tiny)) {
    if (task.name == name) return task;
    names += (names.empty() ? "" : ", ") + task.name;
  }
  throw InvalidArgument(str_cat("[gpu_bench] expected a task of ", names, ", got ", name));
}

void write_gpu_task(const GpuTask& task, const std::string& folder) {
  std::filesystem::create_directories(folder + "/weights");
  set_seed(20261126);
  const std::int64_t rows = task.batches * task.batch;
  const std::vector<Tensor> inputs = make_inputs(task, rows);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    data::write_npy(input_file(folder, i), inputs[i]);
  }
  data::write_npy(folder + "/y.npy", random_below(classes(task), {rows}));
  const PolicyScope policy(task.precision == "bf16");
  const Model model = make_model(task);
  model->save(folder + "/model.keras");
  write_weights(*model, folder + "/weights/");
  std::ofstream out(folder + "/case.txt");
  out.precision(17);
  out << "model " << task.model << "\nbatch " << task.batch << "\nreplicas 1\nbatches "
      << task.batches << "\ninputs " << inputs.size() << "\nprecision " << task.precision
      << "\noptimizer " << task.optimizer << "\nlearning_rate " << task.learning_rate
      << "\nmomentum " << task.momentum << '\n';
  COHORT_CHECK_STATE(out, "[gpu_bench] cannot write into ", folder);
}

GpuTaskFiles::GpuTaskFiles(const std::string& folder) : model_file(folder + "/model.keras") {
  std::ifstream in(folder + "/case.txt");
  std::string key, word;
  std::size_t count = 0;
  in >> key >> word >> key >> batch >> key >> word >> key >> batches >> key >> count >> key >>
      precision;
  COHORT_CHECK_STATE(in, "[gpu_bench] ", folder, " has no task");
  for (std::size_t i = 0; i < count; ++i) {
    const Tensor rows = data::read_npy(input_file(folder, i));
    inputs.push_back(rows.scalar_type() == kInt32 ? rows.to(kInt64) : rows);
  }
  labels = data::read_npy(folder + "/y.npy").to(kInt64);
}

Tensor GpuTaskFiles::batch_of(const Tensor& whole, std::int64_t i) const {
  return whole.narrow(0, i * batch, batch);
}

Dataset GpuTaskFiles::rows() const {
  std::vector<Element> parts(inputs.begin(), inputs.end());
  Element x = parts.size() == 1 ? parts[0] : Element::tuple(std::move(parts));
  return Dataset::from_tensor_slices(Element{std::move(x), labels});
}

}  // namespace cohort::bench
