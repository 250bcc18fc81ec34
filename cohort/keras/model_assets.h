// SPDX-License-Identifier: Apache-2.0
//
// What files of models keep of layers besides weights: vocabularies; internal.
#pragma once

#include <map>
#include <string>

#include "cohort/keras/model_file.h"

namespace cohort::keras::internal {

/// By their paths in a .keras archive: "assets/layers/string_lookup/vocabulary.txt".
using StoredAssets = std::map<std::string, std::string>;

/// Errors, of all: Unimplemented for a layer with a vocabulary whose name another layer has, too.
StoredAssets assets_of(const keras::Model& model);
/// Arrays that have names of their own, by their paths: "layers/string_lookup/vars/idf_weights".
StoredValues named_values_of(const keras::Model& model);

void set_named_values(const keras::Model& model, const StoredValues& values);
/// Order: behind set_named_values.
void set_assets(const keras::Model& model, const StoredAssets& assets);

}  // namespace cohort::keras::internal
