// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <set>

#include "cohort/base/check.h"
#include "cohort/checkpoint/safetensors.h"
#include "cohort/checkpoint/saving_group.h"
#include "cohort/keras/model.h"
#include "cohort/keras/weight_names.h"
#include "cohort/keras/weights_path.h"
#include "cohort/variables/parameter_store.h"

namespace cohort::keras {

namespace {

using cohort::internal::NamedWeights;

// In the metadata of files whose names are LayerBase::weight_paths(): older ones have it not.
constexpr const char* kNames = "names";
constexpr const char* kPaths = "paths";

void check_built(const char* operation, const Model& model) {
  const std::string error = model.zeros_error();
  COHORT_CHECK_STATE(!model.variables().empty() || !error.empty(), "[", operation,
                     "] expected a built model, got \"", model.name(),
                     "\" without variables: call it, fit it, or start it with an "
                     "InputLayer first; a class of your own has the layers that it was given "
                     "by add() and track()");
  const std::string waiting = model.waiting_sub_layer();
  if (waiting.empty()) return;
  throw FailedPrecondition(
      str_cat("[", operation, "] expected a model that has all its weights, got \"", model.name(),
              "\" with \"", waiting,
              "\", which gets its weights when it is first called: call the model on data first",
              error.empty() ? "" : "; building it by a call with zeros failed, ", error));
}

std::string described(const Tensor& tensor) {
  return str_cat(dtype_name(tensor.scalar_type()), bracketed(tensor.sizes()));
}

std::vector<std::string> differences_of(const NamedWeights& weights, const TensorFile& file) {
  std::vector<std::string> differences;
  std::set<std::string> known;
  for (const auto& [name, variable] : weights) {
    known.insert(name);
    const auto found = file.tensors.find(name);
    if (found == file.tensors.end()) {
      differences.push_back(str_cat("not in the file: ", name));
    } else if (shape_of(found->second) != variable.shape() ||
               found->second.scalar_type() != variable.dtype()) {
      differences.push_back(str_cat(name, ": ", described(found->second), " in the file, ",
                                    dtype_name(variable.dtype()), bracketed(variable.shape()),
                                    " in the model"));
    }
  }
  for (const auto& saved : file.tensors) {
    if (!known.contains(saved.first)) differences.push_back("not in the model: " + saved.first);
  }
  return differences;
}

// By paths; by the old names where the file does not say that it has paths and they fit better.
NamedWeights names_for(const LayerBase& model, const TensorFile& file) {
  const auto names = file.metadata.find(kNames);
  NamedWeights paths = model.weight_paths();
  if (names != file.metadata.end() && names->second == kPaths) return paths;
  NamedWeights old = cohort::internal::weights_by_old_names(model, file.tensors);
  const std::size_t with_old = differences_of(old, file).size();
  if (with_old == 0 && file.metadata.contains("format")) return old;  // ours, before paths
  return differences_of(paths, file).size() <= with_old ? paths : old;
}

}  // namespace

std::vector<Tensor> Model::get_weights() const {
  const Scope scope = enter("get_weights");
  check_built("get_weights", *this);
  std::vector<Tensor> out;
  for (const Variable& v : variables()) out.push_back(v.value().detach().clone());
  return out;
}

void Model::set_weights(std::span<const Tensor> weights) {
  const Scope scope = enter("set_weights");
  check_built("set_weights", *this);
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

void Model::save_weights(const std::string& path) const {
  cohort::internal::check_weights_path("save_weights", path);
  const Scope scope = enter("save_weights");
  check_built("save_weights", *this);
  const auto workers = strategy_.extended().parameter_store()->saving_group();
  cohort::internal::together(workers.get(), "save_weights", [&] {
    std::map<std::string, Tensor> tensors;
    for (const auto& [name, variable] : weight_paths()) tensors[name] = variable.value();
    cohort::internal::on_chief(workers.get(), [&] {
      save_tensors(path, tensors, {{"format", "cohort"}, {"model", name()}, {kNames, kPaths}});
    });
  });
}

void Model::load_weights(const std::string& path) {
  cohort::internal::check_weights_path("load_weights", path);
  const Scope scope = enter("load_weights");
  check_built("load_weights", *this);
  const auto workers = strategy_.extended().parameter_store()->saving_group();
  TensorFile file;
  cohort::internal::together(workers.get(), "load_weights", [&] {
    if (cohort::internal::is_chief(workers.get())) file = load_tensors(path);
    file.tensors = cohort::internal::from_chief(workers.get(), std::move(file.tensors));
    file.metadata = cohort::internal::from_chief(workers.get(), file.metadata);
  });
  const NamedWeights targets = names_for(*this, file);
  const std::vector<std::string> differences = differences_of(targets, file);
  COHORT_CHECK_ARG(differences.empty(), "[load_weights] expected the weights of \"", this->name(),
                   "\" in ", path, ", got ", join(differences, "; "));
  for (const auto& [name, variable] : targets) variable.assign(file.tensors.at(name));
}

}  // namespace cohort::keras
