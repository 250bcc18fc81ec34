// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/directory.h"

#include <utility>

#include "cohort/base/check.h"
#include "cohort/coordinator/parameters/message.h"
#include "cohort/coordinator/partitioners.h"

namespace cohort::internal::coordinator {

Directory::Found Directory::find_or_place(const Declaration& asked) {
  const int64_t rows = asked.shape.empty() ? 1 : asked.shape[0];
  COHORT_CHECK_ARG(
      !asked.name.empty() && asked.servers > 0 && asked.parts > 0 &&
          (asked.parts == 1 || asked.parts <= rows) && asked.server.value_or(0) < asked.servers,
      "[variable] expected a name, and parts of at least one row each, for \"", asked.name,
      "\", got ", asked.parts, " parts of ", rows, " rows on ", asked.servers, " servers");
  const base::MutexLock lock(mutex_);
  auto found = entries_.find(asked.name);
  if (found != entries_.end() && found->second.generation <= asked.ended) {
    entries_.erase(found);
    found = entries_.end();
  }
  if (found != entries_.end()) {
    const Declaration& is = found->second.what;
    COHORT_CHECK_STATE(is.dtype == asked.dtype && is.shape == asked.shape, "[variable] expected \"",
                       asked.name, "\" to be ", dtype_name(is.dtype), " ", bracketed(is.shape),
                       ", as another process has made it, got ", dtype_name(asked.dtype), " ",
                       bracketed(asked.shape), "; give it another name");
    return {
        .is_new = false, .generation = found->second.generation, .shards = found->second.shards};
  }
  Entry made{.what = asked, .generation = ++generations_, .shards = {}};
  int64_t first = 0;
  for (const int64_t part : split_sizes(rows, asked.parts)) {
    const auto next = static_cast<int>(placed_ % static_cast<uint64_t>(asked.servers));
    if (!asked.server) ++placed_;
    made.shards.push_back({asked.server.value_or(next), first, part});
    first += part;
  }
  const Entry& kept = entries_.emplace(asked.name, std::move(made)).first->second;
  return {.is_new = true, .generation = kept.generation, .shards = kept.shards};
}

Declaration Directory::find(const std::string& name, Found* out) const {
  const base::MutexLock lock(mutex_);
  const auto found = entries_.find(name);
  COHORT_CHECK_ARG(found != entries_.end(), "[variable] expected a variable of the parameter ",
                   "servers, got \"", name, "\", which nobody has made");
  *out = {.is_new = false, .generation = found->second.generation, .shards = found->second.shards};
  return found->second.what;
}

void Directory::forget(const std::string& name, uint64_t generation) {
  const base::MutexLock lock(mutex_);
  const auto found = entries_.find(name);
  if (found != entries_.end() && found->second.generation == generation) entries_.erase(found);
}

void Directory::clear() {
  const base::MutexLock lock(mutex_);
  entries_.clear();
  placed_ = 0;
}

void Directory::save(rpc::MessageWriter& out) const {
  const base::MutexLock lock(mutex_);
  out.number(placed_);
  out.number(generations_);
  out.number(entries_.size());
  for (const auto& [name, entry] : entries_) {
    out.text(name);
    out.number(entry.generation);
    out.number(wire_dtype(entry.what.dtype));
    write_shape(out, entry.what.shape);
    out.number(entry.shards.size());
    for (const Shard& shard : entry.shards) {
      out.signed_number(shard.server);
      out.signed_number(shard.first);
      out.signed_number(shard.rows);
    }
  }
}

void Directory::load(rpc::MessageReader& in) {
  const base::MutexLock lock(mutex_);
  entries_.clear();
  placed_ = in.number();
  generations_ = in.number();
  for (uint64_t left = in.number(); left > 0; --left) {
    Entry entry;
    entry.what.name = in.text();
    entry.generation = in.number();
    entry.what.dtype = read_dtype(in);
    entry.what.shape = read_shape(in);
    for (uint64_t shards = in.number(); shards > 0; --shards) {
      Shard& shard = entry.shards.emplace_back();
      shard.server = static_cast<int>(in.signed_number());
      shard.first = in.signed_number();
      shard.rows = in.signed_number();
    }
    const std::string name = entry.what.name;
    entries_.emplace(name, std::move(entry));
  }
}

}  // namespace cohort::internal::coordinator
