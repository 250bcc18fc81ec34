// SPDX-License-Identifier: Apache-2.0
#include "cohort/autograd/gradient_tape.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "cohort/autograd/internal/on_calling_thread.h"
#include "cohort/autograd/internal/written_values.h"
#include "cohort/base/check.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/update_rules/update.h"
#include "cohort/values/internal/add_rows.h"
#include "cohort/variables/component.h"
#include "cohort/variables/gradient_lease.h"
#include "cohort/variables/id_table.h"
#include "cohort/variables/scope_check.h"

namespace cohort {
namespace {

using internal::variables::GradientLease;
using internal::variables::Leaf;
using internal::variables::VariableImpl;

thread_local char t_thread;  // its address tells threads apart

constexpr const char* kGradient = "[gradient_tape.gradient] ";

/// The leaves that stand for a variable: one here, but cross-replica those of all replicas, which a
/// run inside the tape has used.
int leaf_count(const VariableImpl& variable) {
  return current_replica() < 0 ? variable.leaf_count() : 1;
}
Leaf& leaf_of(VariableImpl& variable, int i) {
  return leaf_count(variable) > 1 ? variable.leaf_of(i) : variable.leaf();
}

bool any_spans_replicas(std::span<const Variable> sources) {
  return std::ranges::any_of(sources, [](const Variable& v) { return leaf_count(v.impl()) > 1; });
}

/// The leaves that gradients are asked for, and which source each belongs to.
struct Inputs {
  std::vector<Tensor> leaves = {};
  std::vector<std::size_t> sources = {};
  void add(const Tensor& leaf, std::size_t source) {
    leaves.push_back(leaf);
    sources.push_back(source);
  }
};

/// Opens the slots of the sources for one backward pass, and closes them however it ends.
class OpenSlots {
 public:
  /// Errors: InvalidArgument for a source that is listed twice. Nothing is open then.
  OpenSlots(std::span<const Variable> sources, GradientLease& lease) : OpenSlots(sources) {
    for (const Variable& source : sources) {
      VariableImpl& variable = source.impl();
      if (variable.description().trainable) {
        COHORT_CHECK_ARG(!variable.leaf().has_open_slot(),
                         "[gradient_tape.gradient] expected each source once, got ",
                         label(variable), " twice");
      }
      ++open_;
      open(variable, lease);
    }
  }
  ~OpenSlots() {
    for (const Variable& v : sources_.first(open_)) {
      Leaf& leaf = v.impl().leaf();
      if (leaf.has_open_slot()) leaf.close_slot();
    }
  }
  OpenSlots(const OpenSlots&) = delete;
  OpenSlots& operator=(const OpenSlots&) = delete;

 private:
  // Not where another thread's pass uses the same variable.
  static void open(VariableImpl& variable, GradientLease& lease) {
    if (!variable.description().trainable) return;
    Leaf& leaf = variable.leaf();
    if (leaf.open_slot()) leaf.slot.view = lease.place(variable);
  }
  // On its own, so that what the other throws closes the slots it has opened.
  explicit OpenSlots(std::span<const Variable> sources) : sources_(sources) {}

  const std::span<const Variable> sources_;
  std::size_t open_ = 0;
};

// Before a component is touched: one that several replicas share has no slot of this replica.
void check_strategy(std::span<const Variable> sources) {
  for (const Variable& v : sources) {
    internal::variables::check_scope_of(kGradient, "a gradient of", v.impl());
    if (current_replica() < 0) continue;
    COHORT_CHECK_STATE(
        v.impl().leaf_count() == current_replica_count(),
        "[gradient_tape.gradient] expected variables made under the scope of this "
        "strategy (",
        current_replica_count(), " replicas), got ", internal::variables::label(v.impl()), " of ",
        internal::variables::owner_of(v.impl()), " with ", v.impl().leaf_count(), " components");
  }
}

IndexedSlices join_rows(const std::vector<IndexedSlices>& parts) {
  if (parts.size() == 1) return parts[0];
  std::vector<Tensor> values;
  std::vector<Tensor> indices;
  for (const IndexedSlices& part : parts) {
    values.push_back(part.values);
    indices.push_back(part.indices.to(kInt64));
  }
  return {cohort::concat(values), cohort::concat(indices), parts[0].dense_shape};
}

/// Joins what nodes wrote into the slot and what plain operations brought through the engine.
Gradient collect(const Variable& variable, const Tensor& from_engine) {
  Leaf& leaf = variable.impl().leaf();
  if (!leaf.has_open_slot()) return from_engine;
  const internal::variables::GradientSlot& slot = leaf.slot;
  if (!slot.written && !from_engine.defined()) {
    return slot.rows.empty() ? Gradient() : join_rows(slot.rows);
  }
  Tensor view = slot.view;
  if (from_engine.defined() && !from_engine.is_same(view)) {
    const at::NoGradGuard no_grad;
    if (slot.written && !slot.summed) {
      view.add_(from_engine);
    } else {
      view.copy_(from_engine);
    }
  }
  for (const IndexedSlices& part : slot.rows) {
    if (!part.dense_shape.empty() && part.dense_shape[0] == internal::variables::kRowsOfIds) {
      throw Unimplemented(
          str_cat("[gradient_tape.gradient] expected ", internal::variables::label(variable.impl()),
                  ", a DynamicTable's on parameter servers, to be used by lookups alone, got a use "
                  "of it as a whole, too"));
    }
    internal::values::add_rows(view, part.indices, part.values);
  }
  return view;
}

// In place where nobody else sees the gradient, else in a place of `lease`, which is made when
// needed: either way where the optimizer reads it fastest. `factor`: a number or a tensor.
template <class F>
void scale(GradientAndVariable& pair, const F& factor, std::shared_ptr<GradientLease>& lease) {
  if (pair.gradient.is_sparse()) {
    IndexedSlices rows = pair.gradient.slices();
    rows.values = rows.values * factor;
    pair.gradient = std::move(rows);
    return;
  }
  Tensor values = pair.gradient.dense();
  VariableImpl& variable = pair.variable.impl();
  const bool in_arena = internal::variables::is_in_arena(variable, values);
  if (internal::variables::has_only_handles(values, in_arena ? 3 : 2)) {
    values.mul_(factor);
    return;
  }
  if (!lease) lease = std::make_shared<GradientLease>();
  const Tensor place = lease->place(variable);
  place.copy_(values).mul_(factor);
  pair.gradient = place;
}

const Tensor& values_of(const GradientAndVariable& pair) {
  return pair.gradient.is_sparse() ? pair.gradient.slices().values : pair.gradient.dense();
}

// Of half precision a sum of squares may have no number.
Tensor norm_of(const Tensor& values) {
  const DType dtype = values.scalar_type();
  const bool is_half = dtype == kFloat16 || dtype == kBFloat16;
  return at::linalg_vector_norm(is_half ? values.to(kFloat32) : values);
}

// `norm` over the joint norm, at most 1, where the gradients are: nothing waits for a device.
Tensor factor_on_device(const Gradients& gradients, const Tensor& like, double norm) {
  std::vector<Tensor> norms;
  for (const GradientAndVariable& pair : gradients) {
    if (!pair.gradient.has_value()) continue;
    const Tensor one = norm_of(values_of(pair));
    norms.push_back(one.to(like.device(), kFloat64));
  }
  const Tensor joint = at::linalg_vector_norm(at::stack(norms));
  return norm / joint.clamp_min(norm) + (joint - joint);
}

// Where no gradient is on a device: the factor, or nothing if there is nothing to scale.
std::optional<double> factor_on_host(const Gradients& gradients, double norm) {
  double squares = 0;
  for (const GradientAndVariable& pair : gradients) {
    if (!pair.gradient.has_value()) continue;
    const double one = norm_of(values_of(pair)).item<double>();
    squares += one * one;
  }
  const double global = std::sqrt(squares);
  if (global <= norm) return {};
  return update_rules::global_norm_clip_scale(global, norm);
}

template <class F>
Gradients scaled(Gradients gradients, const F& factor) {
  std::shared_ptr<GradientLease> lease;
  for (GradientAndVariable& pair : gradients) {
    if (pair.gradient.has_value()) scale(pair, factor, lease);
  }
  if (!lease) return gradients;
  // Moved, for an argument lives on in the caller's expression.
  return Gradients(
      {std::make_move_iterator(gradients.begin()), std::make_move_iterator(gradients.end())},
      std::move(lease));
}

void check_sources(std::span<const Tensor> sources) {
  for (std::size_t i = 0; i < sources.size(); ++i) {
    COHORT_CHECK_ARG(sources[i].defined(), kGradient,
                     "expected tensors as sources, got an undefined ", "tensor as source ", i,
                     " of ", sources.size());
  }
}

void check_target(const Tensor& target) {
  COHORT_CHECK_ARG(target.defined(), kGradient, "expected a target, got an undefined tensor");
}

Gradient or_zeros(Gradient gradient, const Tensor& like, const GradientOptions& options) {
  if (gradient.has_value() || options.unconnected_gradients == UnconnectedGradients::kNone) {
    return gradient;
  }
  return at::zeros_like(like.detach());
}

}  // namespace

GradientTape::GradientTape(TapeOptions options)
    : options_(options),
      thread_(&t_thread),
      replica_(current_replica()),
      recording_before_(at::GradMode::is_enabled()) {
  open();
}

GradientTape::~GradientTape() {
  close();
  at::GradMode::set_enabled(recording_before_);
}

void GradientTape::open() {
  is_open_ = true;
  internal::runtime::set_open_tapes(internal::runtime::open_tapes() + 1);
  at::GradMode::set_enabled(true);
}

void GradientTape::close() {
  if (!is_open_) return;
  is_open_ = false;
  internal::runtime::set_open_tapes(internal::runtime::open_tapes() - 1);
  // What follows in the step (metrics) is not recorded, unless an outer tape wants it.
  at::GradMode::set_enabled(internal::runtime::open_tapes() > 0);
}

void GradientTape::reset() {
  watched_.clear();
  spent_ = false;
  if (!is_open_) open();
}

void GradientTape::watch(const Variable& v) {
  v.name();  // of none: the error that says so
  watched_.push_back(v);
}

void GradientTape::watch(Tensor& x) {
  internal::runtime::check_defined("[gradient_tape.watch] ", x);
  COHORT_CHECK_ARG(x.is_floating_point() || x.is_complex(),
                   "[gradient_tape.watch] expected a floating type, got ",
                   dtype_name(x.scalar_type()));
  if (!x.requires_grad()) x = x.detach().set_requires_grad(true);
}

bool GradientTape::watches(const Variable& v) const {
  return options_.watch_accessed_variables ||
         std::find(watched_.begin(), watched_.end(), v) != watched_.end();
}

void GradientTape::check_place() const {
  const bool here =
      thread_ == &t_thread && (replica_ == current_replica() || current_replica_count() == 1);
  COHORT_CHECK_STATE(here,
                     "[gradient_tape.gradient] expected the thread and the replica where the tape "
                     "was made, got ",
                     current_replica() >= 0 ? str_cat("replica ", current_replica())
                                            : std::string("another thread"),
                     "; make the tape inside the function that strategy.run calls, or call "
                     "gradient() after the run");
}

bool GradientTape::begin_gradient() {
  check_place();
  COHORT_CHECK_STATE(!spent_,
                     "[gradient_tape.gradient] expected one call of a tape that is not persistent, "
                     "got a second one; make it with {.persistent = true}");
  if (!options_.persistent) {
    spent_ = true;
    close();
  }
  return internal::runtime::open_tapes() > (is_open_ ? 1 : 0);
}

std::vector<Tensor> GradientTape::run_backward(const Tensor& target, std::span<const Tensor> inputs,
                                               const GradientOptions& options, bool keep_graph,
                                               bool create_graph) {
  if (!target.requires_grad() || inputs.empty()) return std::vector<Tensor>(inputs.size());
  Tensor seed = options.output_gradients;
  COHORT_CHECK_ARG(!seed.defined() || seed.sizes() == target.sizes(),
                   "[gradient_tape.gradient] expected output_gradients of shape ",
                   bracketed(target.sizes()), ", got ", bracketed(seed.sizes()));
  if (!seed.defined() && target.dim() > 0) seed = at::ones_like(target.detach());
  torch::autograd::variable_list seeds;
  if (seed.defined()) seeds.push_back(seed);
  const internal::autograd::OnCallingThread here;
  return torch::autograd::grad({target}, {inputs.begin(), inputs.end()}, seeds, keep_graph,
                               create_graph, /*allow_unused=*/true);
}

Gradients GradientTape::gradient(const Tensor& target, std::span<const Variable> sources,
                                 const GradientOptions& options) {
  check_target(target);
  check_strategy(sources);
  const bool outer = begin_gradient();
  auto lease = std::make_shared<GradientLease>();
  Inputs inputs;
  inputs.leaves.reserve(sources.size());
  inputs.sources.reserve(sources.size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    VariableImpl& variable = sources[i].impl();
    for (int r = 0; r < leaf_count(variable); ++r) {
      const Tensor& leaf = leaf_of(variable, r).tensor;
      if (leaf.requires_grad() && watches(sources[i])) inputs.add(leaf, i);
    }
  }
  std::vector<GradientAndVariable> pairs(sources.size());
  for (std::size_t i = 0; i < sources.size(); ++i) pairs[i].variable = sources[i];
  // A graph of the gradients themselves cannot live in slots that are written into, and a slot is
  // one replica's.
  const bool in_slots = !outer && !any_spans_replicas(sources);
  const OpenSlots slots(in_slots ? sources : std::span<const Variable>(), *lease);
  const std::vector<Tensor> got =
      internal::autograd::naming_what_was_written(kGradient, sources, [&] {
        return run_backward(target, inputs.leaves, options, options_.persistent || outer, outer);
      });
  for (std::size_t i = 0; i < got.size(); ++i) {
    GradientAndVariable& pair = pairs[inputs.sources[i]];
    if (in_slots) {
      pair.gradient = collect(pair.variable, got[i]);
    } else if (got[i].defined()) {
      const bool is_first = !pair.gradient.has_value();
      pair.gradient = is_first ? got[i] : pair.gradient.as_tensor() + got[i];
    }
  }
  for (GradientAndVariable& pair : pairs) {
    pair.gradient = or_zeros(pair.gradient, pair.variable.impl().leaf().tensor, options);
  }
  return {std::move(pairs), std::move(lease)};
}

Tensor GradientTape::gradient(const Tensor& target, const Variable& source,
                              const GradientOptions& options) {
  const Gradients gradients = gradient(target, std::span(&source, 1), options);
  if (!gradients[0].gradient.has_value()) return {};
  return gradients[0].gradient.as_tensor();
}

std::vector<Tensor> GradientTape::gradient(const Tensor& target, std::span<const Tensor> sources,
                                           const GradientOptions& options) {
  check_target(target);
  check_sources(sources);
  const bool outer = begin_gradient();
  std::vector<Tensor> inputs;
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (!sources[i].requires_grad()) continue;
    inputs.push_back(sources[i]);
    positions.push_back(i);
  }
  const std::vector<Tensor> got = internal::autograd::naming_what_was_written(kGradient, {}, [&] {
    return run_backward(target, inputs, options, options_.persistent || outer, outer);
  });
  std::vector<Tensor> results(sources.size());
  for (std::size_t i = 0; i < positions.size(); ++i) results[positions[i]] = got[i];
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (!results[i].defined() && options.unconnected_gradients == UnconnectedGradients::kZero) {
      results[i] = at::zeros_like(sources[i].detach());
    }
  }
  return results;
}

Tensor GradientTape::gradient(const Tensor& target, const Tensor& source,
                              const GradientOptions& options) {
  return gradient(target, std::span(&source, 1), options)[0];
}

GradientTape::Pause::Pause(GradientTape&) : before_(at::GradMode::is_enabled()) {
  at::GradMode::set_enabled(false);
}
GradientTape::Pause::~Pause() { at::GradMode::set_enabled(before_); }

Gradients clip_by_global_norm(Gradients gradients, double norm) {
  COHORT_CHECK_ARG(norm > 0, "[clip_by_global_norm] expected a norm above 0, got ", norm);
  const at::NoGradGuard no_grad;
  for (const GradientAndVariable& pair : gradients) {
    if (!pair.gradient.has_value() || values_of(pair).is_cpu()) continue;
    const Tensor factor = factor_on_device(gradients, values_of(pair), norm);
    return scaled(std::move(gradients), factor);
  }
  const std::optional<double> factor = factor_on_host(gradients, norm);
  if (!factor) return gradients;
  return scaled(std::move(gradients), *factor);
}

}  // namespace cohort
