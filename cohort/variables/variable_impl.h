// SPDX-License-Identifier: Apache-2.0
//
// What is behind a Variable handle, and the hook through which a scope decides what is made.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/values/indexed_slices.h"
#include "cohort/variables/arena.h"
#include "cohort/variables/variable.h"

namespace cohort::internal {

class ParameterStore;

/// Where one replica's gradient of a variable goes during a backward pass.
struct GradientSlot {
  Tensor view;           ///< The variable's place in the gradient buffer of this pass.
  bool written = false;  ///< Something was written in this pass: later writes add.
  bool summed = false;   ///< `view` has the engine's part, too (see Component::adopt).
  std::vector<IndexedSlices> rows = {};  ///< Parts of the gradient that `view` does not have.
};

/// True if there are `handles` handles to the tensor, and nothing else shares its memory (another
/// view, detach()). Whatever others did with it has happened before.
bool has_only_handles(const Tensor& tensor, uint32_t handles);

/// One replica's copy of a variable. Threads: bound to its replica's thread; but of a strategy's
/// only replica several threads may compute gradients at once.
struct Component {
  Tensor tensor;  ///< A leaf that requires gradients if the variable is trainable.
  std::shared_ptr<ArenaRange> range;  ///< Where it lies; null where it owns its memory.
  GradientSlot slot;
  const ThreadSlots* slot_thread = nullptr;  ///< Whose pass has opened the slot, or null.
  std::shared_ptr<void> accumulator;  ///< Keeps the leaf's autograd node alive: one per variable.
  std::vector<std::pair<GradientBuffer*, Tensor>> gradient_views;

  /// Where that is; null where it owns its memory.
  const std::shared_ptr<Arena>& arena() const;
  /// Opens the slot for a pass of the calling thread. False if another thread's pass has it: this
  /// one then gets its gradients as any LibTorch node gives them.
  bool open_slot() {
    const ThreadSlots* nobody = nullptr;
    return std::atomic_ref(slot_thread)
        .compare_exchange_strong(nobody, &t_slots, std::memory_order_acquire);
  }
  /// True if a pass of this thread asks for the variable: nodes write into `slot.view`.
  bool has_open_slot() {
    return std::atomic_ref(slot_thread).load(std::memory_order_relaxed) == &t_slots;
  }
  void close_slot() {
    slot = {};
    std::atomic_ref(slot_thread).store(nullptr, std::memory_order_release);
  }
  /// This variable's view of `buffer`, made once per buffer; undefined while anybody still holds
  /// what was handed out before. Of a component in an arena.
  Tensor free_gradient_view(GradientBuffer& buffer);
  /// The buffer that `gradient` is such a view of; null for any other tensor.
  GradientBuffer* buffer_of(const Tensor& gradient) const;
  /// Makes `leaf` the component's tensor: it takes over the memory and keeps its identity, so that
  /// whoever holds it (a torch::nn::Module) computes with the component. What it held is lost; a
  /// hook puts its gradients into the slot. Replicas must be at rest.
  /// Errors: InvalidArgument unless it is a leaf of the same shape and type.
  void adopt(const Tensor& leaf);
};

enum class Write { kAssign, kAdd, kSub };
/// What happens to the rows that slices name.
enum class Scatter { kAdd, kSub, kMul, kDiv, kMin, kMax, kUpdate };

/// Base of all kinds of variables. A kind has to say what its value is, how it is written, and what
/// a replica computes with: the leaf. The rest follows for one that has a single component, in
/// memory of its own.
class VariableImpl : public std::enable_shared_from_this<VariableImpl> {
 public:
  struct Description {
    std::string name;
    Shape shape;
    DType dtype = kFloat32;
    bool trainable = true;
    Synchronization synchronization = Synchronization::kOnWrite;
    Aggregation aggregation = Aggregation::kNone;
    std::function<Tensor(const Tensor&)> constraint;
    std::vector<Device> devices;  ///< Of the components.
  };

  explicit VariableImpl(Description description);
  virtual ~VariableImpl() = default;
  VariableImpl(const VariableImpl&) = delete;
  VariableImpl& operator=(const VariableImpl&) = delete;

  const Description& description() const { return description_; }
  /// Counts the variables of the process: for texts, where names need not be unique.
  int64_t number() const { return number_; }

  virtual Tensor value() const = 0;
  /// Rows of value(), as copies. Shapes: rows [n], checked; result [n, shape[1:]...].
  /// Cost: the rows.
  virtual Tensor gather_rows(const Tensor& rows) const;
  virtual Tensor write(Write kind, const Tensor& x) = 0;
  virtual Tensor write(Write kind, double literal);
  virtual void write(Write kind, const PerReplica<Tensor>& x);
  /// Errors: Unimplemented where a kind of variable cannot.
  virtual void scatter(Scatter kind, const IndexedSlices& slices);
  virtual std::vector<Variable> components() { return {Variable(shared_from_this())}; }
  /// Of one of components() the whole variable; of a whole one itself.
  virtual Variable container() { return Variable(shared_from_this()); }
  /// What two handles of one variable agree in.
  virtual const void* identity() const { return this; }

  /// The leaf: the component of the calling replica, or the first one outside.
  virtual Component& local_component() = 0;
  virtual Component& component(int replica);
  /// As many as replicas, also where they share their memory.
  virtual int component_count() const { return 1; }
  /// Separate pieces of memory: component_count(), or 1 if all components share theirs.
  virtual int copies() const { return component_count(); }

  int64_t numel() const { return numel_; }
  /// Which strategy's store made this: the identity that mixing errors compare. Null for what
  /// objects keep outside of every store.
  ParameterStore* store() const { return store_; }

  /// Errors: InvalidArgument unless x is a number or has the variable's shape, and for a dtype that
  ///         would lose more than precision: floating to integer, complex to real, any to bool.
  void check_value(const char* operation, const Tensor& x) const;
  /// Errors: InvalidArgument unless `indices`, int32 or int64 of any shape, name rows it has.
  void check_rows(const char* operation, const Tensor& indices) const;
  /// Errors: InvalidArgument unless these are rows [n, shape[1:]...] that it has.
  void check_slices(const char* operation, const IndexedSlices& slices) const;

 protected:
  Description description_;
  ParameterStore* store_ = nullptr;

 private:
  const int64_t number_;
  const int64_t numel_;
};

/// "\"w\" (variable 7)", for error texts.
std::string label(const VariableImpl& variable);
/// Whose it is, for error texts: "MirroredStrategy#1 over CPU:0, CPU:1".
std::string owner_of(const VariableImpl& variable);

/// Decides what `Variable v(...)` makes: a strategy's ParameterStore, or what refuses to.
class VariableCreator {
 public:
  virtual ~VariableCreator() = default;
  virtual std::shared_ptr<VariableImpl> create(const InitialValue& initial,
                                               const VariableOptions& options) = 0;
  /// The strategy's name, for error texts.
  virtual std::string owner() const { return "another strategy"; }
};

/// The creator of the innermost scope of this thread, else the default one.
VariableCreator& current_variable_creator();

/// Installs a creator on this thread for its lifetime, and keeps it alive.
class [[nodiscard]] VariableCreatorScope {
 public:
  explicit VariableCreatorScope(std::shared_ptr<VariableCreator> creator);

 private:
  const std::shared_ptr<VariableCreator> creator_;
  ContextFrame frame_;
};

}  // namespace cohort::internal
