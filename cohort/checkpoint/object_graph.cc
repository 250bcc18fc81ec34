// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/internal/object_graph.h"

#include <map>
#include <set>

#include "cohort/base/check.h"
#include "cohort/checkpoint/internal/manifest.h"

namespace cohort::internal::checkpoint {
namespace {

constexpr int kDeepestPath = 100;

class Walk {
 public:
  explicit Walk(const char* operation) : operation_(operation) {}

  void visit(const std::string& path, const std::shared_ptr<Trackable>& object, int depth) {
    COHORT_CHECK_ARG(depth <= kDeepestPath, "[", operation_, "] expected objects nested at most ",
                     kDeepestPath, " deep, got \"", path, "\"");
    const TrackedParts parts = object->parts();
    if (parts.gone) graph_.gone.push_back(path);
    join(path, parts.group);
    if (parts.growing) {
      if (auto growing = std::dynamic_pointer_cast<TrackedObject>(object)) {
        graph_.growing.push_back({path, std::move(growing)});
      }
    }
    for (const TrackedValue& value : parts.values) {
      join(path, value.group);
      if (value.owner != nullptr) {
        owned_.emplace_back(path, value);
      } else {
        add(value.name.empty() ? path : path + "/" + value.name, value);
      }
    }
    for (const auto& [name, child] : parts.children)
      visit(str_cat(path, "/", name), child, depth + 1);
  }

  /// After all objects: where a value belongs to one that is not in the checkpoint, the order of
  /// the owners names it.
  ObjectGraph finish() && {
    std::map<std::pair<std::string, const void*>, std::size_t> strangers;
    std::map<std::string, std::size_t> counts;
    for (const auto& [path, value] : owned_) {
      const auto owner = by_identity_.find(value.owner);
      std::string middle;
      if (owner != by_identity_.end()) {
        middle = graph_.values[owner->second].paths.front();
      } else {
        const auto [place, is_new] = strangers.emplace(std::pair(path, value.owner), counts[path]);
        counts[path] += is_new ? 1 : 0;
        middle = str_cat("variable_", place->second);
      }
      add(str_cat(path, "/", middle, "/", value.name), value);
    }
    return std::move(graph_);
  }

 private:
  void join(const std::string& path, const std::shared_ptr<SavingGroup>& group) {
    if (group == nullptr) return;
    if (graph_.group == nullptr) graph_.group = group;
    COHORT_CHECK_ARG(graph_.group == group, "[", operation_,
                     "] expected objects of one strategy of several workers, got \"", path,
                     "\" of another one: save them in checkpoints of their own");
  }

  void check_pieces(const std::string& path, const TrackedValue& value) const {
    if (value.pieces.empty()) return;
    std::vector<ManifestPiece> boxes(value.pieces.size());
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      boxes[i].starts = value.pieces[i].offset;
      boxes[i].sizes = value.pieces[i].extent;
    }
    COHORT_CHECK_ARG(value.shape && do_fill(*value.shape, boxes), "[", operation_,
                     "] expected pieces that fill \"", path, "\", each element once, got ",
                     boxes.size(), " that do not");
  }

  void add(std::string path, const TrackedValue& value) {
    check_pieces(path, value);
    const auto known = value.identity ? by_identity_.find(value.identity) : by_identity_.end();
    if (!paths_.insert(path).second) {
      const bool same = known != by_identity_.end() && is_path_of(known->second, path);
      COHORT_CHECK_ARG(same, "[", operation_, "] expected a name for each value, got two of \"",
                       path, "\"");
      return;
    }
    if (known != by_identity_.end()) {
      graph_.values[known->second].paths.push_back(std::move(path));
      return;
    }
    if (value.identity) by_identity_[value.identity] = graph_.values.size();
    graph_.values.push_back({{std::move(path)}, value});
  }

  bool is_path_of(std::size_t index, const std::string& path) const {
    for (const std::string& own : graph_.values[index].paths) {
      if (own == path) return true;
    }
    return false;
  }

  const char* const operation_;
  ObjectGraph graph_;
  std::map<const void*, std::size_t> by_identity_;
  std::set<std::string> paths_;
  std::vector<std::pair<std::string, TrackedValue>> owned_;  // with the path of their object
};

}  // namespace

ObjectGraph walk(const char* operation, const Roots& roots) {
  Walk walk(operation);
  for (const auto& [name, object] : roots) walk.visit(name, object, 0);
  return std::move(walk).finish();
}

void check_none_gone(const char* operation, const ObjectGraph& graph) {
  COHORT_CHECK_STATE(graph.gone.empty(), "[", operation,
                     "] expected all objects of the checkpoint to exist, but \"",
                     graph.gone.front(),
                     "\" was destroyed: keep what a checkpoint tracks alive until it is saved or "
                     "restored");
}

bool is_below(std::string_view path, std::string_view prefix) {
  return path.starts_with(prefix) && (path.size() == prefix.size() || path[prefix.size()] == '/');
}

void check_part_name(const char* operation, const std::string& name) {
  COHORT_CHECK_ARG(!name.empty() && name.find('/') == std::string::npos, "[", operation,
                   "] expected a name that is not empty and has no '/', got \"", name, "\"");
}

}  // namespace cohort::internal::checkpoint
