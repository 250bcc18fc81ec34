// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/function.h"

#include <atomic>
#include <map>
#include <set>

#include "cohort/base/check.h"
#include "cohort/base/demangle.h"
#include "cohort/base/fork_locks.h"
#include "cohort/base/mutex.h"

namespace cohort {
namespace internal::coordinator {
namespace {

// Filled before main() begins, by initialisers of the program's sources.
struct FunctionTable {
  base::Mutex mutex;
  std::map<std::string, RegisteredFunction> by_name COHORT_GUARDED_BY(mutex);
  std::map<AnyFunction, std::string> names COHORT_GUARDED_BY(mutex);
  std::set<std::string> twice COHORT_GUARDED_BY(mutex);

  void check_name(const std::string& name, const char* operation) COHORT_REQUIRES(mutex) {
    COHORT_CHECK_ARG(twice.count(name) == 0, operation, "expected one function registered as \"",
                     name, "\", got two of this name; give one of them another");
  }
};

FunctionTable& function_table() {
  static auto* const table = new FunctionTable;  // workers' threads may outlive main()
  [[maybe_unused]] static const bool kept = base::keep_free_over_fork(table->mutex);
  return *table;
}

thread_local int t_worker = -1;
// For threads that a function starts, such as a strategy's replicas.
std::atomic<int> g_worker{-1};

}  // namespace

void register_function(RegisteredFunction function) {
  FunctionTable& table = function_table();
  const base::MutexLock lock(table.mutex);
  const std::string name = function.name;
  table.names.emplace(function.function, name);
  const auto [it, is_new] = table.by_name.emplace(name, std::move(function));
  if (!is_new) table.twice.insert(name);
}

const RegisteredFunction& registered_function(AnyFunction function, const char* operation) {
  FunctionTable& table = function_table();
  const base::MutexLock lock(table.mutex);
  const auto found = table.names.find(function);
  COHORT_CHECK_ARG(found != table.names.end(), operation,
                   "expected a registered function, got one that is not registered; write "
                   "COHORT_REGISTER_FUNCTION(f) after it, in the program that every task runs");
  table.check_name(found->second, operation);
  return table.by_name.at(found->second);
}

const RegisteredFunction& registered_function(const std::string& name, const char* operation) {
  FunctionTable& table = function_table();
  const base::MutexLock lock(table.mutex);
  table.check_name(name, operation);
  const auto found = table.by_name.find(name);
  COHORT_CHECK_ARG(found != table.by_name.end(), operation,
                   "expected a registered function, got \"", name,
                   "\", which this program does not have; start all tasks from one build, in which "
                   "COHORT_REGISTER_FUNCTION stands after the function");
  return found->second;
}

std::vector<std::pair<std::string, std::string>> registered_functions() {
  FunctionTable& table = function_table();
  const base::MutexLock lock(table.mutex);
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [name, entry] : table.by_name) {
    table.check_name(name, "[COHORT_REGISTER_FUNCTION] ");
    out.emplace_back(name, entry.signature);
  }
  return out;
}

void write_context(ValueWriter& out, const std::optional<cohort::data::InputContext>& context) {
  out.kind(ValueKind::kContext);
  out.byte(context ? 1 : 0);
  if (!context) return;
  write_value(out, context->num_input_pipelines);
  write_value(out, context->input_pipeline_id);
  write_value(out, context->num_replicas_in_sync);
}

cohort::data::InputContext read_context(ValueReader& in, CallSite& site) {
  in.kind(ValueKind::kContext);
  if (in.byte() == 0) return site.input_context();
  cohort::data::InputContext out;
  out.num_input_pipelines = read_value<int>(in);
  out.input_pipeline_id = read_value<int>(in);
  out.num_replicas_in_sync = read_value<int>(in);
  return out;
}

RunningFunction::RunningFunction(int worker) {
  t_worker = worker;
  g_worker = worker;
}

RunningFunction::~RunningFunction() {
  t_worker = -1;
  g_worker = -1;
}

std::string readable_signature(const std::string& signature) {
  return base::demangled(signature.c_str());
}

}  // namespace internal::coordinator

int get_current_worker_index() {
  const int worker = internal::coordinator::t_worker >= 0 ? internal::coordinator::t_worker
                                                          : internal::coordinator::g_worker.load();
  COHORT_CHECK_STATE(worker >= 0,
                     "[get_current_worker_index] expected to be called inside of a function that a "
                     "worker runs for ClusterCoordinator::schedule");
  return worker;
}

}  // namespace cohort
