// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/catalog/catalog.h"

#include <cstdlib>
#include <exception>
#include <filesystem>

#include "cohort/base/check.h"
#include "cohort/data/formats/idx/idx.h"
#include "cohort/data/pipeline/internal/nodes.h"
#include "cohort/runtime/task_thread.h"

namespace cohort::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDebianFolder = "/usr/share/datasets/fashion-mnist";
constexpr float kLargestByte = 255;

struct Source {
  std::string operation;  ///< "[fashion_mnist]"
  std::string folder;     ///< Name of the folder in COHORT_DATA.
  std::string package_folder;
  std::string hint;
};

/// The plain or the compressed file; empty if there is neither.
std::string find_file(const fs::path& directory, const std::string& name) {
  for (const std::string& candidate : {name + ".gz", name}) {
    std::error_code error;
    if (fs::is_regular_file(directory / candidate, error)) return directory / candidate;
  }
  return {};
}

std::vector<fs::path> directories(const Source& source, const CatalogOptions& options) {
  if (!options.directory.empty()) return {options.directory};
  std::vector<fs::path> out;
  if (const char* home = std::getenv("COHORT_DATA"); home != nullptr && *home != '\0') {
    out.emplace_back(fs::path(home) / source.folder);
    out.emplace_back(home);
  }
  if (!source.package_folder.empty()) out.emplace_back(source.package_folder);
  return out;
}

/// The first directory with the training images.
fs::path find_directory(const Source& source, const CatalogOptions& options) {
  std::string tried;
  for (const fs::path& directory : directories(source, options)) {
    if (!find_file(directory, "train-images-idx3-ubyte").empty()) return directory;
    tried += (tried.empty() ? "" : ", ") + directory.string();
  }
  throw Error(ErrorCode::kNotFound,
              str_cat(source.operation,
                      " expected train-images-idx3-ubyte(.gz), "
                      "train-labels-idx1-ubyte(.gz), t10k-images-idx3-ubyte(.gz) and "
                      "t10k-labels-idx1-ubyte(.gz) in ",
                      tried.empty() ? "CatalogOptions::directory or $COHORT_DATA" : tried,
                      ", found none; ", source.hint));
}

Dataset load(const Source& source, const fs::path& directory, const std::string& part,
             bool flatten) {
  auto read = [&](const std::string& name, std::size_t rank) {
    const std::string path = find_file(directory, name);
    if (path.empty()) {
      throw Error(ErrorCode::kNotFound, str_cat(source.operation, " expected ", name, "(.gz) in ",
                                                directory.string(), ", found none; ", source.hint));
    }
    Tensor t = read_idx(path);
    if (t.scalar_type() != kUint8 || shape_of(t).size() != rank) {
      throw DataLoss(str_cat(source.operation, " ", path, ": expected uint8 of rank ", rank,
                             ", got ", dtype_name(t.scalar_type()), bracketed(shape_of(t))));
    }
    return t;
  };
  Tensor images = read(part + "-images-idx3-ubyte", 3);
  const Tensor labels = read(part + "-labels-idx1-ubyte", 1);
  if (images.size(0) != labels.size(0)) {
    throw DataLoss(str_cat(source.operation, " ", directory.string(), ": expected one label per ",
                           part, " image, got ", labels.size(0), " for ", images.size(0)));
  }
  if (flatten) images = images.view({images.size(0), images.size(1) * images.size(2)});
  auto rows = internal::data::make_tensor_rows({images, labels.to(kInt64)}, {kLargestByte});
  return Dataset(internal::data::make_rows_node(source.folder, std::move(rows)));
}

/// Both parts at once: unpacking takes most of the time.
TrainTest load_both(const Source& source, const CatalogOptions& options) {
  const fs::path directory = find_directory(source, options);
  std::optional<Dataset> test;
  std::exception_ptr error;
  internal::runtime::TaskThread reader("load-test", [&](const std::stop_token&) {
    try {
      test = load(source, directory, "t10k", options.flatten);
    } catch (...) {
      error = std::current_exception();
    }
  });
  Dataset train = load(source, directory, "train", options.flatten);
  reader.join();
  if (error) std::rethrow_exception(error);
  return {std::move(train), std::move(*test)};
}

}  // namespace

TrainTest fashion_mnist(CatalogOptions options) {
  return load_both({"[fashion_mnist]", "fashion-mnist", kDebianFolder,
                    "install Debian's package dataset-fashion-mnist (apt-get install "
                    "dataset-fashion-mnist), or set COHORT_DATA or CatalogOptions::directory"},
                   options);
}

TrainTest mnist(CatalogOptions options) {
  return load_both({"[mnist]", "mnist", "",
                    "put the four files there, or set COHORT_DATA or CatalogOptions::directory"},
                   options);
}

}  // namespace cohort::data
