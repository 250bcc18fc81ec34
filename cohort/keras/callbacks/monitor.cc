// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/callbacks/monitor.h"

#include <cmath>
#include <limits>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"

namespace cohort::internal {

namespace {

bool grows(std::string name) {
  if (name.starts_with("val_")) name = name.substr(4);
  for (const char* part : {"acc", "auc", "precision", "recall", "top_k", "f1", "fmeasure", "iou",
                           "true_positives", "true_negatives", "r2_score", "cosine_similarity"}) {
    if (name.find(part) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

Monitor::Monitor(const char* callback, std::string name, const std::string& mode, double min_delta)
    : callback_(callback), name_(std::move(name)), min_delta_(std::abs(min_delta)) {
  COHORT_CHECK_ARG(mode == "auto" || mode == "min" || mode == "max", "[", callback_,
                   "] expected mode auto, min or max, got \"", mode, "\"");
  more_is_better_ = mode == "max" || (mode == "auto" && grows(name_));
}

std::optional<double> Monitor::read(const keras::Logs& logs) const {
  if (logs.contains(name_)) return logs.number(name_);
  COHORT_LOG(kWarning, "[", callback_, "] expected \"", name_, "\" to watch, got only ",
             bracketed(logs.names()));
  return std::nullopt;
}

bool Monitor::improves(double value, double than) const {
  return more_is_better_ ? value - min_delta_ > than : value + min_delta_ < than;
}

double Monitor::worst() const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return more_is_better_ ? -kInfinity : kInfinity;
}

}  // namespace cohort::internal
