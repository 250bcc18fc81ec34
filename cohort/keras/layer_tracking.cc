// SPDX-License-Identifier: Apache-2.0
//
// What checkpoints and files of weights see of layers and models.
#include <algorithm>
#include <set>

#include "cohort/base/mutex.h"
#include "cohort/checkpoint/trackable.h"
#include "cohort/keras/compiled_model.h"
#include "cohort/keras/layer.h"
#include "cohort/keras/model.h"
#include "cohort/variables/parameter_store.h"
#include "cohort/variables/tracked_variable.h"

namespace cohort::keras {

std::shared_ptr<Trackable> LayerBase::trackable() const {
  check_not_moved("checkpoint");
  const cohort::internal::base::MutexLock lock(name_mutex_);
  if (tracked_ == nullptr) {
    tracked_ =
        std::make_shared<TrackedObject>([place = place_] { return (*place)->tracked_parts(); });
  }
  return tracked_;
}

TrackedParts LayerBase::tracked_parts() const {
  TrackedParts parts{.growing = weights_state_ != Weights::kMade};
  cohort::internal::checkpoint::UniqueNames names;
  // Not half of them, and not before build() has put into them what it wants.
  if (weights_state_ != Weights::kBeingMade) {
    for (const OwnWeight& weight : weights_) {
      parts.values.push_back(
          cohort::internal::variables::tracked_variable(names.add(weight.name), weight.variable));
    }
  }
  for (const Layer& layer : sub_layers_) {
    parts.children.emplace_back(names.add(layer.base().tracked_name()), layer.base().trackable());
  }
  return parts;
}

struct LayerBase::Paths {
  std::vector<std::pair<std::string, Variable>> weights;
  std::set<const LayerBase*> seen;
  cohort::internal::checkpoint::UniqueNames
      whole;  // "a" in "b", and "b/a", would have the same path
};

std::vector<std::pair<std::string, Variable>> LayerBase::weight_names() const {
  check_not_moved("weight_names");
  Paths paths;
  collect_names("", paths);
  return std::move(paths.weights);
}

// The names that tracked_parts() gives.
void LayerBase::collect_names(const std::string& prefix, Paths& paths) const {
  if (!paths.seen.insert(this).second) return;
  cohort::internal::checkpoint::UniqueNames names;
  for (const OwnWeight& weight : weights_) {
    paths.weights.emplace_back(paths.whole.add(prefix + names.add(weight.name)), weight.variable);
  }
  for (const Layer& layer : sub_layers_) {
    layer.base().collect_names(prefix + names.add(layer.base().tracked_name()) + "/", paths);
  }
}

struct LayerBase::Groups {
  std::vector<WeightGroup> all;
  std::set<const LayerBase*> seen;
  cohort::internal::checkpoint::UniqueNames paths;
};

std::vector<WeightGroup> LayerBase::weight_groups() const {
  check_not_moved("weight_groups");
  Groups groups;
  collect_groups("", groups);
  return std::move(groups.all);
}

namespace {

// What a stateful recurrent layer remembers of the batch before is no weight: neither Keras nor
// another model has a use for it. Checkpoints keep it.
bool is_memory(const std::string& name, const Variable& variable) {
  return name == "rnn_state" && variable.synchronization() == Synchronization::kOnRead &&
         variable.aggregation() == Aggregation::kOnlyFirstReplica;
}

}  // namespace

std::vector<Variable> LayerBase::stored_weights() const {
  std::vector<Variable> weights;
  for (const bool trainable : {true, false}) {
    for (const OwnWeight& weight : weights_) {
      if (is_memory(weight.name, weight.variable)) continue;
      if (weight.trainable == trainable) weights.push_back(weight.variable);
    }
  }
  return weights;
}

// Keras looks at an object's attributes in alphabetical order, private ones last. A model has one
// that is called "layers", the list of all: what it comes to there first, is kept there, numbered
// among all of its class in the list.
void LayerBase::collect_groups(const std::string& path, Groups& groups) const {
  if (!groups.seen.insert(this).second) return;
  groups.all.push_back({path.empty() ? path : groups.paths.add(path), name(), stored_weights()});
  const std::string own = path.empty() ? "" : groups.all.back().path + "/";
  std::vector<std::pair<std::string, std::size_t>> attributes;
  constexpr std::size_t kList = SIZE_MAX;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (!places_[i].empty()) attributes.emplace_back(places_[i], i);
  }
  if (is_list_of_layers() || attributes.size() < places_.size()) {
    attributes.emplace_back("layers", kList);
  }
  std::stable_sort(attributes.begin(), attributes.end(), [](const auto& a, const auto& b) {
    const bool a_last = a.first.starts_with('_'), b_last = b.first.starts_with('_');
    return a_last == b_last ? a.first < b.first : b_last;
  });
  for (const auto& [name, index] : attributes) {
    const bool is_list = index == kList || name.ends_with('/');
    if (!is_list) {
      sub_layers_[index].base().collect_groups(own + name, groups);
      continue;
    }
    cohort::internal::checkpoint::UniqueNames names;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const bool is_in_it =
          index != kList ? places_[i] == name : is_list_of_layers() || places_[i].empty();
      if (!is_in_it) continue;
      const LayerBase& layer = sub_layers_[i].base();
      const std::string list = index == kList ? "layers/" : name;
      layer.collect_groups(own + list + names.add(layer.stored_class()), groups);
    }
  }
}

std::vector<std::pair<std::string, Variable>> LayerBase::weight_paths() const {
  std::vector<std::pair<std::string, Variable>> weights;
  std::set<const cohort::internal::variables::VariableImpl*> seen;
  for (const WeightGroup& group : weight_groups()) {
    for (std::size_t i = 0; i < group.weights.size(); ++i) {
      if (!seen.insert(&group.weights[i].impl()).second) continue;
      weights.emplace_back(str_cat(group.path, group.path.empty() ? "" : "/", "vars/", i),
                           group.weights[i]);
    }
  }
  return weights;
}

void LayerBase::tracked_parts_grown() const {
  std::shared_ptr<TrackedObject> tracked;
  {
    const cohort::internal::base::MutexLock lock(name_mutex_);
    tracked = tracked_;
  }
  if (tracked != nullptr) tracked->grown();
}

TrackedParts Model::tracked_parts() const {
  TrackedParts parts = LayerBase::tracked_parts();
  parts.group = strategy_.extended().parameter_store()->saving_group();
  if (compiled_ != nullptr) {
    cohort::internal::checkpoint::UniqueNames names;
    for (const auto& child : parts.children) names.add(child.first);
    for (const TrackedValue& value : parts.values) names.add(value.name);
    parts.children.emplace_back(names.add("optimizer"), compiled_->options.optimizer.trackable());
  }
  return parts;
}

}  // namespace cohort::keras
