// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/internal/restore_session.h"

#include <algorithm>

#include "cohort/base/check.h"

namespace cohort::internal::checkpoint {
namespace {

constexpr const char* kOperation = "checkpoint.restore";
constexpr std::size_t kMostDifferences = 20;

std::string described(DType dtype, const std::optional<Shape>& shape) {
  return str_cat(dtype_name(dtype), shape ? bracketed(*shape) : std::string("[any]"));
}

bool fits(const std::optional<Shape>& shape, const Tensor& saved) {
  return shape ? *shape == shape_of(saved) : saved.dim() == 1;
}

void set_value(const LiveValue& live, const Tensor& saved) {
  if (live.value.write != nullptr) return live.value.write(saved);
  for (const TrackedPiece& piece : live.value.pieces) {
    Tensor part = saved;
    for (std::size_t i = 0; i < piece.extent.size(); ++i) {
      part = part.narrow(static_cast<int64_t>(i), piece.offset[i], piece.extent[i]);
    }
    piece.write(part.contiguous());
  }
}

bool may_come(const ObjectGraph& graph, const std::string& path) {
  return std::any_of(graph.growing.begin(), graph.growing.end(),
                     [&](const GrowingObject& object) { return is_below(path, object.path); });
}

// One of the further names of a value that is there.
bool is_live(const ObjectGraph& graph, const std::string& path) {
  return std::any_of(graph.values.begin(), graph.values.end(), [&](const LiveValue& live) {
    return std::find(live.paths.begin(), live.paths.end(), path) != live.paths.end();
  });
}

void check_none(const std::vector<std::string>& differences, const std::string& source) {
  if (differences.empty()) return;
  std::vector<std::string> shown(differences.begin(),
                                 differences.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                           kMostDifferences, differences.size())));
  if (shown.size() < differences.size()) {
    shown.push_back(str_cat("and ", differences.size() - shown.size(), " more"));
  }
  throw InvalidArgument(str_cat("[", kOperation, "] expected the values of ", source,
                                " to be those of the program, got ", join(shown, "; "),
                                ". RestoreOptions::allow_partial restores what both have"));
}

}  // namespace

RestoreSession::RestoreSession(Roots roots, SavedValues saved, std::string source,
                               bool allow_partial)
    : roots_(std::move(roots)),
      source_(std::move(source)),
      allow_partial_(allow_partial),
      unfinished_(std::move(saved.unfinished)),
      saved_(std::move(saved.tensors)) {
  for (const auto& [alias, path] : saved.aliases) {
    const auto value = saved_.find(path);
    if (value != saved_.end()) saved_.emplace(alias, value->second);
  }
}

void RestoreSession::match_now() {
  const base::MutexLock lock(mutex_);
  match(true);
}

void RestoreSession::match_later() {
  const base::MutexLock lock(mutex_);
  match(false);
}

std::map<std::string, Tensor> RestoreSession::waiting() const {
  const base::MutexLock lock(mutex_);
  return saved_;
}

std::vector<std::string> RestoreSession::not_saved() const {
  const base::MutexLock lock(mutex_);
  return not_saved_;
}

Tensor RestoreSession::waiting_value(const TrackedObject& object, const std::string& name) const {
  const base::MutexLock lock(mutex_);
  for (const GrowingObject& growing : walk(kOperation, roots_).growing) {
    if (growing.object.get() != &object) continue;
    const auto found = saved_.find(str_cat(growing.path, "/", name));
    if (found != saved_.end()) return found->second;
  }
  return {};
}

void RestoreSession::match(bool first) {
  const ObjectGraph graph = walk(kOperation, roots_);
  if (first) check_none_gone(kOperation, graph);
  std::vector<std::string> differences;
  const std::vector<Pair> pairs = pairs_of(graph, first, differences);
  if (!allow_partial_) find_leftovers(graph, pairs, differences);
  check_none(differences, source_);
  // What can still refuse its bytes (a position in data) comes first.
  for (const bool any_length : {true, false}) {
    for (const Pair& pair : pairs) {
      if (pair.live->value.shape.has_value() != any_length) set_value(*pair.live, pair.saved);
    }
  }
  std::set<const void*> taken;
  for (const Pair& pair : pairs) taken.insert(pair.saved.unsafeGetTensorImpl());
  for (const LiveValue& live : graph.values) {
    const bool is_saved =
        is_done(live) ||
        std::any_of(pairs.begin(), pairs.end(), [&](const Pair& p) { return p.live == &live; });
    if (!is_saved) not_saved_.push_back(live.paths.front());
  }
  for (const LiveValue& live : graph.values) take(live);
  drop_aliases(graph, taken);
  attach(graph, first);
}

// Further paths of what has been taken, unless an object that has one of them may still come.
void RestoreSession::drop_aliases(const ObjectGraph& graph, const std::set<const void*>& taken) {
  std::erase_if(saved_, [&](const auto& entry) {
    return taken.contains(entry.second.unsafeGetTensorImpl()) && !may_come(graph, entry.first);
  });
}

std::vector<RestoreSession::Pair> RestoreSession::pairs_of(
    const ObjectGraph& graph, bool first, std::vector<std::string>& differences) const {
  std::vector<Pair> pairs;
  for (const LiveValue& live : graph.values) {
    if (is_done(live)) continue;
    const auto path = std::find_if(live.paths.begin(), live.paths.end(),
                                   [&](const std::string& p)
                                       COHORT_REQUIRES(mutex_) { return saved_.contains(p); });
    if (path != live.paths.end()) {
      const Tensor& saved = saved_.at(*path);
      compare(live, saved, differences);
      pairs.push_back({&live, saved});
    } else if (!allow_partial_ && (first || !may_be_new(live.paths.front()))) {
      differences.push_back(str_cat(live.paths.front(), ": ",
                                    described(live.value.dtype, live.value.shape),
                                    " in the program, not in the checkpoint"));
    }
  }
  return pairs;
}

void RestoreSession::compare(const LiveValue& live, const Tensor& saved,
                             std::vector<std::string>& differences) const {
  if (live.value.dtype == saved.scalar_type() && fits(live.value.shape, saved)) return;
  differences.push_back(
      str_cat(live.paths.front(), ": expected ", described(live.value.dtype, live.value.shape),
              ", got ", described(saved.scalar_type(), shape_of(saved)), " in the checkpoint"));
}

void RestoreSession::find_leftovers(const ObjectGraph& graph, const std::vector<Pair>& pairs,
                                    std::vector<std::string>& differences) const {
  std::set<const void*> taken;  // by what it holds: a tensor has a place in saved_ for every path
  for (const Pair& pair : pairs) taken.insert(pair.saved.unsafeGetTensorImpl());
  for (const auto& [path, tensor] : saved_) {
    if (taken.contains(tensor.unsafeGetTensorImpl()) || is_live(graph, path)) continue;
    if (may_come(graph, path)) continue;
    differences.push_back(str_cat(path, ": ", described(tensor.scalar_type(), shape_of(tensor)),
                                  " in the checkpoint, not in the program"));
  }
}

void RestoreSession::take(const LiveValue& live) {
  done_.insert(live.paths.begin(), live.paths.end());
  for (const std::string& path : live.paths) saved_.erase(path);
}

void RestoreSession::attach(const ObjectGraph& graph, bool first) {
  for (const GrowingObject& object : graph.growing) {
    const auto other = object.object->waiting_for();
    if (!first && other != nullptr && other.get() != this) continue;  // a newer restore
    // Also where nothing is left: what comes must have been saved, if all must match.
    const bool waits = has_saved_below(object.path) || !(allow_partial_ || may_be_new(object.path));
    object.object->wait_for(waits ? shared_from_this() : nullptr);
  }
}

bool RestoreSession::has_saved_below(const std::string& path) const {
  return std::any_of(saved_.begin(), saved_.end(),
                     [&](const auto& entry) { return is_below(entry.first, path); });
}

bool RestoreSession::is_done(const LiveValue& live) const {
  return std::any_of(live.paths.begin(), live.paths.end(),
                     [&](const std::string& path)
                         COHORT_REQUIRES(mutex_) { return done_.contains(path); });
}

bool RestoreSession::may_be_new(const std::string& path) const {
  return std::any_of(unfinished_.begin(), unfinished_.end(),
                     [&](const std::string& prefix) { return is_below(path, prefix); });
}

}  // namespace cohort::internal::checkpoint
