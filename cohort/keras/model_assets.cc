// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/model_assets.h"

#include <algorithm>
#include <set>

#include "cohort/base/check.h"
#include "cohort/keras/layers/internal/stored_extras.h"
#include "cohort/keras/model.h"

namespace cohort::keras::internal {

using keras::Layer;
using keras::LayerBase;
using keras::internal::StoredExtras;

namespace {

constexpr const char* kAssets = "assets/";

struct ExtrasPlace {
  std::string path;  // of the layer, with a slash
  StoredExtras* extras;
};

void collect_extras(const LayerBase& layer, std::set<const LayerBase*>& seen,
                    std::map<std::string, StoredExtras*>& by_name) {
  if (!seen.insert(&layer).second) return;
  auto* const extras = dynamic_cast<StoredExtras*>(const_cast<LayerBase*>(&layer));
  if (extras != nullptr) by_name[layer.name()] = extras;
  for (const Layer& sub : layer.sub_layers()) collect_extras(sub.base(), seen, by_name);
}

// The places of files have the layers' names, by which the layers are found.
std::vector<ExtrasPlace> extras_of(const keras::Model& model) {
  std::set<const LayerBase*> seen;
  std::map<std::string, StoredExtras*> by_name;
  collect_extras(model, seen, by_name);
  std::vector<ExtrasPlace> places;
  if (by_name.empty()) return places;
  for (const keras::WeightGroup& group : model.weight_groups()) {
    const auto found = by_name.find(group.layer);
    if (found == by_name.end()) continue;
    places.push_back({group.path.empty() ? "" : group.path + "/", found->second});
  }
  if (places.size() != by_name.size()) {
    throw Unimplemented(str_cat("[save] expected layers with vocabularies in \"", model.name(),
                                "\" to have names that no other layer has"));
  }
  return places;
}

// Those of `all` that begin with the prefix, without it.
template <class Value>
std::map<std::string, Value> below(const std::string& prefix,
                                   const std::map<std::string, Value>& all) {
  std::map<std::string, Value> out;
  for (auto it = all.lower_bound(prefix); it != all.end() && it->first.starts_with(prefix); ++it) {
    out[it->first.substr(prefix.size())] = it->second;
  }
  return out;
}

}  // namespace

StoredAssets assets_of(const keras::Model& model) {
  StoredAssets all;
  for (const ExtrasPlace& place : extras_of(model)) {
    for (auto& [path, bytes] : place.extras->assets()) all[kAssets + place.path + path] = bytes;
  }
  return all;
}

StoredValues named_values_of(const keras::Model& model) {
  StoredValues all;
  for (const ExtrasPlace& place : extras_of(model)) {
    for (const auto& [path, value] : place.extras->named_values()) all[place.path + path] = value;
  }
  return all;
}

void set_named_values(const keras::Model& model, const StoredValues& values) {
  for (const ExtrasPlace& place : extras_of(model)) {
    place.extras->set_named_values(below(place.path, values));
  }
}

void set_assets(const keras::Model& model, const StoredAssets& assets) {
  for (const ExtrasPlace& place : extras_of(model)) {
    place.extras->set_assets(below(kAssets + place.path, assets));
  }
}

}  // namespace cohort::keras::internal
