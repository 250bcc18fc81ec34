// SPDX-License-Identifier: Apache-2.0
//
// What keras_fuzz does to models' files: targets with changes of their own.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tests/fuzz/changes.h"

namespace cohort::fuzz {

struct Input {
  std::string bytes = {};
  /// Of bytes that are not what was written: those that were. Reading them gives an error, or what
  /// these give.
  std::string undamaged = {};
};

struct FileTarget {
  const char* name;
  std::vector<std::string> (*seeds)();
  /// Another input. `seed`: this one of seeds(); else bytes that were found.
  Input (*change)(const std::string& bytes, bool is_seed, Random& random);
  /// Returns or throws one of Cohort's errors.
  void (*run)(const Input& input);
  /// Memory is what the bytes can be worth: a config alone may ask for a large model.
  bool is_bounded;
};

std::span<const FileTarget> keras_targets();

/// A folder of this run, in memory where there is such one.
const std::string& work_folder();

/// Ends the run: the input is kept.
[[noreturn]] void broken(const std::string& what);

}  // namespace cohort::fuzz
