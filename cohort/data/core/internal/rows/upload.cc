// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/core/internal/rows/upload.h"

#include <ATen/core/grad_mode.h>

#include <utility>
#include <vector>

#include "cohort/base/scope_exit.h"
#include "cohort/runtime/device_backend.h"

namespace cohort::internal::data {
namespace {

constinit thread_local const Device* t_staged_for = nullptr;

bool is_on_host(const Tensor& t) { return t.is_cpu() && t.layout() == at::kStrided; }

}  // namespace

Element map_tensors(const Element& element, base::FunctionRef<Tensor(const Tensor&)> f) {
  if (!element.has_value() || element.is_ragged()) return element;
  if (element.is_tensor()) return f(element.tensor());
  if (!element.is_tuple()) return element;
  std::vector<Element> parts;
  std::vector<std::pair<std::string, Element>> named;
  for (std::size_t i = 0; i < element.size(); ++i) {
    parts.push_back(map_tensors(element[i], f));
    if (!element.names().empty()) named.emplace_back(element.names()[i], parts.back());
  }
  return named.empty() ? Element::tuple(std::move(parts)) : Element::named(std::move(named));
}

Tensor batch_memory(const Shape& shape, DType dtype) {
  if (t_staged_for == nullptr) return empty(shape, dtype);
  return runtime::device_backend(*t_staged_for).host_buffer(*t_staged_for, shape, dtype);
}

Element staged(const Device& device, const Element& element) {
  const at::NoGradGuard no_grad;
  runtime::DeviceBackend& backend = runtime::device_backend(device);
  const bool is_cpu = backend.place(device).is_cpu();
  const auto computed = [&] {
    const Device* const before = std::exchange(t_staged_for, &device);
    const base::ScopeExit done([&] { t_staged_for = before; });
    return element.materialize();
  };
  return map_tensors(computed(), [&](const Tensor& t) {
    if (is_cpu || !is_on_host(t) || t.is_pinned()) return t;
    Tensor out = backend.host_buffer(device, shape_of(t), t.scalar_type());
    return out.copy_(t);
  });
}

Element uploaded(const Device& device, const Element& element) {
  const at::NoGradGuard no_grad;
  runtime::DeviceBackend& backend = runtime::device_backend(device);
  return map_tensors(element.materialize(), [&](const Tensor& t) {
    return is_on_host(t) ? backend.upload(device, t) : t;
  });
}

}  // namespace cohort::internal::data
