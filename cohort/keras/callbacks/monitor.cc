// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/callbacks/monitor.h"

#include <cmath>
#include <limits>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"

namespace cohort::keras::internal {

Monitor::Monitor(const char* callback, std::string name, const std::string& mode, double min_delta)
    : callback_(callback),
      name_(std::move(name)),
      automatic_(mode == "auto"),
      more_is_better_(mode == "max"),
      min_delta_(std::abs(min_delta)) {
  COHORT_CHECK_ARG(!std::isnan(min_delta), "[", callback_, "] expected a number as min_delta, got ",
                   min_delta);
  COHORT_CHECK_ARG(mode == "auto" || mode == "min" || mode == "max", "[", callback_,
                   "] expected mode auto, min or max, got \"", mode, "\"");
}

void Monitor::begin(const keras::Model& model) {
  warned_ = false;
  if (!automatic_) return;
  const std::string metric_name = name_.starts_with("val_") ? name_.substr(4) : name_;
  more_is_better_ = false;
  if (metric_name == "loss") return;
  for (const keras::Metric& metric : model.metrics()) {
    if (metric.name() != metric_name || metric.direction() == keras::Direction::kUnknown) continue;
    more_is_better_ = metric.direction() == keras::Direction::kUp;
    return;
  }
  throw InvalidArgument(str_cat("[", callback_, "] expected mode \"min\" or \"max\" for \"", name_,
                                "\", got \"auto\", and no metric of model \"", model.name(),
                                "\" says whether more of it is better"));
}

std::optional<double> Monitor::read(const keras::Logs& logs, const char* instead) {
  if (logs.contains(name_)) return logs.number(name_);
  if (!std::exchange(warned_, true)) {
    COHORT_LOG(kWarning, "[", callback_, "] expected \"", name_, "\" to watch, got only ",
               bracketed(logs.names()), ": ", instead);
  }
  return std::nullopt;
}

bool Monitor::improves(double value, double than) const {
  return more_is_better_ ? value - min_delta_ > than : value + min_delta_ < than;
}

double Monitor::worst() const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return more_is_better_ ? -kInfinity : kInfinity;
}

}  // namespace cohort::keras::internal
