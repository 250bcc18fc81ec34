// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/checkpoint.h"

#include <algorithm>
#include <string_view>

#include "cohort/base/check.h"
#include "cohort/base/handle.h"
#include "cohort/checkpoint/internal/checkpoint_folder.h"
#include "cohort/checkpoint/internal/file.h"
#include "cohort/checkpoint/internal/restore_session.h"
#include "cohort/checkpoint/internal/several_writers.h"
#include "cohort/checkpoint/internal/worker_values.h"
#include "cohort/runtime/replica_scope.h"

namespace cohort {
namespace {

using internal::checkpoint::NewCheckpoint;
using internal::checkpoint::ObjectGraph;
using internal::checkpoint::SavedValues;

constexpr const char* kSave = "checkpoint.save";
constexpr const char* kRestore = "checkpoint.restore";

void check_cross_replica(const char* operation) {
  COHORT_CHECK_STATE(current_replica() < 0 || current_replica_count() == 1, "[", operation,
                     "] expected cross-replica context, got a replica: call it outside of "
                     "strategy.run");
}

std::string without_slash(const char* operation, std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  COHORT_CHECK_ARG(!path.empty() && path != "/", "[", operation, "] expected a path, got \"", path,
                   "\"");
  return path;
}

// What an earlier restore still keeps for variables that are not made would be lost else.
void add_waiting(const ObjectGraph& graph, SavedValues& values) {
  for (const internal::checkpoint::GrowingObject& growing : graph.growing) {
    const auto session = growing.object->waiting_for();
    if (session == nullptr) {
      values.unfinished.insert(growing.path);
      continue;
    }
    for (const auto& [path, tensor] : session->waiting()) {
      const bool known = values.tensors.contains(path) || values.pieces.contains(path) ||
                         values.spread.contains(path) || values.aliases.contains(path);
      if (known) continue;
      const bool here =
          std::any_of(graph.growing.begin(), graph.growing.end(), [p = &path](const auto& object) {
            return internal::checkpoint::is_below(*p, object.path);
          });
      COHORT_CHECK_STATE(here, "[", kSave, "] expected the objects to be built, got \"",
                         growing.path, "\", for which the values of ", session->source(),
                         " are waiting under other names (\"", path, "\")");
      values.tensors[path] = tensor;
    }
  }
}

}  // namespace

std::vector<std::string> RestoreStatus::waiting() const {
  std::vector<std::string> paths;
  for (const auto& entry : internal::base::held(session_, "RestoreStatus")->waiting())
    paths.push_back(entry.first);
  return paths;
}

const RestoreStatus& RestoreStatus::assert_consumed() const {
  const std::vector<std::string> paths = waiting();
  COHORT_CHECK_STATE(paths.empty(), "[", kRestore, "] expected every value of ",
                     internal::base::held(session_, "RestoreStatus")->source(),
                     " to be restored, got ", paths.size(),
                     " that no object has taken: ", join(paths, ", "));
  return *this;
}

const RestoreStatus& RestoreStatus::assert_existing_objects_matched() const {
  const auto session = internal::base::held(session_, "RestoreStatus");
  const std::vector<std::string> paths = session->not_saved();
  COHORT_CHECK_STATE(paths.empty(), "[", kRestore, "] expected ", session->source(),
                     " to have every value of the program, got none of ", join(paths, ", "));
  return *this;
}

Checkpoint::Checkpoint(const std::map<std::string, TrackableRef>& roots) {
  COHORT_CHECK_ARG(!roots.empty(), "[checkpoint] expected objects to keep, got none");
  internal::checkpoint::Roots list;
  for (const auto& [name, object] : roots) {
    internal::checkpoint::check_part_name("checkpoint", name);
    list.emplace_back(name, object.trackable());
  }
  roots_ = std::make_shared<const internal::checkpoint::Roots>(std::move(list));
}

Checkpoint Checkpoint::with(const std::string& name, const TrackableRef& object) const {
  Checkpoint out(std::map<std::string, TrackableRef>{{name, object}});
  internal::checkpoint::Roots list = *internal::base::held(roots_, "Checkpoint");
  std::erase_if(list, [&](const auto& root) { return root.first == name; });
  list.push_back(out.roots_->front());
  out.roots_ = std::make_shared<const internal::checkpoint::Roots>(std::move(list));
  return out;
}

Tensor Checkpoint::read(const internal::checkpoint::LiveValue& live,
                        const std::function<Tensor()>& read, const std::optional<Shape>& shape,
                        Memory memory) {
  const Tensor value =
      internal::checkpoint::read_checked(live.paths.front(), live.value.dtype, shape, read);
  const Tensor here = value.cpu();
  return memory == Memory::kOwn && here.is_alias_of(value) ? here.clone() : here;
}

internal::checkpoint::SavedPieces Checkpoint::read_pieces(
    const internal::checkpoint::LiveValue& live, Memory memory) {
  internal::checkpoint::SavedPieces out{live.value.dtype, *live.value.shape, {}};
  for (const TrackedPiece& piece : live.value.pieces) {
    out.pieces.push_back({piece.offset, read(live, piece.read, piece.extent, memory)});
  }
  return out;
}

SavedValues Checkpoint::values(const char* operation, Memory memory) const {
  check_cross_replica(operation);
  const ObjectGraph graph =
      internal::checkpoint::walk(operation, *internal::base::held(roots_, "Checkpoint", "save"));
  internal::checkpoint::check_none_gone(operation, graph);
  SavedValues values;
  internal::checkpoint::check_same_lines(graph.group.get(), operation, "values",
                                         internal::checkpoint::lines_of(graph));
  for (const internal::checkpoint::LiveValue& live : graph.values) {
    const std::string& path = live.paths.front();
    if (live.value.is_spread()) {
      values.spread[path] = live.value;
      continue;
    }
    if (!live.value.pieces.empty()) {
      values.pieces[path] = read_pieces(live, memory);
      continue;
    }
    const Tensor mine = read(live, live.value.read, live.value.shape, memory);
    internal::checkpoint::SavingGroup* const others =
        live.value.group ? nullptr : graph.group.get();
    internal::checkpoint::put_value(others, path, mine, values.tensors);
  }
  for (const internal::checkpoint::LiveValue& live : graph.values) {
    const std::string& path = live.paths.front();
    // What each worker has of its own is kept under other names: one who restores finds it by any
    // of the object's.
    const bool is_kept = values.tensors.contains(path) || values.pieces.contains(path) ||
                         values.spread.contains(path);
    for (std::size_t i = 1; is_kept && i < live.paths.size(); ++i) {
      values.aliases[live.paths[i]] = path;
    }
  }
  add_waiting(graph, values);
  COHORT_CHECK_STATE(!values.tensors.empty() || !values.pieces.empty() || !values.spread.empty(),
                     "[", operation,
                     "] expected objects with values, got none: build the model first");
  return values;
}

std::shared_ptr<internal::checkpoint::SavingGroup> Checkpoint::group(const char* operation) const {
  check_cross_replica(operation);
  const std::string_view verb = operation;  // behind the class
  return internal::checkpoint::walk(
             operation,
             *internal::base::held(roots_, "Checkpoint", verb.substr(verb.find('.') + 1).data()))
      .group;
}

void Checkpoint::save(const std::string& path) const {
  const std::string folder = without_slash(kSave, path);
  const auto all = group(kSave);
  internal::checkpoint::together(all.get(), kSave, [&] {
    SavedValues what = values(kSave, Memory::kShared);
    std::optional<NewCheckpoint> made;
    if (internal::checkpoint::is_chief(all.get())) {
      internal::checkpoint::remove_leftovers(folder);
      made.emplace(folder);
    }
    internal::checkpoint::write_together(all.get(), made ? &*made : nullptr,
                                         internal::checkpoint::folder_of(folder), what);
    internal::checkpoint::on_chief(
        all.get(), [&] { made->publish(folder, NewCheckpoint::IfTaken::kReplace); });
  });
}

RestoreStatus Checkpoint::restore(const std::string& path, const RestoreOptions& options) const {
  const std::string folder = without_slash(kRestore, path);
  const auto all = group(kRestore);
  std::shared_ptr<internal::checkpoint::RestoreSession> session;
  internal::checkpoint::together(all.get(), kRestore, [&] {
    SavedValues saved;
    if (internal::checkpoint::is_chief(all.get())) {
      saved = internal::checkpoint::read_checkpoint(folder, !options.allow_partial);
    }
    session = restore_values(internal::checkpoint::from_chief(all.get(), std::move(saved)), folder,
                             options, all.get());
  });
  return RestoreStatus(session);
}

std::shared_ptr<internal::checkpoint::RestoreSession> Checkpoint::restore_values(
    SavedValues saved, const std::string& source, const RestoreOptions& options,
    internal::checkpoint::SavingGroup* group) const {
  const internal::checkpoint::Roots& roots = *internal::base::held(roots_, "Checkpoint");
  internal::checkpoint::choose_own(internal::checkpoint::walk(kRestore, roots), group, source,
                                   options.allow_partial, saved.tensors);
  auto session = std::make_shared<internal::checkpoint::RestoreSession>(
      roots, std::move(saved), source, options.allow_partial);
  session->match_now();
  return session;
}

}  // namespace cohort
