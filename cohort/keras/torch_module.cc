// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/torch_module.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <optional>

#include "cohort/base/check.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/strategy/strategy.h"
#include "cohort/variables/component.h"
#include "cohort/variables/step_undo.h"

namespace cohort::keras::internal {
namespace {

using keras::CallArgs;
using keras::floatx;
using keras::Layer;
using keras::LayerBase;

/// A tensor of a module that becomes a variable's component, and where it has to stay.
struct Member {
  std::string name;
  Tensor tensor;
  bool is_buffer = false;
  const void* place = nullptr;
};

/// Parameters, then buffers, in the module's order; each tensor once, under its first name.
std::vector<Member> members_of(const torch::nn::Module& module) {
  std::vector<Member> members;
  const auto add = [&](const auto& dict, bool is_buffer) {
    for (const auto& item : dict) {
      const bool known = std::any_of(members.begin(), members.end(), [&](const Member& m) {
        return m.tensor.is_same(item.value());
      });
      if (!known) members.push_back({item.key(), item.value(), is_buffer});
    }
  };
  add(module.named_parameters(), false);
  add(module.named_buffers(), true);
  return members;
}

std::string described(const Member& m) {
  return str_cat(m.is_buffer ? "buffer" : "parameter", " \"", m.name, "\" ",
                 dtype_name(m.tensor.scalar_type()), bracketed(m.tensor.sizes()),
                 m.tensor.requires_grad() ? "" : " without gradients");
}

// That of all parameters that float. Nothing: there are none, or of several types.
std::optional<DType> type_of(std::span<const Member> members) {
  std::optional<DType> type;
  for (const Member& m : members) {
    if (m.is_buffer || !m.tensor.is_floating_point()) continue;
    if (type && *type != m.tensor.scalar_type()) return {};
    type = m.tensor.scalar_type();
  }
  return type;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

class TorchLayer final : public LayerBase {
 public:
  TorchLayer(TorchFactory make, std::string name)
      : LayerBase(std::move(name)), make_(std::move(make)) {
    set_autocast(false);  // the module's parameters say what it computes in
  }
  std::string class_name() const override { return "TorchModule"; }
  void build(const Shape& input_shape) override;
  Tensor call(const Tensor& input, const CallArgs& args) override;
  Shape compute_output_shape(const Shape& input_shape) const override;

  torch::nn::Module& local() { return *local_replica().made.module; }
  std::vector<torch::nn::Module*> all() const {
    std::vector<torch::nn::Module*> out;
    for (const Replica& replica : replicas_) out.push_back(replica.made.module.get());
    return out;
  }

 private:
  struct Replica {
    TorchReplica made;
    std::vector<Member> members;
  };

  Replica make_replica(const TorchReplica* first) const;
  void check_members(const Replica& replica) const;
  /// The last one against the others.
  void check_alike(std::span<const Replica> replicas) const;
  Variable add_member(const Member& member);
  Replica& local_replica();
  Tensor forward_nothing(const Replica& replica, const Tensor& input) const;
  Tensor forward_zeros(const Shape& shape, DType dtype) const;
  Tensor as_module_computes(const Tensor& input) const;
  void check_cross_replica(const CallArgs& args) const;
  static void keep_buffers(const Replica& replica, const CallArgs& args);

  TorchFactory make_;
  std::vector<Replica> replicas_;
  std::optional<DType> module_type_;
};

void TorchLayer::build(const Shape&) {
  if (get_strategy().extended().parameter_store()->is_remote()) {
    throw Unimplemented(str_cat("[", name(), "] expected a strategy whose variables are this ",
                                "process's around a torch::nn module, got ",
                                get_strategy().extended().description(),
                                ": the module's own tensors would not follow the servers'"));
  }
  replicas_.clear();
  std::vector<Replica> replicas = {make_replica(nullptr)};
  check_members(replicas[0]);
  const int count = get_strategy().extended().num_local_replicas();
  while (static_cast<int>(replicas.size()) < count) {
    replicas.push_back(make_replica(&replicas[0].made));
    check_alike(replicas);
  }
  const std::size_t members = replicas[0].members.size();
  for (std::size_t i = 0; i < members; ++i) {
    const Variable variable = add_member(replicas[0].members[i]);
    COHORT_CHECK(variable.impl().leaf_count() == count, "[", name(), "] expected ", count,
                 " components, got ", variable.impl().leaf_count());
    for (int r = 0; r < count; ++r) {
      Member& member = replicas[static_cast<std::size_t>(r)].members[i];
      cohort::internal::variables::local_impl(variable.impl()).leaf_of(r).adopt(member.tensor);
      member.place = member.tensor.const_data_ptr();
    }
  }
  replicas_ = std::move(replicas);
  module_type_ = type_of(replicas_[0].members);
}

TorchLayer::Replica TorchLayer::make_replica(const TorchReplica* first) const {
  Replica replica{.made = make_(first), .members = {}};
  COHORT_CHECK_ARG(replica.made.module != nullptr, "[", name(),
                   "] expected a module, got a null pointer");
  replica.members = members_of(*replica.made.module);
  return replica;
}

void TorchLayer::check_members(const Replica& replica) const {
  for (const Member& m : replica.members) {
    if (!m.tensor.device().is_cpu() || m.tensor.layout() != at::kStrided) {
      throw Unimplemented(str_cat("[", name(), "] expected dense tensors on the CPU, got ",
                                  described(m), " on ", m.tensor.device().str()));
    }
    COHORT_CHECK_ARG(m.tensor.is_leaf(), "[", name(), "] expected ", described(m),
                     " to be a leaf, got one that was computed");
    COHORT_CHECK_ARG(!m.tensor.requires_grad() || m.tensor.is_floating_point(), "[", name(),
                     "] expected trained parameters of a floating type, got ", described(m));
  }
}

void TorchLayer::check_alike(std::span<const Replica> replicas) const {
  const std::vector<Member>& first = replicas.front().members;
  const std::vector<Member>& last = replicas.back().members;
  const auto differ =
      std::mismatch(first.begin(), first.end(), last.begin(), last.end(),
                    [](const Member& a, const Member& b) { return described(a) == described(b); });
  const auto text = [](auto at, auto end) {
    return at == end ? std::string("no more") : described(*at);
  };
  COHORT_CHECK_ARG(differ.first == first.end() && differ.second == last.end(), "[", name(),
                   "] expected modules with the same parameters and buffers on every replica, got ",
                   text(differ.first, first.end()), " on replica 0 and ",
                   text(differ.second, last.end()), " on replica ", replicas.size() - 1);
  for (const Replica& other : replicas.first(replicas.size() - 1)) {
    bool shared = other.made.module == replicas.back().made.module;
    for (std::size_t i = 0; i < last.size(); ++i) {
      shared = shared || other.members[i].tensor.is_same(last[i].tensor);
    }
    COHORT_CHECK_ARG(!shared, "[", name(),
                     "] expected a module of its own for each replica, got tensors that two of "
                     "them share; build a new module in the function");
  }
}

Variable TorchLayer::add_member(const Member& member) {
  const Tensor value = member.tensor.detach();
  const bool averages = at::isFloatingType(value.scalar_type());
  const bool statistic = member.is_buffer;
  return add_weight(
      {.name = member.name,
       .shape = shape_of(value),
       .dtype = value.scalar_type(),
       .initializer = [value](const Shape&, DType) { return value; },
       .trainable = member.tensor.requires_grad(),
       .synchronization = statistic ? Synchronization::kOnRead : Synchronization::kAuto,
       .aggregation = averages ? Aggregation::kMean : Aggregation::kOnlyFirstReplica});
}

TorchLayer::Replica& TorchLayer::local_replica() {
  COHORT_CHECK_STATE(!replicas_.empty(), "[", name(),
                     "] expected a layer that has its weights, got one that was not called yet; "
                     "call it on a batch "
                     "first");
  Replica& replica = replicas_[internal::local_replica(replicas_.size())];
  for (const Member& m : replica.members) {
    COHORT_CHECK_STATE(m.tensor.const_data_ptr() == m.place, "[", name(), "] expected ",
                       described(m),
                       " where the strategy keeps it, got it moved (by to(), set_data, torch::load "
                       "or another layer that wraps the same module); do that before the layer is "
                       "built, or assign to its variables");
  }
  return replica;
}

void TorchLayer::check_cross_replica(const CallArgs& args) const {
  if (replicas_.size() == 1 || current_replica() >= 0) return;
  const auto& members = replicas_[0].members;
  const bool buffers =
      std::any_of(members.begin(), members.end(), [](const Member& m) { return m.is_buffer; });
  COHORT_CHECK_STATE(!args.training && !buffers, "[", name(),
                     "] expected to be inside strategy.run, got a call in cross-replica context ",
                     args.training ? "that trains" : "of a module with buffers", ", which each of ",
                     replicas_.size(), " replicas has for itself");
}

// The module's statistics, which its forward pass moves, come back if the step fails.
void TorchLayer::keep_buffers(const Replica& replica, const CallArgs& args) {
  cohort::internal::variables::StepUndo* undo = cohort::internal::variables::StepUndo::current();
  if (undo == nullptr || !args.training) return;
  for (const Member& m : replica.members) {
    if (m.is_buffer) undo->keep(m.tensor);
  }
}

// Where a policy says that layers convert their inputs, into the module's own type, which no policy
// changes.
Tensor TorchLayer::as_module_computes(const Tensor& input) const {
  const bool casts = module_type_ && dtype_policy().casts() && input.is_floating_point();
  return casts ? input.to(*module_type_) : input;
}

Tensor TorchLayer::call(const Tensor& given, const CallArgs& args) {
  const Tensor input = as_module_computes(given);
  Replica& replica = local_replica();
  COHORT_CHECK_ARG(replica.made.forward != nullptr, "[", name(),
                   "] expected a module with forward(Tensor) that returns a Tensor, got one "
                   "without; call its own forward, or wrap it in a module that has it");
  check_cross_replica(args);
  if (input.dim() > 0 && input.size(0) == 0) return forward_nothing(replica, input);
  torch::nn::Module& module = *replica.made.module;
  if (module.is_training() != args.training) module.train(args.training);
  keep_buffers(replica, args);
  return replica.made.forward(input);
}

// Many modules cannot take an empty batch, and none should count it in its statistics. The output
// depends on the parameters and the input, so that gradients are zero, as those of other layers.
Tensor TorchLayer::forward_nothing(const Replica& replica, const Tensor& input) const {
  Shape one = shape_of(input);
  one[0] = 1;
  replica.made.module->eval();
  return replica.made.forward(at::cat({input, at::zeros(one, input.options())})).narrow(0, 0, 0);
}

Tensor TorchLayer::forward_zeros(const Shape& shape, DType dtype) const {
  return replicas_[0].made.forward(at::zeros(shape, at::TensorOptions().dtype(dtype)));
}

Shape TorchLayer::compute_output_shape(const Shape& input_shape) const {
  if (input_shape.empty() || replicas_.empty() || !replicas_[0].made.forward) return input_shape;
  Shape shape = input_shape;
  shape[0] = 2;
  if (std::ranges::count(shape, kUnknownDim) > 0) return {kUnknownDim};
  const at::NoGradGuard no_grad;
  torch::nn::Module& module = *replicas_[0].made.module;
  const bool training = module.is_training();
  module.eval();
  Tensor output;
  try {
    output = forward_zeros(shape, module_type_.value_or(floatx()));
  } catch (const c10::Error& error) {
    try {
      output = forward_zeros(shape, kInt64);  // an embedding's
    } catch (const c10::Error&) {
      module.train(training);
      throw InvalidArgument(str_cat("[", name(), "] expected inputs that the module can take, got ",
                                    bracketed(input_shape), ": ",
                                    first_line(error.what_without_backtrace())));
    }
  }
  module.train(training);
  Shape out = shape_of(output);
  if (!out.empty()) out[0] = kUnknownDim;
  return out;
}

TorchLayer& torch_layer_of(LayerBase& layer) { return dynamic_cast<TorchLayer&>(layer); }

}  // namespace

std::shared_ptr<torch::nn::Module> cloned(const torch::nn::Module& module) {
  try {
    return module.clone();
  } catch (const c10::Error& error) {
    throw InvalidArgument(
        str_cat("[torch_module] expected a module that can be cloned for each replica, got ",
                module.name(), ": ", first_line(error.what_without_backtrace()),
                " Give a function that builds the module instead"));
  }
}

Layer torch_layer(TorchFactory make, std::string name) {
  return Layer(std::make_shared<TorchLayer>(std::move(make), std::move(name)));
}

void build_torch_layer(LayerBase& layer) { layer.ensure_built({}); }
torch::nn::Module& local_module(LayerBase& layer) { return torch_layer_of(layer).local(); }
std::vector<torch::nn::Module*> all_modules(LayerBase& layer) {
  return torch_layer_of(layer).all();
}

std::vector<std::vector<Tensor>> leaves_per_replica(std::span<const Variable> variables) {
  COHORT_CHECK_ARG(!variables.empty(),
                   "[distributed_optimizer] expected at least one variable, got none; a layer has "
                   "them when it is built");
  COHORT_CHECK_STATE(current_replica() < 0 || current_replica_count() == 1,
                     "[distributed_optimizer] expected cross-replica context, got a replica");
  std::vector<std::vector<Tensor>> leaves(
      static_cast<std::size_t>(variables[0].impl().leaf_count()));
  for (const Variable& v : variables) {
    COHORT_CHECK_ARG(v.impl().leaf_count() == static_cast<int>(leaves.size()),
                     "[distributed_optimizer] expected variables of one strategy, got ",
                     cohort::internal::variables::label(v.impl()), " with ", v.impl().leaf_count(),
                     " components, others with ", leaves.size());
    for (std::size_t r = 0; r < leaves.size(); ++r) {
      leaves[r].push_back(v.impl().leaf_of(static_cast<int>(r)).tensor);
    }
  }
  return leaves;
}

namespace {

void step_on_own_copies(std::span<const Variable> variables, const std::function<void()>& step) {
  cohort::internal::runtime::ReplicaGroup* group =
      cohort::internal::runtime::current_replica_group();
  const bool shared =
      group != nullptr && group->size() > 1 &&
      std::any_of(variables.begin(), variables.end(), [](const Variable& v) {
        return v.impl().numel() > 0 && v.impl().leaf_of(0).tensor.const_data_ptr() ==
                                           v.impl().leaf_of(1).tensor.const_data_ptr();
      });
  if (!shared) return step();
  if (current_replica() == 0) step();
  group->barrier();
  if (current_replica() == 0) return;
  // Changed behind the back of this replica's leaves: a backward pass over them must notice.
  for (const Variable& v : variables) {
    v.impl().leaf().tensor.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace

void step_once_per_copy(std::span<const Variable> variables, const std::function<void()>& step) {
  step_on_own_copies(variables, step);
  // The weights are written: what the step has moved stays, even if a later one in this run fails.
  if (cohort::internal::variables::StepUndo* undo =
          cohort::internal::variables::StepUndo::current())
    undo->commit();
}

std::size_t local_replica(std::size_t count) {
  const int replica = current_replica();
  if (replica < 0) return 0;
  COHORT_CHECK_STATE(current_replica_count() == static_cast<int>(count),
                     "[torch_module] expected a module made under the scope of this strategy (",
                     current_replica_count(), " replicas), got one for ", count);
  return static_cast<std::size_t>(replica);
}

}  // namespace cohort::keras::internal
