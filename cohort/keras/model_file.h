// SPDX-License-Identifier: Apache-2.0
//
// Files of models and of their weights; internal.
//
// Weights are kept by the paths of LayerBase::weight_groups(), in Keras's layout: the weights of
// the layer at "layers/dense_1" are the arrays "layers/dense_1/vars/0", "layers/dense_1/vars/1",
// ..., the optimizer's state is "optimizer/vars/0", ... A .keras file is an archive of such a file,
// the model as JSON, and which Keras wrote it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/archive/hdf5_file.h"
#include "cohort/archive/zip_file.h"
#include "cohort/keras/layer.h"

namespace cohort::keras {
class Model;
}  // namespace cohort::keras

namespace cohort::keras::internal {

enum class ModelFile {
  kSafetensors,  ///< Weights.
  kHdf5,         ///< Weights and the optimizer's state, ".weights.h5".
  kKeras,        ///< The whole model, ".keras".
};

/// By the path's ending. Errors: InvalidArgument for another one.
ModelFile model_file_of(const char* operation, const std::string& path);

/// Errors: FailedPrecondition for a model that has not all its weights.
void check_has_weights(const char* operation, const keras::Model& model);

/// The layers of a model, then its optimizer, if there is one that is built, as "optimizer".
std::vector<keras::WeightGroup> stored_groups(const keras::Model& model);

/// Where the i-th weight of a group is.
std::string stored_path(const std::string& group, std::size_t i);

/// What stored_groups() hold now. Of several workers all call.
using StoredValues = std::map<std::string, Tensor>;
StoredValues read_values(const std::vector<keras::WeightGroup>& groups);
/// Sets those that are in `values`.
void assign_values(const std::vector<keras::WeightGroup>& groups, const StoredValues& values);

/// A file with these values, as HDF5.
/// `named`: arrays with paths of their own, see model_assets.h.
cohort::internal::archive::FileBytes hdf5_of(const std::vector<keras::WeightGroup>& groups,
                                             const StoredValues& values,
                                             const StoredValues& named = {});

/// Whole or not at all. Errors: Error with the system's reason.
void write_weights_file(const std::string& path,
                        const cohort::internal::archive::FileBytes& weights);
void write_model_file(const std::string& path, const std::string& config,
                      const cohort::internal::archive::FileBytes& weights,
                      const std::map<std::string, std::string>& assets = {});

/// Any other file of a model. `operation`: for errors.
void write_bytes_file(const char* operation, const std::string& path, std::string_view bytes);

/// A .weights.h5 file, or the one in a .keras archive or in the folder of a model.
class WeightsReader {
 public:
  /// Errors: as ZipReader and Hdf5Reader; Unimplemented for weights in another format.
  WeightsReader(const char* operation, const std::string& path);
  /// A folder that has what an archive has. config.json and model.weights.h5 may be links, as
  /// programs that fetch models leave them; what is below assets may not.
  /// Errors: InvalidArgument for a folder without them; DataLoss for links and what is no file
  ///         below assets, and for more than 10,000 files there; else as for an archive.
  static std::unique_ptr<WeightsReader> of_folder(const char* operation, const std::string& path);

  /// The model as JSON; empty: of weights alone.
  const std::string& config() const { return config_; }
  /// Of all arrays.
  uint64_t bytes() const;
  /// How many values the file has of the optimizer's state; 0: it has made no step, or there is
  /// none.
  std::size_t optimizer_values() const;
  /// Whether that is of a LossScaleOptimizer.
  bool has_scaled_optimizer() const;
  /// What the file has otherwise than these groups; empty: they fit, and all is in them. What it
  /// has of optimizers counts only where a group is one.
  std::vector<std::string> differences(const std::vector<keras::WeightGroup>& groups) const;
  /// Arrays that have names and no numbers: "layers/string_lookup/vars/idf_weights".
  StoredValues named_values() const;
  /// "assets/..." of an archive.
  const std::map<std::string, std::string>& assets() const { return assets_; }
  /// Of groups that fit.
  StoredValues read(const std::vector<keras::WeightGroup>& groups) const;
  /// Sets groups that fit, of this process alone, one by one: what stands before damage is then
  /// set.
  void fill(const std::vector<keras::WeightGroup>& groups) const;

 private:
  WeightsReader() = default;
  struct Stored {
    std::string path;
    cohort::internal::archive::Hdf5Reader::Array array;
  };
  using Group = std::map<std::size_t, Stored>;  // by number
  void list();
  void compare(const keras::WeightGroup& group, std::vector<std::string>& differences) const;

  std::string config_;
  std::map<std::string, std::string> assets_;
  std::unique_ptr<cohort::internal::archive::Hdf5Reader> file_;
  std::map<std::string, Group> groups_;
};

}  // namespace cohort::keras::internal
