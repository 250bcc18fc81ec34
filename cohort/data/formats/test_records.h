// SPDX-License-Identifier: Apache-2.0
//
// What a dataset of strings yields, as a test compares it.
#pragma once

#include <string>
#include <vector>

#include "cohort/data/dataset.h"

namespace cohort::testing {

using Strings = std::vector<std::string>;

inline Strings strings_of(Iterator it) {
  Strings out;
  while (auto e = it.next()) out.push_back(e->string());
  return out;
}
inline Strings strings_of(const Dataset& dataset) { return strings_of(dataset.make_iterator()); }

/// Also errors, by their text from the file's name on, behind "!".
inline Strings all_of(const Dataset& dataset) {
  Strings out;
  auto it = dataset.make_iterator();
  while (true) {
    try {
      auto e = it.next();
      if (!e) return out;
      out.push_back(e->string());
    } catch (const DataLoss& e) {
      const std::string text = e.what();
      out.push_back("!" + text.substr(text.rfind('/') + 1));
    }
  }
}

}  // namespace cohort::testing
