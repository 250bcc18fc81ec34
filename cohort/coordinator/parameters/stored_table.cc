// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/stored_table.h"

#include <algorithm>
#include <span>
#include <utility>

#include "cohort/base/check.h"

namespace cohort::internal::coordinator {
namespace {

constexpr uint64_t kMostRows = uint64_t{1} << 48;

void write_numbers(rpc::MessageWriter& out, rpc::Payload& to, const std::vector<int64_t>& numbers) {
  out.number(numbers.size());
  append_rows(to, numbers);
}

std::vector<int64_t> read_numbers(rpc::MessageReader& in, PayloadReader& from) {
  return from.integers(in.number_up_to(from.left()));
}

}  // namespace

void write_table_options(rpc::MessageWriter& out, const variables::IdTableOptions& options) {
  const variables::IdMapOptions& map = options.map;
  out.signed_number(map.capacity);
  out.signed_number(map.admit_after);
  out.signed_number(map.candidates);
  out.number(static_cast<uint64_t>(map.when_full));
  out.signed_number(map.steps_to_live.value_or(0));
  out.number(options.seed);
  out.float64(options.minval);
  out.float64(options.maxval);
}

variables::IdTableOptions read_table_options(rpc::MessageReader& in) {
  variables::IdTableOptions out;
  variables::IdMapOptions& map = out.map;
  map.capacity = static_cast<int64_t>(in.number_up_to(kMostRows));
  map.admit_after = static_cast<int64_t>(in.number_up_to(kMostRows));
  map.candidates = static_cast<int64_t>(in.number_up_to(kMostRows));
  map.when_full =
      static_cast<WhenFull>(in.number_up_to(static_cast<uint64_t>(WhenFull::kLeastFrequentlyUsed)));
  if (const uint64_t steps = in.number_up_to(kMostRows); steps > 0) {
    map.steps_to_live = static_cast<int64_t>(steps);
  }
  out.seed = in.number();
  out.minval = in.float64();
  out.maxval = in.float64();
  return out;
}

TablePage StoredTable::page(uint64_t first, uint64_t most) {
  TablePage out{.counts = {.size = map.size(),
                           .candidates = map.candidates(),
                           .evicted = map.evicted(),
                           .refused = map.refused()},
                .version = version,
                .total = numbers.size() + static_cast<uint64_t>(map.saved_size()),
                .of_rows = numbers.size()};
  const uint64_t end = first > out.total ? first : first + std::min(most, out.total - first);
  if (end > out.of_rows && shown_version_ != version) {
    shown_ = map.save();
    shown_version_ = version;
  }
  for (uint64_t i = first; i < end; ++i) {
    out.part.push_back(i < out.of_rows ? numbers[i] : shown_[i - out.of_rows]);
  }
  if (end == out.total) {  // nobody asks again
    shown_ = {};
    shown_version_ = ~uint64_t{0};
  }
  return out;
}

void StoredTable::restore(uint64_t total, uint64_t of_rows, uint64_t first,
                          const std::vector<int64_t>& part) {
  constexpr const char* kRestore = "[ps.restore_table] ";
  const auto rows = static_cast<uint64_t>(options.map.capacity);
  COHORT_CHECK_ARG(of_rows <= total && (of_rows == 0 || of_rows == rows), kRestore,
                   "expected the ids of all ", rows,
                   " rows of this table or of none, got those of ", of_rows,
                   "; restore into a table of as many rows as the saved one had");
  COHORT_CHECK_ARG(total - of_rows <= static_cast<uint64_t>(map.most_saved()), kRestore,
                   "expected at most the ", map.most_saved(), " numbers that a table of ", rows,
                   " rows saves beside those of its rows, got ", total - of_rows,
                   "; give the table as many rows and candidates as the saved one had");
  if (first == 0) arriving.clear();
  COHORT_CHECK_STATE(first == arriving.size() && part.size() <= total - first, kRestore,
                     "expected what follows number ", arriving.size(), ", got number ", first,
                     "; restore the table again, by one process");
  arriving.insert(arriving.end(), part.begin(), part.end());
  if (arriving.size() < total) return;
  const std::vector<int64_t> all = std::exchange(arriving, {});
  const auto behind = all.begin() + static_cast<std::ptrdiff_t>(of_rows);
  std::vector<int64_t> known(all.begin(), behind);
  map.restore(std::span(behind, all.end()));
  numbers = std::move(known);
  ++version;
}

void StoredTable::save(rpc::MessageWriter& out, rpc::Payload& to) const {
  write_table_options(out, options);
  write_numbers(out, to, map.save());
  write_numbers(out, to, numbers);
  write_numbers(out, to, arriving);
  out.number(version);
}

std::unique_ptr<StoredTable> StoredTable::load(rpc::MessageReader& in, PayloadReader& from) {
  auto out = std::make_unique<StoredTable>(read_table_options(in));
  out->map.restore(read_numbers(in, from));
  out->numbers = read_numbers(in, from);
  out->arriving = read_numbers(in, from);
  out->version = in.number();
  return out;
}

}  // namespace cohort::internal::coordinator
