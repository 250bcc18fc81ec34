// SPDX-License-Identifier: Apache-2.0
//
// Well-known datasets.
//
//   auto [train, test] = data::fashion_mnist({.flatten = true});
#pragma once

#include <string>

#include "cohort/data/dataset.h"

namespace cohort::data {

struct CatalogOptions {
  /// Where the four IDX files are (`train-images-idx3-ubyte`, ..., with or without .gz). Empty: the
  /// folder `fashion-mnist` (`mnist`) in the environment variable COHORT_DATA, or COHORT_DATA
  /// itself, then, for Fashion-MNIST, where Debian's package dataset-fashion-mnist puts them.
  std::string directory = {};
  bool flatten = false;  ///< Images as [784].
};

struct TrainTest {
  Dataset train;
  Dataset test;
};

/// 60,000 and 10,000 images of clothes in ten classes: (x float32[28,28] in [0, 1], y int64[]).
/// Cost: images stay uint8 in memory and are converted when a batch is gathered.
/// Errors: Error kNotFound that names the files and the package; DataLoss for damaged files.
/// TF: keras.datasets.fashion_mnist.load_data, which gives uint8 in [0, 255].
TrainTest fashion_mnist(CatalogOptions options = {});

/// The same of handwritten digits; there is no package for it, so `directory` or COHORT_DATA says
/// where the files are.
TrainTest mnist(CatalogOptions options = {});

}  // namespace cohort::data
