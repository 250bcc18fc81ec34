// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/test_device.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>
#include <torch/library.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

#include "cohort/reductions/local_reduce.h"
#include "cohort/runtime/device_backend.h"
#include "cohort/variables/update_kernels.h"

namespace cohort::testing {
namespace {

namespace runtime = internal::runtime;
namespace variables = internal::variables;
namespace reductions = internal::reductions;

constexpr c10::DeviceType kPretended = c10::DeviceType::PrivateUse1;
constexpr std::uintptr_t kPage = 4096;

std::atomic<int64_t> waits_so_far{0};
thread_local int t_fallbacks = 0;  // copies of an operation that runs on the CPU are nobody's waits

void note_wait() {
  if (t_fallbacks == 0) ++waits_so_far;
}

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// While it lives, ranges of the device's memory can be touched; all else faults.
class OpenMemory {
 public:
  OpenMemory() : lock_(mutex()) {}
  ~OpenMemory() {
    for (const auto& [begin, bytes] : open_) mprotect(begin, bytes, PROT_NONE);
  }
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;

  void add(const void* data, std::size_t bytes) {
    if (bytes == 0) return;
    const auto begin = reinterpret_cast<std::uintptr_t>(data) / kPage * kPage;
    const auto end = reinterpret_cast<std::uintptr_t>(data) + bytes;
    open_.emplace_back(reinterpret_cast<void*>(begin), whole_pages(end - begin));
    mprotect(open_.back().first, open_.back().second, PROT_READ | PROT_WRITE);
  }
  // The same elements as a tensor of the CPU's.
  Tensor of(const Tensor& t) {
    if (t.is_cpu()) return t;
    add(t.storage().data(), t.storage().nbytes());
    return at::from_blob(const_cast<void*>(t.const_data_ptr()), t.sizes(), t.strides(),
                         t.options().device(at::kCPU));
  }

 private:
  static std::recursive_mutex& mutex() {
    static std::recursive_mutex one;  // one operation may begin another on its thread
    return one;
  }
  const std::lock_guard<std::recursive_mutex> lock_;
  std::vector<std::pair<void*, std::size_t>> open_;
};

std::byte* reserve_pages(std::size_t bytes) {
  void* const data = mmap(nullptr, whole_pages(std::max<std::size_t>(bytes, 1)), PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(data != MAP_FAILED, "expected memory");
  return static_cast<std::byte*>(data);
}

struct Pages {
  void* data;
  std::size_t bytes;
};

class PretendedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    auto* const pages = new Pages{reserve_pages(bytes), bytes};
    return {pages->data, pages,
            [](void* context) {
              auto* const mine = static_cast<Pages*>(context);
              munmap(mine->data, whole_pages(std::max<std::size_t>(mine->bytes, 1)));
              delete mine;
            },
            c10::Device(kPretended, 0)};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    OpenMemory memory;
    memory.add(to, bytes);
    memory.add(from, bytes);
    std::memcpy(to, from, bytes);
  }
};

PretendedAllocator& allocator() {
  static PretendedAllocator one;
  return one;
}

// --- LibTorch's operations.

constexpr c10::DispatchKeySet kKeys{c10::DispatchKey::PrivateUse1};

Tensor empty_tensor(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                    std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
                    std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator(), kKeys, dtype.value_or(at::kFloat), format);
}

Tensor empty_strided_tensor(at::IntArrayRef size, at::IntArrayRef stride,
                            std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                            std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &allocator(), kKeys,
                                           dtype.value_or(at::kFloat));
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool) {
  if (to.is_cpu() && !from.is_cpu()) note_wait();
  const at::NoGradGuard no_grad;
  OpenMemory memory;
  memory.of(to).copy_(memory.of(from));
  return to;
}

const Tensor& resize_tensor(const Tensor& t, at::IntArrayRef size,
                            std::optional<at::MemoryFormat>) {
  t.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  const std::size_t bytes = static_cast<std::size_t>(t.numel()) * t.element_size();
  if (t.storage().nbytes() < bytes) {
    t.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(allocator().allocate(bytes));
    t.storage().unsafeGetStorageImpl()->set_nbytes(bytes);
  }
  return t;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  if (to.sizes() != from.sizes()) resize_tensor(to, from.sizes(), {});
  return copy_from(from, to, false);
}

at::Scalar read_number(const Tensor& t) {
  note_wait();
  OpenMemory memory;
  return memory.of(t).item();
}

// Of an element of the host's: what LibTorch gives a kernel as an argument.
bool takes_host_numbers(const std::string& name) {
  static const std::set<std::string> all = {
      "add", "sub", "mul",  "div",     "lt",      "le",        "gt",    "ge",   "eq",
      "ne",  "pow", "rsub", "minimum", "maximum", "remainder", "copy_", "fill_"};
  std::string plain = name.substr(name.find("::") + 2);
  if (plain.ends_with("_")) plain.pop_back();
  return all.contains(plain);
}

// The host waits for what these find out.
bool waits(const std::string& name) {
  static const std::set<std::string> all = {"aten::nonzero", "aten::masked_select",
                                            "aten::_unique2", "aten::bincount", "aten::equal"};
  return all.contains(name);
}

void check_place(const std::string& name, const at::Tensor& t) {
  if (!t.defined() || !t.is_cpu() || (t.dim() == 0 && takes_host_numbers(name))) return;
  TORCH_CHECK(false, name, " expected all tensors on the device, got one of shape ", t.sizes(),
              " on the CPU");
}

void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string& name = op.schema().name();
  const std::size_t arguments = op.schema().arguments().size();
  for (std::size_t i = stack->size() - arguments; i < stack->size(); ++i) {
    const c10::IValue& value = (*stack)[i];
    if (value.isTensor()) check_place(name, value.toTensor());
    if (!value.isTensorList()) continue;
    for (const at::Tensor& t : value.toTensorVector()) check_place(name, t);
  }
  if (waits(name)) note_wait();
  ++t_fallbacks;
  try {
    at::native::cpu_fallback(op, stack);
  } catch (...) {
    --t_fallbacks;
    throw;
  }
  --t_fallbacks;
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty_tensor);
  m.impl("empty_strided", &empty_strided_tensor);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("resize_", &resize_tensor);
  m.impl("_local_scalar_dense", &read_number);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("convolution", torch::CppFunction::makeFromBoxedFunction<&on_cpu>());
  m.impl("convolution_backward", torch::CppFunction::makeFromBoxedFunction<&on_cpu>());
}

C10_REGISTER_GUARD_IMPL(PrivateUse1, c10::impl::NoOpDeviceGuardImpl<kPretended>);

// LibTorch's engine asks for the accelerator that there is.
struct PretendedHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};

void tell_libtorch() {
  static const bool told = [] {
    c10::register_privateuse1_backend("pretended");
    at::RegisterPrivateUse1HooksInterface(new PretendedHooks);
    return true;
  }();
  static_cast<void>(told);
}

// --- What Cohort asks of a device.

class PretendedRegion final : public runtime::Region {
 public:
  explicit PretendedRegion(std::size_t bytes) : Region(reserve_pages(bytes), bytes) {}
  ~PretendedRegion() override { munmap(data(), whole_pages(std::max<std::size_t>(bytes(), 1))); }
  void use(std::size_t, std::size_t) override {}
  void clear(std::size_t offset, std::size_t count) override {
    OpenMemory memory;
    memory.add(data() + offset, count);
    std::memset(data() + offset, 0, count);
  }
};

// As cohort/cuda's: nodes run on the replica's own thread.
class PretendedGuard final : public runtime::DeviceGuard {
 public:
  PretendedGuard() : before_(state().get_multithreading_enabled()) {
    state().set_multithreading_enabled(false);
  }
  ~PretendedGuard() override { state().set_multithreading_enabled(before_); }

 private:
  static c10::AutogradState& state() { return c10::AutogradState::get_tls_state(); }
  const bool before_;
};

class PretendedBackend final : public runtime::DeviceBackend {
 public:
  int count() const override { return 2; }
  void split(int, std::span<const int64_t>) override {}
  c10::Device place(const Device&) const override { return {kPretended, 0}; }
  std::unique_ptr<runtime::Region> reserve(const Device&, std::size_t bytes) override {
    return std::make_unique<PretendedRegion>(bytes);
  }
  std::size_t reservable(const Device&) const override { return std::size_t{1} << 32U; }
  Tensor view(const Device& device, std::byte* data, const Shape& shape, DType dtype,
              std::function<void(void*)> release) override {
    return at::for_blob(data, shape)
        .deleter(std::move(release))
        .options(at::TensorOptions().dtype(dtype).device(place(device)))
        .target_device(place(device))
        .make_tensor();
  }
  void copy(const Device&, std::byte* to, const Device&, const std::byte* from,
            std::size_t bytes) override {
    OpenMemory memory;
    memory.add(to, bytes);
    memory.add(from, bytes);
    std::memcpy(to, from, bytes);
  }
  bool is_asynchronous() const override { return true; }
  std::unique_ptr<runtime::DeviceGuard> guard(const Device&) override {
    return std::make_unique<PretendedGuard>();
  }
  void publish(const Device&) override {}
  void await(const Device&) override {}
};

std::size_t size_of(DType dtype) { return c10::elementSize(dtype); }

// The CPU's, on memory that they may touch.
class PretendedUpdates final : public variables::UpdateKernels {
 public:
  void update(const variables::RangeUpdate& r, const update_rules::Rule& rule,
              const update_rules::UpdateOptions& how) override {
    OpenMemory memory;
    const std::size_t bytes = r.end * size_of(r.dtype);
    memory.add(r.parameters, bytes);
    for (std::byte* slot : r.slots) memory.add(slot, slot == nullptr ? 0 : bytes);
    for (const std::byte* source : r.sources) memory.add(source, bytes);
    cpu_.update(r, rule, how);
  }
  void update_rows(const variables::RowsUpdate& t, const update_rules::Rule& rule,
                   const update_rules::UpdateOptions& how) override {
    OpenMemory memory;
    int64_t last = -1;
    for (const int64_t row : t.rows) last = std::max(last, row);
    const std::size_t width = t.width * size_of(t.dtype);
    const std::size_t bytes = static_cast<std::size_t>(last + 1) * width;
    memory.add(t.parameters, bytes);
    for (std::byte* slot : t.slots) memory.add(slot, slot == nullptr ? 0 : bytes);
    memory.add(t.gradients, t.rows.size() * width);
    cpu_.update_rows(t, rule, how);
  }
  double sum_of_squares(DType dtype, std::span<const std::byte* const> sources, std::size_t begin,
                        std::size_t end) override {
    note_wait();
    OpenMemory memory;
    for (const std::byte* source : sources) memory.add(source, end * size_of(dtype));
    return cpu_.sum_of_squares(dtype, sources, begin, end);
  }
  void block_square_sums(DType dtype, std::span<const std::byte* const> sources, std::size_t size,
                         std::size_t first, std::span<double> out) override {
    note_wait();
    OpenMemory memory;
    for (const std::byte* source : sources) memory.add(source, size * size_of(dtype));
    cpu_.block_square_sums(dtype, sources, size, first, out);
  }

 private:
  variables::UpdateKernels& cpu_ = variables::update_kernels(runtime::host_device());
};

class PretendedReducer final : public reductions::RangeReducer {
 public:
  void reduce(const reductions::RangeReduction& range) override {
    OpenMemory memory;
    const std::size_t bytes = static_cast<std::size_t>(range.end) * size_of(range.dtype);
    for (const void* source : range.sources) memory.add(source, bytes);
    for (void* out : range.outs) memory.add(out, bytes);
    reductions::RangeReduction on_host = range;
    on_host.memory = c10::kCPU;
    reductions::reduce_range(on_host);
  }
};

}  // namespace

struct PretendedGpus::Parts {
  PretendedBackend backend;
  PretendedUpdates updates;
  PretendedReducer reducer;
  reductions::RangeReducer* const reducer_before =
      reductions::exchange_range_reducer(kPretended, &reducer);
  runtime::DeviceBackend* const backend_before =
      runtime::exchange_device_backend(c10::kCUDA, &backend);
  variables::UpdateKernels* const updates_before =
      variables::exchange_update_kernels(c10::kCUDA, &updates);
};

PretendedGpus::PretendedGpus() : parts_(std::make_unique<Parts>()) {
  tell_libtorch();
  waits_so_far = 0;
}

PretendedGpus::~PretendedGpus() {
  reductions::exchange_range_reducer(kPretended, parts_->reducer_before);
  variables::exchange_update_kernels(c10::kCUDA, parts_->updates_before);
  runtime::exchange_device_backend(c10::kCUDA, parts_->backend_before);
}

int64_t PretendedGpus::waits() const { return waits_so_far; }

}  // namespace cohort::testing
