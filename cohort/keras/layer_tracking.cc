// SPDX-License-Identifier: Apache-2.0
//
// What checkpoints see of layers and models.
#include <set>

#include "cohort/checkpoint/trackable.h"
#include "cohort/keras/compiled_model.h"
#include "cohort/keras/layer.h"
#include "cohort/keras/model.h"
#include "cohort/variables/parameter_store.h"
#include "cohort/variables/tracked_variable.h"

namespace cohort::keras {

std::shared_ptr<Trackable> LayerBase::trackable() const {
  check_not_moved("checkpoint");
  const std::lock_guard lock(name_mutex_);
  if (tracked_ == nullptr) {
    tracked_ =
        std::make_shared<TrackedObject>([place = place_] { return (*place)->tracked_parts(); });
  }
  return tracked_;
}

TrackedParts LayerBase::tracked_parts() const {
  TrackedParts parts{.growing = weights_state_ != Weights::kMade};
  cohort::internal::UniqueNames names;
  // Not half of them, and not before build() has put into them what it wants.
  if (weights_state_ != Weights::kBeingMade) {
    for (const OwnWeight& weight : weights_) {
      parts.values.push_back(
          cohort::internal::tracked_variable(names.add(weight.name), weight.variable));
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
  cohort::internal::UniqueNames whole;  // "a" in "b", and "b/a", would have the same path
};

std::vector<std::pair<std::string, Variable>> LayerBase::weight_paths() const {
  check_not_moved("weight_paths");
  Paths paths;
  collect_paths("", paths);
  return std::move(paths.weights);
}

// The names that tracked_parts() gives.
void LayerBase::collect_paths(const std::string& prefix, Paths& paths) const {
  if (!paths.seen.insert(this).second) return;
  cohort::internal::UniqueNames names;
  for (const OwnWeight& weight : weights_) {
    paths.weights.emplace_back(paths.whole.add(prefix + names.add(weight.name)), weight.variable);
  }
  for (const Layer& layer : sub_layers_) {
    layer.base().collect_paths(prefix + names.add(layer.base().tracked_name()) + "/", paths);
  }
}

void LayerBase::tracked_parts_grown() const {
  std::shared_ptr<TrackedObject> tracked;
  {
    const std::lock_guard lock(name_mutex_);
    tracked = tracked_;
  }
  if (tracked != nullptr) tracked->grown();
}

TrackedParts Model::tracked_parts() const {
  TrackedParts parts = LayerBase::tracked_parts();
  parts.group = strategy_.extended().parameter_store()->saving_group();
  if (compiled_ != nullptr) {
    cohort::internal::UniqueNames names;
    for (const auto& child : parts.children) names.add(child.first);
    for (const TrackedValue& value : parts.values) names.add(value.name);
    parts.children.emplace_back(names.add("optimizer"), compiled_->options.optimizer.trackable());
  }
  return parts;
}

}  // namespace cohort::keras
