// SPDX-License-Identifier: Apache-2.0
//
// Functions that run on workers: no code is sent, all tasks run one program, and a function is
// called by its name.
//
//   Tensor square(const Tensor& x) { return x * x; }
//   COHORT_REGISTER_FUNCTION(square);
//
// Parameters: nests (by value or const&), Variable, InputContext, and T&, this worker's own of a
// PerWorkerValues<T>. Result: a nest or void; std::shared_ptr<T> of a function that makes a
// resource, Dataset of one that makes a dataset.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "cohort/coordinator/internal/call_codec.h"
#include "cohort/data/core/input_context.h"
#include "cohort/data/dataset.h"
#include "cohort/variables/variable.h"

namespace cohort {

template <class T>
class PerWorkerValues;

/// Which worker runs this function. Errors: FailedPrecondition outside of a scheduled function.
/// TF: distribute.coordinator.experimental_get_current_worker_index.
int get_current_worker_index();

namespace internal::coordinator {

/// What a function's call finds on the worker that runs it.
class CallSite {
 public:
  virtual ~CallSite() = default;
  /// Errors: what the making of it threw; InvalidArgument for one of another type.
  virtual std::shared_ptr<void> resource(uint64_t id, const std::type_info& type) = 0;
  virtual Variable variable(const std::string& name) = 0;
  /// The pipeline of the worker that asks, one of as many as there are workers.
  virtual cohort::data::InputContext input_context() = 0;
};

/// nullopt: of the worker that reads it.
void write_context(ValueWriter& out, const std::optional<cohort::data::InputContext>& context);
cohort::data::InputContext read_context(ValueReader& in, CallSite& site);

/// A resource that a function has made.
struct MadeResource {
  std::shared_ptr<void> value = {};
  const std::type_info* type = nullptr;
};

using AnyFunction = void (*)();
/// Reads arguments, calls, writes the result.
using CallThunk = void (*)(AnyFunction f, ValueReader& in, CallSite& site, ValueWriter& out);
using MakeThunk = MadeResource (*)(AnyFunction f, ValueReader& in, CallSite& site);

struct RegisteredFunction {
  std::string name = {};
  std::string signature = {};
  AnyFunction function = nullptr;
  CallThunk call = nullptr;
  MakeThunk make = nullptr;
  bool makes_dataset = false;
};

void register_function(RegisteredFunction function);
/// Errors: InvalidArgument for one that is not registered, or whose name two have.
const RegisteredFunction& registered_function(AnyFunction function, const char* operation);
const RegisteredFunction& registered_function(const std::string& name, const char* operation);
/// Names and signatures of all, by name. Errors: InvalidArgument for a name that two have.
std::vector<std::pair<std::string, std::string>> registered_functions();

template <class T>
inline constexpr bool makes_resource_v = false;
template <class T>
inline constexpr bool makes_resource_v<std::shared_ptr<T>> = true;
template <>
inline constexpr bool makes_resource_v<cohort::data::Dataset> = true;

/// How one parameter is given.
template <class P>
struct Parameter {
  using Value = std::remove_cvref_t<P>;
  static constexpr bool kIsVariable = std::is_same_v<Value, Variable>;
  static constexpr bool kIsChanged =
      std::is_lvalue_reference_v<P> && !std::is_const_v<std::remove_reference_t<P>>;
  static constexpr bool kIsContext =
      std::is_same_v<Value, cohort::data::InputContext> && !kIsChanged;
  static constexpr bool kIsPerWorker =
      !kIsVariable && !kIsContext &&
      (kIsChanged || (std::is_lvalue_reference_v<P> && !travels<Value>()));
  static_assert(kIsVariable || kIsPerWorker || travels<Value>(),
                "[COHORT_REGISTER_FUNCTION] expected parameters that are nests of tensors, numbers "
                "and texts, Variable, or T& of a PerWorkerValues<T>");
  using Held = std::conditional_t<kIsPerWorker, std::shared_ptr<void>, Value>;

  static Held read(ValueReader& in, CallSite& site) {
    if constexpr (kIsPerWorker) {
      in.kind(ValueKind::kPerWorker);
      return site.resource(in.number(), typeid(Value));
    } else if constexpr (kIsVariable) {
      in.kind(ValueKind::kVariable);
      return site.variable(in.text());
    } else if constexpr (kIsContext) {
      return read_context(in, site);
    } else {
      return read_value<Value>(in);
    }
  }
  static decltype(auto) give(Held& held) {
    if constexpr (kIsPerWorker) {
      return *static_cast<Value*>(held.get());
    } else if constexpr (std::is_lvalue_reference_v<P>) {
      return std::as_const(held);
    } else {
      return std::move(held);
    }
  }
};

template <class R, class... P>
struct Thunks {
  using Function = R (*)(P...);
  using Arguments = std::tuple<typename Parameter<P>::Held...>;

  static R run(AnyFunction f, ValueReader& in, CallSite& site) {
    Arguments held{Parameter<P>::read(in, site)...};  // braces: in their order
    in.end();
    return [&]<std::size_t... I>(std::index_sequence<I...>)->R {
      return reinterpret_cast<Function>(f)(Parameter<P>::give(std::get<I>(held))...);
    }
    (std::index_sequence_for<P...>());
  }
  static void call(AnyFunction f, ValueReader& in, CallSite& site, ValueWriter& out) {
    if constexpr (std::is_void_v<R>) {
      run(f, in, site);
    } else {
      const R result = run(f, in, site);
      write_value(out, result);
    }
  }
  static MadeResource make(AnyFunction f, ValueReader& in, CallSite& site) {
    if constexpr (std::is_same_v<R, cohort::data::Dataset>) {
      return {std::make_shared<cohort::data::Dataset>(run(f, in, site)),
              &typeid(cohort::data::Dataset)};
    } else {
      return {run(f, in, site), &typeid(typename R::element_type)};
    }
  }
};

struct Registration {
  template <class R, class... P>
  Registration(const char* name, R (*f)(P...)) {
    using Result = std::remove_cvref_t<R>;
    RegisteredFunction out{
        .name = name, .signature = typeid(f).name(), .function = reinterpret_cast<AnyFunction>(f)};
    if constexpr (makes_resource_v<Result>) {
      out.make = &Thunks<Result, P...>::make;
      out.makes_dataset = std::is_same_v<Result, cohort::data::Dataset>;
    } else {
      constexpr bool kTravels = [] {
        if constexpr (std::is_void_v<Result>) {
          return true;
        } else {
          return travels<Result>();
        }
      }();
      static_assert(kTravels,
                    "[COHORT_REGISTER_FUNCTION] expected a result that is void or a nest of "
                    "tensors, numbers and texts, or std::shared_ptr<T> or Dataset of a function "
                    "that makes what each worker has its own of");
      out.call = &Thunks<R, P...>::call;
    }
    register_function(std::move(out));
  }
};

/// Says on this thread, and to those it starts, that a worker's function runs.
class [[nodiscard]] RunningFunction {
 public:
  explicit RunningFunction(int worker);
  ~RunningFunction();
  RunningFunction(const RunningFunction&) = delete;
  RunningFunction& operator=(const RunningFunction&) = delete;
};

/// "Tensor(Tensor const&)" for a signature.
std::string readable_signature(const std::string& signature);

}  // namespace internal::coordinator
}  // namespace cohort

/// At namespace scope, in the program that every task runs.
#define COHORT_REGISTER_FUNCTION(f) \
  static const ::cohort::internal::coordinator::Registration cohort_registered_##f(#f, &(f))
