// SPDX-License-Identifier: Apache-2.0
//
// For tests: what real Keras said, as the scripts in golden/ have written it down.
#pragma once

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "cohort/keras/config.h"

namespace cohort::testing {}
namespace cohort::keras::testing {

// Beside this header in a unit, testing::expect_error is what it is without.
using namespace cohort::testing;

inline Config read_golden(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return Config::parse_json(text.str());
}

/// Without what the newest Keras says and every earlier Keras 3 would refuse the whole file for.
inline Config without_newer(const Config& config) {
  static const std::set<std::string> newer = {
      "quantization_config", "input_axes", "output_axes", "renorm",
      "renorm_clipping",     "ragged",     "optional",    "renorm_momentum"};
  if (config.is_list()) {
    Config::List list;
    for (const Config& part : config.list()) list.push_back(without_newer(part));
    return list;
  }
  if (!config.is_object()) return config;
  Config out = Config::object();
  const bool is_of_text = config.contains("ngrams");  // its "ragged" is old
  for (const auto& [name, value] : config.members()) {
    const bool is_lookup_default = config.contains("oov_method") &&
                                   ((name == "salt" && value.is_null()) || value == "floormod");
    const bool drops = newer.contains(name) && !(is_of_text && name == "ragged");
    if (!drops && !is_lookup_default) out.set(name, without_newer(value));
  }
  const Config* type = out.find("class_name");
  // So was it called up to Keras 3.6, and later ones know that name.
  if (type != nullptr && *type == "Orthogonal") out.set("class_name", "OrthogonalInitializer");
  return out;
}

}  // namespace cohort::keras::testing
