// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/callbacks/logs.h"

#include <algorithm>

#include "cohort/base/check.h"

namespace cohort::keras {

Logs::Logs(std::initializer_list<std::pair<std::string, LogValue>> entries) {
  for (const auto& [name, value] : entries) set(name, value);
}

void Logs::put(Entry entry) {
  if (!entries_) {
    entries_ = std::make_shared<std::vector<Entry>>();
  } else if (entries_.use_count() > 1) {
    entries_ = std::make_shared<std::vector<Entry>>(*entries_);
  }
  const auto same = std::find_if(entries_->begin(), entries_->end(),
                                 [&](const Entry& other) { return other.name == entry.name; });
  if (same != entries_->end()) {
    *same = std::move(entry);
  } else {
    entries_->push_back(std::move(entry));
  }
}

const Logs::Entry* Logs::find(std::string_view name) const {
  if (!entries_) return nullptr;
  for (const Entry& entry : *entries_) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

const Logs::Entry& Logs::at(std::string_view name) const {
  const Entry* entry = find(name);
  COHORT_CHECK_ARG(entry != nullptr, "[logs] expected one of ", bracketed(names()), ", got \"",
                   name, "\"");
  return *entry;
}

const Logs::Entry& Logs::at(std::size_t i) const {
  COHORT_CHECK_ARG(i < size(), "[logs] expected an index of ", size(), " values, got ", i);
  return (*entries_)[i];
}

std::size_t Logs::index(std::string_view name) const {
  return static_cast<std::size_t>(&at(name) - entries_->data());
}

bool Logs::contains(std::string_view name) const { return find(name) != nullptr; }
double Logs::number(std::string_view name) const { return at(name).value.number(name); }
Tensor Logs::value(std::string_view name) const { return at(name).value.read(); }

LogValue LogValue::kept() const {
  // A tensor may be a view of a state that the next step changes.
  LogValue now(read().detach().clone());
  now.has_mean_ = has_mean_ || is_read_anew();
  return now;
}

double LogValue::number(std::string_view name) const {
  const Tensor value = read();
  if (value.defined() && value.numel() > 1 && (has_mean_ || is_read_anew())) {
    return value.to(kFloat64).mean().item<double>();
  }
  COHORT_CHECK_ARG(value.defined() && value.numel() == 1, "[logs] expected one number as \"", name,
                   "\", got ",
                   value.defined() ? str_cat("shape ", bracketed(value.sizes())) : "nothing");
  return value.item<double>();
}

std::vector<std::string> Logs::names() const {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < size(); ++i) out.push_back(name(i));
  return out;
}

Logs Logs::values() const {
  Logs out;
  for (std::size_t i = 0; i < size(); ++i) {
    const Entry& entry = (*entries_)[i];
    out.put({entry.name, entry.value.kept()});
  }
  return out;
}

Logs Logs::sorted() const {
  Logs out;
  if (!entries_) return out;
  out.entries_ = std::make_shared<std::vector<Entry>>(*entries_);
  std::sort(out.entries_->begin(), out.entries_->end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return out;
}

}  // namespace cohort::keras
