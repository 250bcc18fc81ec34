// SPDX-License-Identifier: Apache-2.0
//
// What every contender of step_bench trains: the model, its initial weights and the batches.
// They are written to one file, so that all contenders do the same work in the same order:
//
//   export_workload({"mlp", 32, 1}, read_fashion_mnist(default_data_folder()), path);
//   Workload workload(path);   // here; peers/peer.py reads the same file
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cohort::bench {

/// One row of the benchmark: what is trained, how many rows a replica sees, how many replicas.
struct Case {
  /// "mlp" 784-256-256-10, "tiny" 32-64-10, "large" 512-1024-1024-512-100, all dense with ReLU;
  /// "cnn"; "mlp_fit" (the mlp through the Keras-style `fit`).
  std::string model;
  std::int64_t batch = 32;
  int replicas = 1;

  std::int64_t global_batch() const { return batch * replicas; }
  std::string name() const;  ///< "mlp:32:1", as --cases writes it
};

/// "3x3x1x32", "0,1": numbers with a separator between them.
template <class Numbers>
std::string joined(const Numbers& numbers, const std::string& separator) {
  std::string text;
  for (const auto number : numbers)
    text += (text.empty() ? "" : separator) + std::to_string(number);
  return text;
}

/// Reads "model:batch:replicas". Errors: InvalidArgument.
Case parse_case(const std::string& text);

/// A weight in Keras's layout: Dense (in, out), Conv2D (height, width, in, out), bias (out).
/// Shapes: the rows of the first Dense after Flatten are in (height, width, channel) order.
struct Parameter {
  std::string name;
  std::vector<std::int64_t> shape;

  std::int64_t size() const;
};

/// How many numbers a row has: the first pixels of an image, from its middle on for "tiny", whose
/// first rows are mostly dark.
std::int64_t model_features(const std::string& model);

/// The weights of a model in creation order. Errors: InvalidArgument for an unknown model.
std::vector<Parameter> model_parameters(const std::string& model);

/// Floating-point operations of the products (matrix products, convolutions) that one replica's
/// step cannot avoid: forward, gradient by weights, gradient by inputs (not of the first layer).
double product_flops(const Case& c);

/// Fashion-MNIST's training half: rows of 784 bytes, one label each.
struct Images {
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;
};

/// Where Debian's dataset-fashion-mnist puts its files.
std::string default_data_folder();

/// Reads the gzipped IDX files. Errors: FailedPrecondition, with the package's name.
Images read_fashion_mnist(const std::string& folder);

/// Writes initial weights (Glorot uniform from a fixed seed, biases zero) and the batches.
/// Units: pixels are divided by 255.
void export_workload(const Case& c, const Images& images, const std::string& path);

/// A workload file, mapped. Threads: immutable. Owns: the mapping that its pointers lead into.
class Workload {
 public:
  static constexpr std::int64_t kPixels = 784;
  static constexpr std::int64_t kBatches = 100;

  explicit Workload(const std::string& path);
  ~Workload();
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  const std::string& path() const { return path_; }
  const Case& benchmark_case() const { return case_; }
  std::int64_t features_per_row() const { return features_per_row_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const float* weights(std::size_t parameter) const;

  /// Rows of one replica in one batch: batch index modulo kBatches, replica r's rows contiguous.
  const float* features(std::int64_t batch_index, int replica) const;
  const std::int64_t* labels(std::int64_t batch_index, int replica) const;

 private:
  std::string path_;
  Case case_;
  std::vector<Parameter> parameters_;
  std::vector<std::size_t> weight_offsets_;
  std::int64_t features_per_row_ = 0;
  std::size_t features_offset_ = 0;
  std::size_t labels_offset_ = 0;
  char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace cohort::bench
