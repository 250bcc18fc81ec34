// SPDX-License-Identifier: Apache-2.0
//
// What is behind a Variable handle, and the hook through which a scope decides what is made.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/runtime/thread_context.h"
#include "cohort/values/indexed_slices.h"
#include "cohort/variables/leaf.h"
#include "cohort/variables/variable.h"

namespace cohort::internal::coordinator {
class RemoteVariable;
}  // namespace cohort::internal::coordinator
namespace cohort::internal::variables {

class LocalImpl;
class LocalVariables;
class ParameterStore;

enum class Write { kAssign, kAdd, kSub };
/// What happens to the rows that slices name.
enum class Scatter { kAdd, kSub, kMul, kDiv, kMin, kMax, kUpdate };

/// Base of all kinds of variables. A kind has to say what its value is, how it is written, and what
/// a replica computes with: the leaf. The rest follows for one that has a single leaf.
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
    std::vector<Device> devices;  ///< Of components().
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

  /// What the calling replica computes with; outside of replicas the first one's.
  virtual Leaf& leaf() = 0;
  virtual Leaf& leaf_of(int replica);
  /// As many as local replicas, also where they share their memory; 1 where this process reads what
  /// others keep.
  virtual int leaf_count() const { return 1; }
  /// How many pieces of memory there are: leaf_count(), or 1 if all leaves share one.
  virtual int copies() const { return leaf_count(); }
  /// The variable as one whose leaves are components in this process's memory (component.h); null
  /// for all other kinds.
  virtual LocalImpl* local() { return nullptr; }
  /// The variable as one that parameter servers keep, or a shard of one; null for all other kinds.
  virtual coordinator::RemoteVariable* remote() { return nullptr; }

  int64_t numel() const { return numel_; }
  /// Which strategy's store made this: the identity that mixing errors compare. Null for what
  /// objects keep outside of every store.
  ParameterStore* store() const { return store_; }

  /// Errors: InvalidArgument unless x is a number or has the variable's shape, and for a dtype that
  ///         would lose more than precision: floating to integer, complex to real, any to bool.
  void check_value(const char* operation, const Tensor& x) const;
  /// Errors: InvalidArgument unless `indices`, int32 or int64 of any shape, name rows it has. What
  ///         those in a GPU's memory are is not looked at.
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

/// Rows of a table, as copies; on GPUs zeros for ids out of range, as TensorFlow. Shapes: rows [n].
Tensor select_rows(const Tensor& table, const Tensor& rows);

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
  /// The creator as the store of this process's memory (local_variables.h); null for all others.
  virtual const LocalVariables* local() const { return nullptr; }
};

/// The creator of the innermost scope of this thread, else the default one.
VariableCreator& current_variable_creator();

/// Installs a creator on this thread for its lifetime, and keeps it alive.
class [[nodiscard]] VariableCreatorScope {
 public:
  explicit VariableCreatorScope(std::shared_ptr<VariableCreator> creator);

 private:
  const std::shared_ptr<VariableCreator> creator_;
  runtime::ContextFrame frame_;
};

}  // namespace cohort::internal::variables
