// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/weight_names.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <set>

#include "cohort/base/strings.h"

namespace cohort::keras::internal {

using keras::Layer;
using keras::LayerBase;

namespace {

using Paths = std::map<const cohort::internal::variables::VariableImpl*, std::string>;

// The names of the layers on the way to each variable: "block/dense" for "dense/kernel".
void collect_paths(const LayerBase& layer, const std::string& path, Paths& paths) {
  for (const Variable& v : layer.variables()) paths[&v.impl()] = path;
  for (const Layer& sub : layer.sub_layers()) {
    collect_paths(sub.base(), path.empty() ? sub.name() : path + "/" + sub.name(), paths);
  }
}

std::string last_part(const std::string& name) { return name.substr(name.rfind('/') + 1); }

// By the variables' own names, which name their layer; by the whole path where two have one name;
// numbered in the order of the model where two have one path as well.
NamedWeights old_names(const LayerBase& model) {
  Paths paths;
  collect_paths(model, "", paths);
  std::map<std::string, int> uses;
  for (const auto& weight : model.weight_names()) ++uses[weight.second.name()];
  NamedWeights out;
  std::set<std::string> taken;
  for (const auto& [path, v] : model.weight_names()) {
    std::string name = v.name();
    if (uses[name] > 1) name = str_cat(paths[&v.impl()], "/", last_part(name));
    const std::string first = name;
    for (int i = 1; !taken.insert(name).second; ++i) name = str_cat(first, "_", i);
    out.emplace_back(name, v);
  }
  return out;
}

void collect_names(const LayerBase& layer, bool by_class, std::set<std::string>& names) {
  if (layer.is_named_by_class() == by_class) names.insert(layer.name());
  for (const Layer& sub : layer.sub_layers()) collect_names(sub.base(), by_class, names);
}

// "dense_3" is the class "dense" and the number 3, "dense" its number 0.
std::pair<std::string, int64_t> class_and_number(const std::string& name) {
  std::size_t end = name.size();
  while (end > 0 && std::isdigit(static_cast<unsigned char>(name[end - 1])) != 0) --end;
  const std::size_t digits = name.size() - end;
  if (digits == 0 || digits > 9 || end < 2 || name[end - 1] != '_') return {name, 0};
  return {name.substr(0, end - 1), std::stoll(name.substr(end))};
}

// Calls f for the name of each layer in a weight's name, and puts what it returns there.
std::string with_layers(const std::string& name,
                        const std::function<std::string(const std::string&)>& f) {
  std::string out;
  std::size_t begin = 0;
  for (std::size_t slash; (slash = name.find('/', begin)) != std::string::npos; begin = slash + 1) {
    out += f(name.substr(begin, slash - begin)) + "/";
  }
  return out + name.substr(begin);
}

// The numbers of each class, in the order in which its layers were made.
using Numbers = std::map<std::string, std::set<int64_t>>;

}  // namespace

NamedWeights weights_by_old_names(const LayerBase& model,
                                  const std::map<std::string, Tensor>& file) {
  std::set<std::string> given, by_class;
  collect_names(model, false, given);
  collect_names(model, true, by_class);
  NamedWeights weights = old_names(model);
  Numbers here, there;
  for (const auto& weight : weights) {
    with_layers(weight.first, [&](const std::string& layer) {
      if (by_class.contains(layer)) {
        const auto [name, number] = class_and_number(layer);
        here[name].insert(number);
      }
      return layer;
    });
  }
  for (const auto& saved : file) {
    with_layers(saved.first, [&](const std::string& layer) {
      const auto [name, number] = class_and_number(layer);
      if (here.contains(name) && !given.contains(layer)) there[name].insert(number);
      return layer;
    });
  }
  for (auto& weight : weights) {
    weight.first = with_layers(weight.first, [&](const std::string& layer) {
      const auto [name, number] = class_and_number(layer);
      if (!by_class.contains(layer) || here[name].size() != there[name].size()) return layer;
      const auto index = std::distance(here[name].begin(), here[name].find(number));
      const int64_t old = *std::next(there[name].begin(), index);
      return old == 0 ? name : str_cat(name, "_", old);
    });
  }
  return weights;
}

}  // namespace cohort::keras::internal
