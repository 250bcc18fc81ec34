// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>

#include "cohort/base/check.h"
#include "cohort/checkpoint/safetensors.h"
#include "cohort/keras/model.h"
#include "cohort/keras/weights_path.h"

namespace cohort::keras {

namespace {

using Names = std::map<const cohort::internal::VariableImpl*, std::string>;

// The names of the layers on the way to each variable: "block/dense" for "dense/kernel".
void collect_paths(const LayerBase& layer, const std::string& path, Names& paths) {
  for (const Variable& v : layer.variables()) paths[&v.impl()] = path;
  for (const Layer& sub : layer.sub_layers()) {
    collect_paths(sub.base(), path.empty() ? sub.name() : path + "/" + sub.name(), paths);
  }
}

std::string last_part(const std::string& name) { return name.substr(name.rfind('/') + 1); }

// By the variables' own names, which name their layer; by the whole path where two have one name;
// numbered in the order of the model where two have one path as well. A variable that two layers
// share counts once.
std::vector<std::pair<std::string, Variable>> named_variables(const LayerBase& model) {
  Names paths;
  collect_paths(model, "", paths);
  std::vector<Variable> variables;
  std::set<const void*> seen;
  std::map<std::string, int> uses;
  for (const Variable& v : model.variables()) {
    if (!seen.insert(&v.impl()).second) continue;
    variables.push_back(v);
    ++uses[v.name()];
  }
  std::vector<std::pair<std::string, Variable>> out;
  std::set<std::string> taken;
  for (const Variable& v : variables) {
    std::string name = v.name();
    if (uses[name] > 1) name = str_cat(paths[&v.impl()], "/", last_part(name));
    const std::string first = name;
    for (int i = 1; !taken.insert(name).second; ++i) name = str_cat(first, "_", i);
    out.emplace_back(name, v);
  }
  return out;
}

void check_built(const char* operation, const Model& model) {
  COHORT_CHECK_STATE(!model.variables().empty(), "[", operation, "] expected a built model, got \"",
                     model.name(),
                     "\" without variables: call it, fit it, or start it with an "
                     "InputLayer first");
}

std::string described(const Tensor& tensor) {
  return str_cat(dtype_name(tensor.scalar_type()), bracketed(tensor.sizes()));
}

}  // namespace

std::vector<Tensor> Model::get_weights() const {
  const Scope scope = strategy_.scope();
  check_built("get_weights", *this);
  std::vector<Tensor> out;
  for (const Variable& v : variables()) out.push_back(v.value().detach().clone());
  return out;
}

void Model::set_weights(std::span<const Tensor> weights) {
  const Scope scope = strategy_.scope();
  check_built("set_weights", *this);
  const auto targets = variables();
  COHORT_CHECK_ARG(weights.size() == targets.size(), "[set_weights] expected ", targets.size(),
                   " weights, got ", weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    COHORT_CHECK_ARG(shape_of(weights[i]) == targets[i].shape(), "[set_weights] expected shape ",
                     bracketed(targets[i].shape()), " for ", targets[i].name(), ", got ",
                     bracketed(weights[i].sizes()));
  }
  for (std::size_t i = 0; i < weights.size(); ++i) targets[i].assign(weights[i]);
}

void Model::save_weights(const std::string& path) const {
  cohort::internal::check_weights_path("save_weights", path);
  const Scope scope = strategy_.scope();
  check_built("save_weights", *this);
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, variable] : named_variables(*this)) tensors[name] = variable.value();
  save_tensors(path, tensors, {{"format", "cohort"}, {"model", name()}});
}

void Model::load_weights(const std::string& path) {
  cohort::internal::check_weights_path("load_weights", path);
  const Scope scope = strategy_.scope();
  check_built("load_weights", *this);
  TensorFile file = load_tensors(path);
  const auto targets = named_variables(*this);
  std::vector<std::string> differences;
  for (const auto& [name, variable] : targets) {
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
    const bool known = std::any_of(targets.begin(), targets.end(),
                                   [&](const auto& target) { return target.first == saved.first; });
    if (!known) differences.push_back(str_cat("not in the model: ", saved.first));
  }
  COHORT_CHECK_ARG(differences.empty(), "[load_weights] expected the weights of \"", this->name(),
                   "\" in ", path, ", got ", join(differences, "; "));
  for (const auto& [name, variable] : targets) variable.assign(file.tensors.at(name));
}

}  // namespace cohort::keras
