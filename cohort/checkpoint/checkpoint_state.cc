// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/internal/checkpoint_state.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iomanip>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/logging.h"
#include "cohort/checkpoint/internal/checkpoint_folder.h"
#include "cohort/checkpoint/internal/file.h"
#include "cohort/checkpoint/internal/temporary.h"

namespace cohort::internal::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManager = "checkpoint_manager";

constexpr uint64_t kLargestState = 1 << 26;
constexpr std::string_view kPreserved = "last_preserved_timestamp";

// Nothing outside of the folder, whatever the file says.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

std::optional<std::string> unquoted(std::string_view text) {
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') return std::nullopt;
  text = text.substr(1, text.size() - 2);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && ++i == text.size()) return std::nullopt;
    out += text[i];
  }
  return is_plain_name(out) ? std::optional(out) : std::nullopt;
}

std::string text_of(double seconds) {
  char text[64];
  const auto [end, error] =
      std::to_chars(text, text + sizeof text, seconds, std::chars_format::fixed, 6);
  return error == std::errc() ? std::string(text, end) : "0";
}

std::optional<double> number(std::string_view text) {
  double out = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  const bool all = error == std::errc() && rest == text.data() + text.size();
  return all ? std::optional(out) : std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) {
    text.remove_suffix(1);
  }
  return text;
}

/// nullopt if the text is no such file's.
class Parser {
 public:
  std::optional<CheckpointState> parse(std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      const std::string_view line = trimmed(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
      if (!line.empty() && !take(line)) return std::nullopt;
    }
    return finish();
  }

 private:
  bool take(std::string_view line) {
    if (line.starts_with("#")) return take_comment(trimmed(line.substr(1)));
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return false;
    const std::string_view key = line.substr(0, colon);
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (key == "model_checkpoint_path" || key == "all_model_checkpoint_paths") {
      std::optional<std::string> name = unquoted(value);
      if (!name) return false;
      if (key == "model_checkpoint_path") {
        newest_ = std::move(*name);
      } else {
        state_.kept.push_back({std::move(*name)});
      }
      return true;
    }
    const std::optional<double> seconds = number(value);
    if (!seconds) return false;
    if (key == "all_model_checkpoint_timestamps") times_.push_back(*seconds);
    if (key == kPreserved) preserved_ = *seconds;
    return true;
  }

  // What TensorFlow has no field for: # last_preserved_timestamp "name": 123.0
  bool take_comment(std::string_view text) {
    const std::size_t colon = text.rfind(':');
    if (!text.starts_with(kPreserved) || colon == std::string_view::npos) return true;
    const auto name = unquoted(trimmed(text.substr(kPreserved.size(), colon - kPreserved.size())));
    const auto seconds = number(trimmed(text.substr(colon + 1)));
    if (name && seconds) state_.last_preserved[*name] = *seconds;
    return true;
  }

  // The newest is the last of all, as TensorFlow reads it.
  std::optional<CheckpointState> finish() {
    if (newest_.empty()) return std::nullopt;
    for (std::size_t i = 0; i < std::min(times_.size(), state_.kept.size()); ++i) {
      state_.kept[i].timestamp = times_[i];
    }
    const auto newest = std::find_if(state_.kept.begin(), state_.kept.end(),
                                     [&](const auto& kept) { return kept.name == newest_; });
    if (newest == state_.kept.end()) {
      state_.kept.push_back({newest_});
    } else {
      std::rotate(newest, newest + 1, state_.kept.end());
    }
    state_.last_preserved[std::string(name_of(newest_))] = preserved_;
    return state_;
  }

  CheckpointState state_;
  std::string newest_;
  std::vector<double> times_;
  double preserved_ = 0;
};

double written(const std::string& checkpoint) {
  const auto id = checkpoint_id(checkpoint);
  return id ? static_cast<double>(id->written) * 1e-9 : 0;
}

std::vector<KeptCheckpoint> by_numbers(const std::string& directory, const std::string& wanted) {
  std::vector<std::pair<int64_t, std::string>> found;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const auto number = number_of(name);
    const bool is_wanted = wanted.empty() || is_numbered(name, wanted);
    if (number && is_wanted && !is_temporary(name) && is_checkpoint(it->path().string()))
      found.emplace_back(*number, name);
  }
  std::sort(found.begin(), found.end());
  std::vector<KeptCheckpoint> out;
  for (auto& [number, name] : found) out.push_back({name, written(str_cat(directory, "/", name))});
  return out;
}

// nullopt, and the reason why, if it cannot be read.
std::optional<CheckpointState> from_file(const std::string& path, const char*& why) {
  why = "is damaged";
  try {
    const InputFile file(kManager, path);
    return Parser().parse(file.read_all(kLargestState));
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kNotFound) why = "is missing";
    return std::nullopt;
  }
}

}  // namespace

void write_state(const std::string& directory, const CheckpointState& state) {
  std::string text = str_cat("model_checkpoint_path: ", std::quoted(state.kept.back().name), "\n");
  for (const KeptCheckpoint& kept : state.kept) {
    text += str_cat("all_model_checkpoint_paths: ", std::quoted(kept.name), "\n");
  }
  for (const KeptCheckpoint& kept : state.kept) {
    text += "all_model_checkpoint_timestamps: " + text_of(kept.timestamp) + "\n";
  }
  // TensorFlow's one field is the newest one's.
  const std::string newest(name_of(state.kept.back().name));
  const auto own = state.last_preserved.find(newest);
  text +=
      str_cat(kPreserved, ": ", text_of(own == state.last_preserved.end() ? 0 : own->second), "\n");
  for (const auto& [name, time] : state.last_preserved) {
    if (name == newest) continue;
    text += str_cat("# ", kPreserved, " ", std::quoted(name), ": ", text_of(time), "\n");
  }
  AtomicFile file("checkpoint_manager.save", directory + "/" + kStateName);
  file.file().write(text.data(), text.size());
  base::failpoint("state.written");
  file.commit();
}

CheckpointState read_state(const std::string& directory, const std::string& name) {
  const std::string path = directory + "/" + kStateName;
  const char* why = "";
  CheckpointState state;
  if (auto read = from_file(path, why)) {
    state = std::move(*read);
    if (!kept_of(state, name).empty()) return state;
    why = "names none of these";
  }
  const std::vector<KeptCheckpoint> found = by_numbers(directory, name);
  if (!found.empty()) {
    COHORT_LOG(kWarning, "[checkpoint_manager] ", path, " ", why, ": taking ", found.back().name,
               " for the newest, by its number");
  }
  state.kept.insert(state.kept.begin(), found.begin(), found.end());
  return state;
}

std::vector<KeptCheckpoint> kept_of(const CheckpointState& state, std::string_view name) {
  std::vector<KeptCheckpoint> out;
  for (const KeptCheckpoint& kept : state.kept) {
    if (name.empty() || is_numbered(kept.name, name)) out.push_back(kept);
  }
  return out;
}

std::map<std::string, CheckpointId> checkpoints_in(const std::string& directory,
                                                   const std::string& name) {
  std::map<std::string, CheckpointId> out;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string folder = it->path().filename().string();
    if (!is_numbered(folder, name)) continue;
    if (const auto id = checkpoint_id(it->path().string())) out.emplace(folder, *id);
  }
  return out;
}

std::string_view name_of(std::string_view folder) {
  return number_of(folder) ? folder.substr(0, folder.rfind('-')) : folder;
}

bool is_numbered(std::string_view folder, std::string_view name) {
  return number_of(folder).has_value() && name_of(folder) == name;
}

int64_t greatest_number(const std::string& directory, const std::string& name) {
  int64_t greatest = 0;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string entry = it->path().filename().string();
    const std::string folder = base_of_temporary(entry);
    const bool counts = !folder.empty() || is_checkpoint(it->path().string());
    const std::string& numbered = folder.empty() ? entry : folder;
    if (counts && is_numbered(numbered, name)) {
      greatest = std::max(greatest, number_of(numbered).value_or(0));
    }
  }
  return greatest;
}

std::optional<int64_t> number_of(std::string_view name) {
  const std::size_t dash = name.rfind('-');
  if (dash == std::string_view::npos || dash + 1 == name.size() || dash == 0) return std::nullopt;
  int64_t out = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + dash + 1, end, out);
  return error == std::errc() && rest == end && out >= 0 ? std::optional(out) : std::nullopt;
}

}  // namespace cohort::internal::checkpoint
