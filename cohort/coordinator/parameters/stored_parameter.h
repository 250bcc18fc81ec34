// SPDX-License-Identifier: Apache-2.0
//
// What a parameter server keeps of one variable, or of one shard of it: its value and the slots of
// the optimizers that train it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/coordinator/parameters/message.h"
#include "cohort/coordinator/parameters/push_sum.h"
#include "cohort/coordinator/parameters/stored_table.h"
#include "cohort/runtime/tensor.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::internal::coordinator {

/// Rows [first, first + count) of the first axis; a single number is one row.
struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
};

/// The value, or one of an optimizer's slots.
struct StoredPlace {
  std::string slots = {};  ///< Empty: the value.
  uint64_t slot = 0;
};

/// Tells who waits for numbers how many bytes of them are there. Value.
class Filled {
 public:
  Filled() = default;
  explicit Filled(std::atomic<uint64_t>* word) : word_(word) {}
  void say(std::size_t bytes) const {
    if (word_ != nullptr) word_->store(bytes, std::memory_order_release);
  }

 private:
  std::atomic<uint64_t>* word_ = nullptr;
};

/// Errors, of all: InvalidArgument for places, rows and dtypes that it has not; DataLoss for
/// another number of bytes. Nothing is written then.
/// Threads: thread-safe. Each call sees and leaves whole values: it is one step to all others.
class StoredParameter {
 public:
  /// Not initialised.
  StoredParameter(std::string name, DType dtype, Shape shape);

  const std::string& name() const { return name_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t rows() const { return rows_; }
  std::size_t row_bytes() const { return row_bytes_; }
  /// Of value and slots.
  std::size_t bytes();

  /// Of these rows of the value, or of a slot.
  std::size_t bytes_of(const StoredPlace& place, RowRange range);
  /// Copies to where there is room for the rows, which are so many bytes.
  void read(const StoredPlace& place, RowRange range, std::span<std::byte> to, Filled filled = {});
  void read_rows(const std::vector<int64_t>& rows, std::byte* to, Filled filled = {});
  /// `numbers` holds the rows of the range.
  void write(const StoredPlace& place, variables::Write kind, RowRange range,
             PayloadReader& numbers);
  /// In the order of `rows`, which may repeat.
  void scatter(variables::Scatter kind, const std::vector<int64_t>& rows, PayloadReader& values);

  /// Makes a set of slots, unless it is there. forms: one for each. anew: one that is there is
  /// another one, which has ended. Errors: FailedPrecondition if there is another one of this name,
  /// and for slots unlike a variable whose rows belong to ids.
  void make_slots(const std::string& set, const std::vector<double>& initial,
                  const std::vector<variables::SlotForm>& forms, bool anew = false);
  void drop_slots(const std::string& set);

  /// Value and slots, to the bit: what they are into `out`, and their numbers behind those in
  /// `numbers`. Cost: no copy, until it is changed: each tensor is copied then, once.
  void save(rpc::MessageWriter& out, rpc::Payload& numbers);
  /// Errors: DataLoss.
  static std::shared_ptr<StoredParameter> load(rpc::MessageReader& in, PayloadReader& numbers);

  /// Applies the rule to the rows of the range, with their gradient.
  void update(const UpdateStep& step, RowRange range, PayloadReader& gradient);
  /// The same where only `rows` of the range have a gradient, in ascending order. others_too: what
  /// a gradient of zero does to the others is done, else they are left alone.
  void update_rows(const UpdateStep& step, RowRange range, const std::vector<int64_t>& rows,
                   bool others_too, PayloadReader& gradient);

  /// The first phase of a step (variables/whole_step.h): what its rows add to the sums. Changes
  /// nothing. `numbers`: the gradient, and what else the rule brings, in the dtype that is computed
  /// in.
  variables::WholeSums sums(const WholeStep& step, RowRange range, bool moves_columns,
                            PayloadReader& numbers);
  /// The second one: rows and slots are stepped by the rule as it is, whatever has been pushed
  /// since the sums were taken. No sum is taken here: copies make the same bits of it, however many
  /// threads they have. Errors: FailedPrecondition without the rule's slots.
  void update_whole(const WholeStep& step, RowRange range, bool moves_columns,
                    PayloadReader& numbers);

  /// From here on its rows belong to ids (stored_table.h), and are not named by numbers any more.
  /// It may be said again. Errors: FailedPrecondition for other options than before.
  void make_table(const variables::IdTableOptions& options);
  /// IdTable::see. Rows that change hands, and slots beside them, begin anew.
  int64_t see_ids(std::span<const int64_t> ids, std::span<const int64_t> counts, bool begins_step);
  /// Copies the ids' rows, and behind them a byte for each that says whether it has one; one that
  /// has none gets zeros.
  void read_ids(std::span<const int64_t> ids, std::byte* to);
  /// update_rows() of the ids' rows, wherever these are by now; ids each once. What comes for one
  /// that has none any more is left out.
  void update_ids(const UpdateStep& step, std::span<const int64_t> ids, bool others_too,
                  PayloadReader& gradient);
  TablePage table_page(uint64_t first, uint64_t most);
  void restore_table(uint64_t total, uint64_t of_rows, uint64_t first,
                     const std::vector<int64_t>& part);
  /// Names of the optimizers' sets, and how many slots each has.
  std::vector<std::pair<std::string, uint64_t>> slot_sets();

  /// As update() of all rows, but one update for stamp.needed pushes: with their mean, by the rule
  /// of the last one. A late one changes nothing. Errors: FailedPrecondition without make_slots().
  PushCount accumulate(const UpdateStep& step, const PushStamp& stamp, PayloadReader& gradient);
  PushCount accumulate_rows(const UpdateStep& step, const PushStamp& stamp,
                            const std::vector<int64_t>& rows, bool others_too,
                            PayloadReader& gradient);
  /// No more come: those that wait, if any do, are an update with the mean of so many.
  void complete_update(const std::string& set);
  /// How many bytes accumulate() asks for at most, or accumulate_rows() of so many rows.
  std::size_t room_for_push(const std::string& set, std::optional<std::size_t> named);
  /// The value is the number of an optimizer's updates, and this is a push whose parts have all
  /// arrived; every stamp.needed of them add 1. Errors: InvalidArgument unless it is an int64.
  PushCount count_push(const PushStamp& stamp);
  /// As complete_update(): pushes that wait to be counted are an update. Returns how many there are
  /// by now.
  uint64_t complete_count();
  uint64_t push_step();

 private:
  struct SlotSet {
    std::vector<double> initial;
    std::vector<variables::SlotForm> forms;
    std::vector<Tensor> values;
    PushSum pushed = {};
  };
  void check_range(RowRange range) const;
  void check_range(RowRange range, int64_t rows) const;
  template <class T>
  update_rules::Target<T> target(const UpdateStep& step) COHORT_REQUIRES(mutex_);
  template <class T>
  void update_blocks(const UpdateStep& step, RowRange range, const std::vector<int64_t>* rows,
                     PayloadReader& gradient) COHORT_REQUIRES(mutex_);
  template <class T>
  void update_named_rows(const UpdateStep& step, const std::vector<int64_t>& rows,
                         PayloadReader& gradient) COHORT_REQUIRES(mutex_);
  template <class T>
  void apply_rows_of(const UpdateStep& step, RowRange range, const std::vector<int64_t>& rows,
                     bool others_too, PayloadReader& gradient) COHORT_REQUIRES(mutex_);
  void apply(const UpdateStep& step, RowRange range, PayloadReader& gradient)
      COHORT_REQUIRES(mutex_);
  void apply_rows(const UpdateStep& step, RowRange range, const std::vector<int64_t>& rows,
                  bool others_too, PayloadReader& gradient) COHORT_REQUIRES(mutex_);
  PushSum& sum_of(const std::string& set) COHORT_REQUIRES(mutex_);
  PushCount note_push(PushSum& sum, const UpdateStep& step, const PushStamp& stamp)
      COHORT_REQUIRES(mutex_);
  void apply_sum(PushSum& sum) COHORT_REQUIRES(mutex_);
  void count_update() COHORT_REQUIRES(mutex_);
  Tensor& tensor_at(const StoredPlace& place) COHORT_REQUIRES(mutex_);
  /// Before it is changed: a snapshot keeps it as it was.
  static void own(Tensor& x);
  void own_updated(const UpdateStep& step) COHORT_REQUIRES(mutex_);
  /// By rows: [rows, row].
  Tensor rows_of(const StoredPlace& place, RowRange range) COHORT_REQUIRES(mutex_);
  StoredTable& table() COHORT_REQUIRES(mutex_);
  void check_by_numbers() const COHORT_REQUIRES(mutex_);
  void check_slots(const UpdateStep& step) const COHORT_REQUIRES(mutex_);
  void check_updated(const UpdateStep& step) const COHORT_REQUIRES(mutex_) {
    check_by_numbers();
    check_slots(step);
  }
  void check_whole(const WholeStep& step) const COHORT_REQUIRES(mutex_);
  variables::WholeRows whole_rows(const WholeStep& step, RowRange range) COHORT_REQUIRES(mutex_);
  variables::WholeGradient received(const WholeStep& step, RowRange range, bool moves_columns,
                                    PayloadReader& numbers) const;
  Tensor received(int64_t rows, PayloadReader& numbers) const;

  const std::string name_;
  const DType dtype_;
  const Shape shape_;
  const int64_t rows_;
  const int64_t width_;  // elements of a row
  const std::size_t row_bytes_;
  base::Mutex mutex_;
  Tensor value_ COHORT_GUARDED_BY(mutex_);
  std::map<std::string, SlotSet> slots_ COHORT_GUARDED_BY(mutex_);
  PushSum counted_ COHORT_GUARDED_BY(mutex_);  // of a variable that counts updates
  std::unique_ptr<StoredTable> table_ COHORT_GUARDED_BY(mutex_);  // null: rows have numbers
};

}  // namespace cohort::internal::coordinator
