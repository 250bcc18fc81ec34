// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <set>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/checkpoint/safetensors.h"
#include "cohort/checkpoint/saving_group.h"
#include "cohort/keras/model.h"
#include "cohort/keras/model_assets.h"
#include "cohort/keras/model_file.h"
#include "cohort/keras/weight_names.h"
#include "cohort/variables/parameter_store.h"

namespace cohort::keras {

namespace {

using cohort::internal::checkpoint::SavingGroup;
using internal::check_has_weights;
using internal::ModelFile;
using internal::NamedWeights;
using internal::StoredValues;
using internal::WeightsReader;

// In the metadata: which names a file has.
constexpr const char* kNames = "names";
constexpr const char* kStructure = "structure";  // LayerBase::weight_paths()
constexpr const char* kPaths = "paths";          // of versions before: LayerBase::weight_names()

std::string described(const Tensor& tensor) {
  return str_cat(dtype_name(tensor.scalar_type()), bracketed(tensor.sizes()));
}

std::vector<std::string> differences_of(const NamedWeights& weights, const TensorFile& file) {
  std::vector<std::string> differences;
  std::set<std::string> known;
  for (const auto& [name, variable] : weights) {
    known.insert(name);
    const std::string shown =
        name == variable.name() ? name : str_cat(name, " (", variable.name(), ")");
    const auto found = file.tensors.find(name);
    if (found == file.tensors.end()) {
      differences.push_back("not in the file: " + shown);
    } else if (shape_of(found->second) != variable.shape() ||
               found->second.scalar_type() != variable.dtype()) {
      differences.push_back(str_cat(shown, ": ", described(found->second), " in the file, ",
                                    dtype_name(variable.dtype()), bracketed(variable.shape()),
                                    " in the model"));
    }
  }
  for (const auto& saved : file.tensors) {
    if (!known.contains(saved.first)) differences.push_back("not in the model: " + saved.first);
  }
  return differences;
}

// As the file says; where it does not, by the names that fit best, the newest first.
NamedWeights names_for(const LayerBase& model, const TensorFile& file) {
  const auto names = file.metadata.find(kNames);
  const std::string said = names == file.metadata.end() ? "" : names->second;
  if (said == kStructure) return model.weight_paths();
  if (said == kPaths) return model.weight_names();
  NamedWeights old = internal::weights_by_old_names(model, file.tensors);
  const std::size_t with_old = differences_of(old, file).size();
  if (with_old == 0 && file.metadata.contains("format")) return old;  // ours, before these names
  NamedWeights best = model.weight_paths();
  std::size_t fewest = differences_of(best, file).size();
  NamedWeights by_name = model.weight_names();
  if (const std::size_t count = differences_of(by_name, file).size(); count < fewest) {
    best = std::move(by_name);
    fewest = count;
  }
  return fewest <= with_old ? best : old;
}

// Rows alone would be other ids' under another map.
void check_rows_stay(const char* operation, std::span<const Variable> variables) {
  for (const Variable& v : variables) {
    const cohort::internal::variables::ParameterStore* const store = v.impl().store();
    if (store == nullptr || !store->renews_rows(v)) continue;
    throw Unimplemented(str_cat(
        "[", operation, "] expected weights that mean the same under every model, got ", v.name(),
        " of a DynamicEmbedding, whose rows belong to ids that come and go: use save_weights and "
        "load_weights, or a Checkpoint, which have the ids, too"));
  }
}

}  // namespace

std::vector<Tensor> Model::get_weights() const {
  const Scope scope = enter("get_weights");
  check_has_weights("get_weights", *this);
  check_rows_stay("get_weights", variables());
  std::vector<Tensor> out;
  for (const Variable& v : variables()) out.push_back(v.value().detach().clone());
  return out;
}

void Model::set_weights(std::span<const Tensor> weights) {
  const Scope scope = enter("set_weights");
  check_has_weights("set_weights", *this);
  check_rows_stay("set_weights", variables());
  const auto targets = variables();
  COHORT_CHECK_ARG(weights.size() == targets.size(), "[set_weights] expected ", targets.size(),
                   " weights, got ", weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    COHORT_CHECK_ARG(shape_of(weights[i]) == targets[i].shape(), "[set_weights] expected shape ",
                     bracketed(targets[i].shape()), " for ", targets[i].name(), ", got ",
                     bracketed(weights[i].sizes()));
    COHORT_CHECK_ARG(c10::canCast(weights[i].scalar_type(), targets[i].dtype()),
                     "[set_weights] expected ", dtype_name(targets[i].dtype()), " for ",
                     targets[i].name(), ", got ", dtype_name(weights[i].scalar_type()));
  }
  for (std::size_t i = 0; i < weights.size(); ++i) targets[i].assign(weights[i]);
}

namespace {

// The optimizer's state are the last groups, where there is one.
std::vector<WeightGroup> without_optimizer(std::vector<WeightGroup> groups) {
  const auto is_state = [](const WeightGroup& group) {
    return group.path == "optimizer" || group.path.starts_with("optimizer/");
  };
  while (!groups.empty() && is_state(groups.back())) groups.pop_back();
  return groups;
}

void check_none(const std::vector<std::string>& differences, const char* operation,
                const std::string& model, const std::string& path) {
  COHORT_CHECK_ARG(differences.empty(), "[", operation, "] expected the weights of \"", model,
                   "\" in ", path, ", got ", join(differences, "; "));
}

// The chief's values of the groups that are in its file, on all.
StoredValues values_of_file(SavingGroup* workers, const Model& model, const std::string& path) {
  StoredValues values;
  cohort::internal::checkpoint::together(workers, "load_weights", [&] {
    if (cohort::internal::checkpoint::is_chief(workers)) {
      const WeightsReader file("load_weights", path);
      std::vector<WeightGroup> groups = internal::stored_groups(model);
      // The optimizer's state only where it is that of such an optimizer, as in Keras.
      if (groups.size() != without_optimizer(groups).size() && !file.differences(groups).empty()) {
        groups = without_optimizer(std::move(groups));
        if (file.optimizer_values() > 0 && file.differences(groups).empty()) {
          COHORT_LOG(kWarning, "[load_weights] ", path,
                     " has the state of another optimizer than \"", model.optimizer().name(),
                     "\" of model \"", model.name(),
                     "\": the weights are loaded, its state is not");
        }
      }
      check_none(file.differences(groups), "load_weights", model.name(), path);
      values = file.read(groups);
      values.merge(file.named_values());
    }
    values = cohort::internal::checkpoint::from_chief(workers, std::move(values));
  });
  return values;
}

}  // namespace

void Model::save_weights(const std::string& path) const {
  const ModelFile kind = internal::model_file_of("save_weights", path);
  COHORT_CHECK_ARG(
      kind != ModelFile::kKeras,
      "[save_weights] expected a path that ends with .weights.h5 or .safetensors, got ", path,
      ": save() writes whole models");
  const Scope scope = enter("save_weights");
  check_has_weights("save_weights", *this);
  const auto workers = strategy_.extended().parameter_store()->saving_group();
  cohort::internal::checkpoint::together(workers.get(), "save_weights", [&] {
    if (kind == ModelFile::kHdf5) {
      const auto groups = internal::stored_groups(*this);
      const StoredValues values = internal::read_values(groups);
      return cohort::internal::checkpoint::on_chief(workers.get(), [&] {
        const StoredValues named = internal::named_values_of(*this);
        internal::write_weights_file(path, internal::hdf5_of(groups, values, named));
      });
    }
    std::map<std::string, Tensor> tensors;
    for (const auto& [name, variable] : weight_paths()) tensors[name] = variable.value();
    cohort::internal::checkpoint::on_chief(workers.get(), [&] {
      save_tensors(path, tensors, {{"format", "cohort"}, {"model", name()}, {kNames, kStructure}});
    });
  });
}

void Model::load_weights(const std::string& path) {
  const ModelFile kind = internal::model_file_of("load_weights", path);
  const Scope scope = enter("load_weights");
  check_has_weights("load_weights", *this);
  const auto workers = strategy_.extended().parameter_store()->saving_group();
  if (kind != ModelFile::kSafetensors) {
    const StoredValues values = values_of_file(workers.get(), *this, path);
    internal::assign_values(internal::stored_groups(*this), values);
    return internal::set_named_values(*this, values);
  }
  TensorFile file;
  cohort::internal::checkpoint::together(workers.get(), "load_weights", [&] {
    if (cohort::internal::checkpoint::is_chief(workers.get())) file = load_tensors(path);
    file.tensors = cohort::internal::checkpoint::from_chief(workers.get(), std::move(file.tensors));
    file.metadata = cohort::internal::checkpoint::from_chief(workers.get(), file.metadata);
  });
  const NamedWeights targets = names_for(*this, file);
  check_none(differences_of(targets, file), "load_weights", name(), path);
  for (const auto& [name, variable] : targets) variable.assign(file.tensors.at(name));
}

}  // namespace cohort::keras
