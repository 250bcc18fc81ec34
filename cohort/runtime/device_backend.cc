// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/device_backend.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>

#include "cohort/base/check.h"
#include "cohort/base/mutex.h"
#include "cohort/runtime/internal/cpu_backend.h"

namespace cohort::internal::runtime {
namespace {

ByDeviceType<DeviceBackend>& backends() {
  static ByDeviceType<DeviceBackend> table(&cpu_backend(), "backend");
  return table;
}

c10::Stream current_stream(const c10::Device& place) {
  return c10::impl::VirtualGuardImpl(place.type()).getStream(place);
}

// Of uploads, one for each place: copies in the order in which they are asked for.
c10::Stream upload_stream(const c10::Device& place) {
  static base::Mutex mutex;
  static auto& streams = *new std::map<c10::DeviceIndex, c10::Stream>;
  const base::MutexLock lock(mutex);
  const auto found = streams.find(place.index());
  if (found != streams.end()) return found->second;
  const c10::impl::VirtualGuardImpl made(place.type());
  return streams.emplace(place.index(), made.getStreamFromGlobalPool(place, true)).first->second;
}

}  // namespace

DeviceBackend* find_device_backend(c10::DeviceType type) { return backends().find(type); }

Tensor DeviceBackend::upload(const Device& device, const Tensor& host) {
  const c10::Device to = place(device);
  if (host.device() == to) return host;
  const c10::Stream here = current_stream(to);
  const c10::Stream beside = upload_stream(to);
  Tensor out;
  {
    const c10::StreamGuard guard(beside);
    out = at::empty_like(host, host.options().device(to).pinned_memory(false));
    out.copy_(host, /*non_blocking=*/true);
    c10::Event copied(to.type());
    copied.record(beside);
    copied.block(here);
  }
  // Its memory is the other stream's, which must not write it anew before this one has read it.
  out.record_stream(here);
  return out;
}

Tensor DeviceBackend::host_buffer(const Device& device, const Shape& shape, DType dtype) {
  const bool is_pinned = !place(device).is_cpu();
  return at::empty(shape, at::TensorOptions().dtype(dtype).pinned_memory(is_pinned));
}

const Device& host_device() {
  static const auto& device = *new Device("CPU:0");
  return device;
}

DeviceBackend& device_backend(const Device& device) {
  check_supported("[device] ", "devices", device);
  return *find_device_backend(device.at_device().type());
}

void check_supported(const char* operation, const char* what, const Device& device) {
  const c10::DeviceType type = device.at_device().type();
  DeviceBackend* const found = find_device_backend(type);
  if (found != nullptr && found->count() > 0) return;
  throw Unimplemented(str_cat(operation, "expected CPU ", what, ", got ", device.short_name(), ": ",
                              found != nullptr
                                  ? "this machine shows no GPU (nvidia-smi, CUDA_VISIBLE_DEVICES)"
                                  : device_library_problem(type)));
}

DeviceBackend* exchange_device_backend(c10::DeviceType type, DeviceBackend* backend) {
  return backends().exchange(type, backend);
}

void copy_memory(const Device& to, std::byte* destination, const Device& from,
                 const std::byte* source, std::size_t bytes) {
  // A CPU's knows no other devices.
  const Device& knows = to.kind() == DeviceKind::kCpu ? from : to;
  device_backend(knows).copy(to, destination, from, source, bytes);
}

Tensor tensor_on(const Device& device, const Tensor& tensor) {
  const c10::Device place = device_backend(device).place(device);
  return tensor.device() == place ? tensor : tensor.to(place);
}

Tensor copy_on(const Device& device, const Tensor& tensor) {
  const c10::Device place = device_backend(device).place(device);
  return tensor.device() == place ? tensor.clone() : tensor.to(place);
}

bool share_memory(const Device& a, const Device& b) {
  DeviceBackend& backend = device_backend(a);
  if (&backend != &device_backend(b)) return false;
  return backend.reaches(a, b) && backend.reaches(b, a);
}

Tensor argument_on(const Device& device, const Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided) return tensor;
  DeviceBackend& backend = device_backend(device);
  const c10::Device place = backend.place(device);
  if (!tensor.is_cpu()) {
    if (tensor.device() != place) return tensor.to(place);
    note_use(tensor);  // the replica may keep it for longer than its caller does
    return tensor;
  }
  // The program may write it when the call has returned: a copy that reads it later would see that.
  if (!place.is_cpu() && tensor.is_pinned()) return tensor.to(place);
  return backend.upload(device, tensor);
}

void note_use(const Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu() || tensor.layout() != at::kStrided) return;
  tensor.record_stream(current_stream(tensor.device()));
}

}  // namespace cohort::internal::runtime
