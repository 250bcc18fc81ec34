// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/compile_options.h"

#include <algorithm>

#include "cohort/base/check.h"

namespace cohort::keras {
namespace {

void check_output_names(const char* what, const std::vector<std::string>& names,
                        const std::vector<std::string>& outputs) {
  for (const std::string& name : names) {
    COHORT_CHECK_ARG(std::ranges::count(outputs, name) > 0, "[compile] expected ", what,
                     " of the outputs ", join(outputs, ", "), ", got \"", name, "\"");
  }
}

Config list_of_metrics(const std::vector<Metric>& metrics) {
  Config::List list;
  for (const Metric& metric : metrics) list.push_back(metric.serialize());
  return list;
}

std::vector<Metric> metrics_of_list(const Config& config) {
  if (!config.is_list()) return {Metric::deserialize(config)};
  std::vector<Metric> metrics;
  for (const Config& metric : config.list()) metrics.push_back(Metric::deserialize(metric));
  return metrics;
}

bool is_by_name(const Config& config) {
  return config.is_object() && !config.contains("class_name");
}

}  // namespace

OutputLosses::OutputLosses(std::initializer_list<std::pair<std::string, Loss>> by_name)
    : is_list_(true) {
  for (const auto& [name, loss] : by_name) {
    COHORT_CHECK_ARG(std::ranges::count(names_, name) == 0,
                     "[compile] expected one loss of an output, got two of \"", name, "\"");
    names_.push_back(name);
    losses_.push_back(loss);
  }
}

OutputLosses::operator bool() const {
  return std::ranges::any_of(losses_, [](const Loss& loss) { return static_cast<bool>(loss); });
}

Loss OutputLosses::of(std::size_t i, std::size_t count, const std::string& name) const {
  if (!is_list_) return losses_.empty() ? Loss() : losses_[0];
  if (!names_.empty()) {
    const auto at = std::ranges::find(names_, name);
    return at == names_.end() ? Loss() : losses_[static_cast<std::size_t>(at - names_.begin())];
  }
  COHORT_CHECK_ARG(losses_.size() == count, "[compile] expected a loss for each of ", count,
                   " outputs, got ", losses_.size());
  return losses_[i];
}

void OutputLosses::check_names(const std::vector<std::string>& outputs) const {
  check_output_names("losses", names_, outputs);
}

Config OutputLosses::serialize() const {
  if (!is_list_) return losses_.empty() ? Config() : losses_[0].serialize();
  Config::List list;
  Config named = Config::object();
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    list.push_back(losses_[i].serialize());
    if (!names_.empty()) named.set(names_[i], list.back());
  }
  return names_.empty() ? Config(std::move(list)) : named;
}

OutputLosses OutputLosses::deserialize(const Config& config) {
  OutputLosses out;
  const auto add = [&](const Config& loss) {
    out.losses_.push_back(loss.is_null() ? Loss() : Loss::deserialize(loss));
  };
  if (config.is_null()) return out;
  out.is_list_ = config.is_list() || is_by_name(config);
  if (config.is_list()) {
    for (const Config& loss : config.list()) add(loss);
  } else if (is_by_name(config)) {
    for (const auto& [name, loss] : config.members()) {
      out.names_.push_back(name);
      add(loss);
    }
  } else {
    add(config);
  }
  return out;
}

std::vector<Metric> OutputMetrics::of(std::size_t i, std::size_t count,
                                      const std::string& name) const {
  for (const auto& [output, metrics] : by_name_) {
    if (output == name) return metrics;
  }
  if (is_by_output() || metrics_.empty()) return {};
  if (count == 1) return metrics_;
  COHORT_CHECK_ARG(metrics_.size() == count, "[compile] expected a metric for each of ", count,
                   " outputs, or metrics by their names, got ", metrics_.size());
  return {metrics_[i]};
}

void OutputMetrics::check_names(const std::vector<std::string>& outputs) const {
  std::vector<std::string> names;
  for (const auto& [name, metrics] : by_name_) names.push_back(name);
  check_output_names("metrics", names, outputs);
}

Config OutputMetrics::serialize() const {
  if (empty()) return {};
  if (!is_by_output()) return list_of_metrics(metrics_);
  Config named = Config::object();
  for (const auto& [name, metrics] : by_name_) named.set(name, list_of_metrics(metrics));
  return named;
}

OutputMetrics OutputMetrics::deserialize(const Config& config) {
  OutputMetrics out;
  if (config.is_null()) return out;
  if (is_by_name(config)) {
    for (const auto& [name, metrics] : config.members()) {
      out.by_name_.emplace_back(name, metrics_of_list(metrics));
    }
    return out;
  }
  if (!config.is_list()) return metrics_of_list(config);
  for (const Config& metric : config.list()) {
    if (metric.is_list() && metric.list().size() != 1) {
      throw Unimplemented(
          str_cat("[compile_from_config] expected a metric for each output, or "
                  "metrics by their names, got ",
                  config));
    }
    out.metrics_.push_back(Metric::deserialize(metric.is_list() ? metric.list()[0] : metric));
  }
  return out;
}

}  // namespace cohort::keras
