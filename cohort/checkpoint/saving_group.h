// SPDX-License-Identifier: Apache-2.0
//
// The processes whose objects one checkpoint is of, such as the workers of a strategy; internal.
// They save together and restore together; files are read and written by the chief alone.
//
//   together(group.get(), "checkpoint.save", [&] {
//     const Tensor total = sum.value();                       // perhaps of all of them
//     on_chief(group.get(), [&] { save_tensors(path, {{"total", total}}); });
//   });
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "cohort/base/function_ref.h"
#include "cohort/runtime/tensor.h"

namespace cohort::internal::checkpoint {

/// Threads: one caller at a time in each process.
class SavingGroup {
 public:
  virtual ~SavingGroup() = default;
  /// 0: the chief.
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Calls body as this process's part of what all do; what one throws all throw. Inside of
  /// another part just calls body. `operation`: for error texts.
  virtual void together(const char* operation, base::FunctionRef<void()> body) = 0;

  // Parts of what all do together: each of them calls, in the same order.

  /// The chief's bytes, everywhere; as many on each. Ends when all have called.
  virtual void broadcast(std::span<std::byte> bytes) = 0;
  /// The texts of all, by rank.
  virtual std::vector<std::string> gather(const std::string& here) = 0;

  /// The sum of a number of each; what all do together by itself. Cost: one small message to each.
  virtual int64_t sum(int64_t here) = 0;
};

/// `group` may be null in what follows: this process is alone.

void together(SavingGroup* group, const char* operation, base::FunctionRef<void()> body);
/// True where files are read and written.
bool is_chief(const SavingGroup* group);
/// fn on the chief; ends everywhere when that has.
void on_chief(SavingGroup* group, base::FunctionRef<void()> fn);
/// The chief's, everywhere.
std::string from_chief(SavingGroup* group, std::string text);
std::map<std::string, std::string> from_chief(SavingGroup* group,
                                              const std::map<std::string, std::string>& texts);
std::map<std::string, Tensor> from_chief(SavingGroup* group, std::map<std::string, Tensor> tensors);
/// Waits for all, after which each may end its process and is not missed. Throws nothing.
void leave_together(SavingGroup* group) noexcept;
/// Errors: FailedPrecondition with the first line that differs on two of them, on all.
void check_same_lines(SavingGroup* group, const char* operation, const char* what,
                      const std::string& lines);

}  // namespace cohort::internal::checkpoint
