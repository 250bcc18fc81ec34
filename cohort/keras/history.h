// SPDX-License-Identifier: Apache-2.0
//
// What fit returns.
//
//   const keras::History history = model.fit(train, {.epochs = 5});
//   std::printf("%g\n", history["loss"].back());
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/keras/verbose.h"

namespace cohort::keras {

/// Numbers by name. A std::map to read, whose errors say which names there are.
class HistoryValues : public std::map<std::string, std::vector<double>> {
 public:
  using map::map;
  /// Of values that are about to end, a copy. Errors: InvalidArgument that lists the names.
  const std::vector<double>& at(const std::string& name) const&;
  std::vector<double> at(const std::string& name) && { return std::as_const(*this).at(name); }
  const std::vector<double>& operator[](const std::string& name) const& { return at(name); }
  std::vector<double> operator[](const std::string& name) && {
    return std::as_const(*this).at(name);
  }
};

/// What fit was told, as it began. TF: History.params.
struct FitParams {
  Verbose verbose = Verbose::kAuto;   ///< What kAuto stood for; kSilent on workers but the chief.
  int epochs = 1;                     ///< The number of the last one.
  std::optional<int64_t> steps = {};  ///< Of an epoch; unset where the data does not say it.
};

/// One entry for each epoch that ended. TF: keras.callbacks.History.
struct History {
  std::vector<int> epoch = {};  ///< Numbers, from 0.
  HistoryValues history = {};   ///< "loss", "val_loss", metrics.
  bool interrupted = false;     ///< Ctrl-C ended fit; the epoch it fell into is not listed.
  FitParams params = {};

  /// history.at(name).
  const std::vector<double>& at(const std::string& name) const& { return history.at(name); }
  std::vector<double> at(const std::string& name) && { return history.at(name); }
  const std::vector<double>& operator[](const std::string& name) const& { return history.at(name); }
  std::vector<double> operator[](const std::string& name) && { return history.at(name); }
  bool contains(const std::string& name) const { return history.contains(name); }
};

/// {'loss': [0.5, 0.25], 'val_loss': [0.6, 0.4]}, as Python prints History.history.
std::ostream& operator<<(std::ostream& out, const HistoryValues& values);
std::ostream& operator<<(std::ostream& out, const History& history);

}  // namespace cohort::keras
