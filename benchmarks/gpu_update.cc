// SPDX-License-Identifier: Apache-2.0
#include "gpu_update.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <vector>

#include "cohort/runtime/device_backend.h"
#include "cohort/update_rules/rules.h"
#include "cohort/variables/update_kernels.h"

namespace cohort::bench {
namespace {

std::byte* bytes_of(const Tensor& x) { return static_cast<std::byte*>(x.mutable_data_ptr()); }

// Milliseconds on the current stream.
template <class Work>
double device_time(const c10::impl::VirtualGuardImpl& devices, const c10::Device& place,
                   const Work& work) {
  c10::Event before(place.type(), c10::EventFlag::BACKEND_DEFAULT);
  c10::Event after(place.type(), c10::EventFlag::BACKEND_DEFAULT);
  before.record(devices.getStream(place));
  work();
  after.record(devices.getStream(place));
  after.synchronize();
  return before.elapsedTime(after);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

UpdateBandwidth measure_update(const Device& gpu, std::int64_t weights, int samples) {
  auto& backend = internal::runtime::device_backend(gpu);
  const auto guard = backend.guard(gpu);
  const c10::Device place = backend.place(gpu);
  const c10::impl::VirtualGuardImpl devices(place.type());
  const auto options = at::TensorOptions().dtype(kFloat32).device(place);
  const std::array<Tensor, 4> arenas = {
      at::zeros({weights}, options), at::zeros({weights}, options), at::zeros({weights}, options),
      at::zeros({weights}, options).fill_(1e-3)};
  const std::byte* const sources[] = {bytes_of(arenas[3])};
  internal::variables::RangeUpdate range;
  range.parameters = bytes_of(arenas[0]);
  range.slots = {bytes_of(arenas[1]), bytes_of(arenas[2])};
  range.sources = sources;
  range.end = static_cast<std::size_t>(weights);
  const update_rules::Rule rule = update_rules::adam_step({}, 1);
  auto& kernels = internal::variables::update_kernels(gpu);
  const Tensor from = at::zeros({7 * weights / 2}, options);
  Tensor to = at::empty({7 * weights / 2}, options);
  std::vector<double> updates, copies;
  constexpr int kWarmUp = 5;
  for (int i = 0; i < kWarmUp + samples; ++i) {
    const double copy = device_time(devices, place, [&] { to.copy_(from); });
    const double update = device_time(devices, place, [&] { kernels.update(range, rule, {}); });
    if (i < kWarmUp) continue;
    copies.push_back(copy);
    updates.push_back(update);
  }
  const double gbytes = 7.0 * 4 * static_cast<double>(weights) / 1e9;
  return {.update_gbytes = gbytes / (median(updates) / 1e3),
          .copy_gbytes = gbytes / (median(copies) / 1e3)};
}

double update_bandwidth_share(const Device& gpu) { return measure_update(gpu).share(); }

}  // namespace cohort::bench
