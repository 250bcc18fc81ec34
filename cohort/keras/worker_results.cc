// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/worker_results.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "cohort/base/check.h"
#include "cohort/collectives/communicator.h"
#include "cohort/collectives/worker_collectives.h"

namespace cohort::keras::internal {
namespace {

constexpr const char* kStepLogs = "[train_step's logs] ";
constexpr const char* kPredict = "[predict] ";

template <class T>
std::vector<T> numbers_of_all(cohort::internal::collectives::Communicator& others,
                              const char* operation, std::span<const T> here) {
  const std::vector<std::byte> bytes =
      cohort::internal::collectives::gather_bytes(others, operation, std::as_bytes(here));
  std::vector<T> all(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

// What workers have to log alike.
std::string text_of_logs(const LoggedStep& step) {
  std::string text;
  for (const std::string& name : step.logs.names()) {
    text += str_cat(text.empty() ? "" : ", ", name, ": ");
    if (step.logs.is_read_anew(name)) {
      text += "read when asked for";
      continue;
    }
    const Tensor value = step.logs.value(name);
    text += value.defined() ? str_cat(dtype_name(value.scalar_type()), bracketed(value.sizes()))
                            : "nothing";
  }
  return str_cat("{", text, "}");
}

void share_values(cohort::internal::collectives::Communicator& others,
                  std::span<const LoggedStep> steps, std::vector<LoggedStep>& all) {
  for (const std::string& name : steps[0].logs.names()) {
    if (steps[0].logs.is_read_anew(name) || !steps[0].logs.value(name).defined()) continue;
    std::vector<Tensor> here;
    for (const LoggedStep& step : steps) here.push_back(step.logs.value(name).detach());
    const Tensor values =
        cohort::internal::collectives::gather_across(others, kStepLogs, at::stack(here), 0);
    for (std::size_t r = 0; r < all.size(); ++r) {
      all[r].logs.set(name, values[static_cast<int64_t>(r)]);
    }
  }
}

// As many on every replica, or none are known: nobody can tell then which are the same.
void share_shares(cohort::internal::collectives::Communicator& others,
                  std::span<const LoggedStep> steps, std::vector<LoggedStep>& all) {
  const auto count = static_cast<int64_t>(steps[0].shares.values().size());
  const bool alike = std::all_of(steps.begin(), steps.end(), [&](const LoggedStep& step) {
    return static_cast<int64_t>(step.shares.values().size()) == count;
  });
  const int64_t mine = alike ? count : -1;
  const std::vector<int64_t> counts = numbers_of_all<int64_t>(others, kStepLogs, {&mine, 1});
  if (std::any_of(counts.begin(), counts.end(), [&](int64_t c) { return c != count || c < 1; })) {
    return;
  }
  std::vector<double> here;
  for (const LoggedStep& step : steps) {
    for (const Tensor& share : step.shares.values()) here.push_back(share.item<double>());
  }
  const std::vector<double> values = numbers_of_all<double>(others, kStepLogs, here);
  for (std::size_t i = 0; i < values.size(); ++i) {
    all[i / static_cast<std::size_t>(count)].shares.add(scalar(values[i], kFloat64));
  }
}

}  // namespace

std::vector<LoggedStep> steps_of_all(cohort::internal::collectives::Communicator& others,
                                     std::span<const LoggedStep> steps) {
  const at::NoGradGuard no_grad;
  const auto workers = static_cast<std::size_t>(others.size());
  std::vector<LoggedStep> all(workers * steps.size());
  others.take_turn(kStepLogs, [&] {
    cohort::internal::collectives::check_same_on_workers(others, kStepLogs, "logs of a step",
                                                         text_of_logs(steps[0]));
    std::vector<int64_t> rows, origins;
    for (const LoggedStep& step : steps) {
      rows.push_back(step.rows);
      for (const FromShares from : step.from_shares) origins.push_back(static_cast<int64_t>(from));
    }
    rows = numbers_of_all<int64_t>(others, kStepLogs, rows);
    origins = numbers_of_all<int64_t>(others, kStepLogs, origins);
    const std::size_t names = origins.size() / all.size();
    for (std::size_t r = 0; r < all.size(); ++r) {
      all[r].rows = rows[r];
      all[r].logs = steps[0].logs;
      for (std::size_t i = 0; i < names; ++i) {
        all[r].from_shares.push_back(static_cast<FromShares>(origins[r * names + i]));
      }
    }
    share_values(others, steps, all);
    share_shares(others, steps, all);
  });
  return all;
}

Tensor rows_of_all(cohort::internal::collectives::Communicator& others, const Tensor& rows,
                   std::span<const int64_t> counts, int local_replicas) {
  const at::NoGradGuard no_grad;
  Tensor joined;
  std::vector<int64_t> all, begins;
  others.take_turn(kPredict, [&] {
    all = numbers_of_all<int64_t>(others, kPredict, counts);
    joined = cohort::internal::collectives::gather_across(others, kPredict, rows, 0, &begins);
  });
  // What stands worker by worker, step by step.
  for (int64_t begin = 0; int64_t & each : begins) {
    const int64_t size = each;
    each = begin;
    begin += size;
  }
  const auto local = static_cast<std::size_t>(local_replicas);
  std::vector<Tensor> pieces;
  for (std::size_t step = 0; step < counts.size(); step += local) {
    for (std::size_t w = 0; w < begins.size(); ++w) {
      int64_t size = 0;
      for (std::size_t r = 0; r < local; ++r) size += all[w * counts.size() + step + r];
      pieces.push_back(joined.narrow(0, begins[w], size));
      begins[w] += size;
    }
  }
  return cohort::concat(pieces);
}

}  // namespace cohort::keras::internal
