// SPDX-License-Identifier: Apache-2.0
#include "workload.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>

#include "cohort/base/check.h"

namespace cohort::bench {
namespace {

constexpr std::size_t kHeaderBytes = 4096;
constexpr const char* kMagic = "cohort-workload-1";

// Dense layers of these sizes.
std::vector<Parameter> dense_parameters(const std::vector<std::int64_t>& sizes) {
  std::vector<Parameter> parameters;
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
    const std::string name = str_cat("dense", i + 1);
    parameters.push_back({name + "/kernel", {sizes[i], sizes[i + 1]}});
    parameters.push_back({name + "/bias", {sizes[i + 1]}});
  }
  return parameters;
}

// Where each part of the file lies; weights, features and labels start on a page.
struct Layout {
  std::vector<std::size_t> weights;
  std::size_t features;
  std::size_t labels;
  std::size_t end;
};

std::size_t next_page(std::size_t offset) {
  return (offset + kHeaderBytes - 1) / kHeaderBytes * kHeaderBytes;
}

Layout layout_of(const Case& c) {
  Layout layout;
  std::size_t offset = kHeaderBytes;
  for (const Parameter& parameter : model_parameters(c.model)) {
    layout.weights.push_back(offset);
    offset += parameter.size() * sizeof(float);
  }
  const std::size_t rows = Workload::kBatches * c.global_batch();
  layout.features = next_page(offset);
  layout.labels = next_page(layout.features + rows * model_features(c.model) * sizeof(float));
  layout.end = layout.labels + rows * sizeof(std::int64_t);
  return layout;
}

std::string header_of(const Case& c, const Layout& layout) {
  std::string text = str_cat(kMagic, "\nmodel ", c.model, "\nbatch ", c.batch, "\nreplicas ",
                             c.replicas, "\nbatches ", Workload::kBatches, "\nfeatures_offset ",
                             layout.features, "\nlabels_offset ", layout.labels, "\nshapes");
  for (const Parameter& parameter : model_parameters(c.model)) {
    text += " " + joined(parameter.shape, "x");
  }
  text += "\n";
  text.resize(kHeaderBytes, '\0');
  return text;
}

std::vector<std::uint8_t> read_idx(const std::string& path, std::size_t header) {
  gzFile file = gzopen(path.c_str(), "rb");
  COHORT_CHECK_STATE(file, "[step_bench] cannot open ", path,
                     ": install Debian's dataset-fashion-mnist or give --data <folder>");
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint8_t> chunk(1 << 20);
  int n = 0;
  while ((n = gzread(file, chunk.data(), chunk.size())) > 0) {
    bytes.insert(bytes.end(), chunk.begin(), chunk.begin() + n);
  }
  gzclose(file);
  COHORT_CHECK_STATE(n == 0 && bytes.size() > header, "[step_bench] ", path, " is damaged");
  bytes.erase(bytes.begin(), bytes.begin() + header);
  return bytes;
}

// Glorot uniform. The generator's raw words are scaled here, for the standard leaves the
// distributions to the library and the file should be the same everywhere.
void write_weights(const std::vector<Parameter>& parameters, std::ostream& out) {
  std::mt19937 generator(20261121);
  for (const Parameter& parameter : parameters) {
    std::vector<float> values(parameter.size(), 0.0f);
    if (parameter.shape.size() > 1) {
      const auto& shape = parameter.shape;
      const double receptive = shape.size() == 4 ? shape[0] * shape[1] : 1;
      const double fans = receptive * (shape[shape.size() - 2] + shape.back());
      const double limit = std::sqrt(6.0 / fans);
      for (float& value : values) value = limit * (generator() / 2147483648.0 - 1.0);
    }
    out.write(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
}

}  // namespace

std::string Case::name() const { return str_cat(model, ":", batch, ":", replicas); }

Case parse_case(const std::string& text) {
  std::istringstream in(text);
  Case c;
  char colon = 0;
  std::getline(in, c.model, ':');
  in >> c.batch >> colon >> c.replicas;
  COHORT_CHECK_ARG(in && in.eof() && colon == ':' && c.batch > 0 && c.replicas > 0,
                   "[step_bench] expected model:batch:replicas, got ", text);
  model_parameters(c.model);
  return c;
}

std::int64_t Parameter::size() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t model_features(const std::string& model) {
  if (model == "tiny") return 32;
  return model == "large" ? 512 : Workload::kPixels;
}

std::vector<Parameter> model_parameters(const std::string& model) {
  if (model == "mlp" || model == "mlp_fit") return dense_parameters({784, 256, 256, 10});
  if (model == "tiny") return dense_parameters({32, 64, 10});
  if (model == "large") return dense_parameters({512, 1024, 1024, 512, 100});
  COHORT_CHECK_ARG(model == "cnn",
                   "[step_bench] expected model mlp, mlp_fit, tiny, large or cnn, got ", model);
  return {{"conv1/kernel", {3, 3, 1, 32}},  {"conv1/bias", {32}},
          {"conv2/kernel", {3, 3, 32, 64}}, {"conv2/bias", {64}},
          {"dense1/kernel", {1600, 128}},   {"dense1/bias", {128}},
          {"dense2/kernel", {128, 10}},     {"dense2/bias", {10}}};
}

double product_flops(const Case& c) {
  // Multiply-adds of each layer for one row. 28x28 convolved "valid" gives 26x26 places,
  // pooled 13x13, convolved 11x11.
  std::vector<double> layers;
  if (c.model == "cnn") {
    layers = {26 * 26 * 9 * 1 * 32, 11 * 11 * 9 * 32 * 64, 1600 * 128, 1280};
  } else {
    for (const Parameter& parameter : model_parameters(c.model)) {
      if (parameter.shape.size() == 2) layers.push_back(static_cast<double>(parameter.size()));
    }
  }
  const double forward = std::accumulate(layers.begin(), layers.end(), 0.0);
  return 2.0 * c.batch * (3.0 * forward - layers.front());
}

std::string default_data_folder() { return "/usr/share/datasets/fashion-mnist"; }

Images read_fashion_mnist(const std::string& folder) {
  Images images{read_idx(folder + "/train-images-idx3-ubyte.gz", 16),
                read_idx(folder + "/train-labels-idx1-ubyte.gz", 8)};
  COHORT_CHECK_STATE(images.pixels.size() == images.labels.size() * Workload::kPixels,
                     "[step_bench] expected 784 pixels for each label in ", folder);
  return images;
}

void export_workload(const Case& c, const Images& images, const std::string& path) {
  const Layout layout = layout_of(c);
  std::ofstream out(path, std::ios::binary);
  out << header_of(c, layout);
  write_weights(model_parameters(c.model), out);

  const std::size_t rows = Workload::kBatches * c.global_batch();
  std::vector<float> row(static_cast<std::size_t>(model_features(c.model)));
  const std::size_t first = c.model == "tiny" ? Workload::kPixels / 2 : 0;
  out.seekp(layout.features);
  for (std::size_t i = 0; i < rows; ++i) {
    const std::uint8_t* pixels =
        images.pixels.data() + i % images.labels.size() * Workload::kPixels + first;
    std::transform(pixels, pixels + row.size(), row.begin(), [](auto p) { return p / 255.0f; });
    out.write(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(float));
  }
  out.seekp(layout.labels);
  for (std::size_t i = 0; i < rows; ++i) {
    const std::int64_t label = images.labels[i % images.labels.size()];
    out.write(reinterpret_cast<const char*>(&label), sizeof label);
  }
  out.close();
  COHORT_CHECK_STATE(out, "[step_bench] cannot write ", path);
}

Workload::Workload(const std::string& path) : path_(path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  COHORT_CHECK_STATE(file >= 0, "[step_bench] cannot open ", path);
  struct stat status;
  fstat(file, &status);
  size_ = status.st_size;
  void* mapping = size_ ? mmap(nullptr, size_, PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
  close(file);
  COHORT_CHECK_STATE(mapping != MAP_FAILED && size_ > kHeaderBytes, "[step_bench] cannot map ",
                     path);
  data_ = static_cast<char*>(mapping);

  std::istringstream header(std::string(data_, strnlen(data_, kHeaderBytes)));
  std::string magic, key;
  header >> magic >> key >> case_.model >> key >> case_.batch >> key >> case_.replicas;
  COHORT_CHECK_STATE(magic == kMagic, "[step_bench] ", path, " is no workload file");
  parameters_ = model_parameters(case_.model);
  const Layout layout = layout_of(case_);
  COHORT_CHECK_STATE(size_ == layout.end, "[step_bench] ", path, " is cut off");
  weight_offsets_ = layout.weights;
  features_per_row_ = model_features(case_.model);
  features_offset_ = layout.features;
  labels_offset_ = layout.labels;
}

Workload::~Workload() { munmap(data_, size_); }

const float* Workload::weights(std::size_t parameter) const {
  return reinterpret_cast<const float*>(data_ + weight_offsets_.at(parameter));
}

const float* Workload::features(std::int64_t batch_index, int replica) const {
  const std::int64_t row = batch_index % kBatches * case_.global_batch() + replica * case_.batch;
  return reinterpret_cast<const float*>(data_ + features_offset_) + row * features_per_row_;
}

const std::int64_t* Workload::labels(std::int64_t batch_index, int replica) const {
  const std::int64_t row = batch_index % kBatches * case_.global_batch() + replica * case_.batch;
  return reinterpret_cast<const std::int64_t*>(data_ + labels_offset_) + row;
}

}  // namespace cohort::bench
