// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/internal/checkpoint_state.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cohort/base/error.h"
#include "cohort/base/logging.h"
#include "cohort/checkpoint/internal/checkpoint_folder.h"
#include "cohort/checkpoint/internal/failpoint.h"
#include "cohort/checkpoint/internal/file.h"

namespace cohort::internal {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLargestState = 1 << 20;

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

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
    if (key == "last_preserved_timestamp") state_.last_preserved = *seconds;
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
    return state_;
  }

  CheckpointState state_;
  std::string newest_;
  std::vector<double> times_;
};

CheckpointState by_numbers(const std::string& directory, const std::string& wanted) {
  std::vector<std::pair<int64_t, std::string>> found;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const auto number = number_of(name);
    const bool is_wanted = wanted.empty() || name.substr(0, name.rfind('-')) == wanted;
    if (number && is_wanted && !is_temporary(name) && is_checkpoint(it->path().string()))
      found.emplace_back(*number, name);
  }
  std::sort(found.begin(), found.end());
  CheckpointState out;
  for (auto& [number, name] : found) out.kept.push_back({std::move(name)});
  return out;
}

}  // namespace

void write_state(const std::string& directory, const CheckpointState& state) {
  std::string text = "model_checkpoint_path: " + quoted(state.kept.back().name) + "\n";
  for (const KeptCheckpoint& kept : state.kept) {
    text += "all_model_checkpoint_paths: " + quoted(kept.name) + "\n";
  }
  for (const KeptCheckpoint& kept : state.kept) {
    text += "all_model_checkpoint_timestamps: " + text_of(kept.timestamp) + "\n";
  }
  text += "last_preserved_timestamp: " + text_of(state.last_preserved) + "\n";
  AtomicFile file("checkpoint_manager.save", directory + "/" + kStateName);
  file.file().write(text.data(), text.size());
  failpoint("state.written");
  file.commit();
}

CheckpointState read_state(const std::string& directory, const std::string& name) {
  const std::string path = directory + "/" + kStateName;
  std::error_code ignored;
  const char* why = "is missing";
  if (fs::is_regular_file(path, ignored)) {
    why = "is damaged";
    if (fs::file_size(path, ignored) <= kLargestState) {
      std::ifstream in(path, std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      if (const auto state = Parser().parse(text)) return *state;
    }
  }
  CheckpointState found = by_numbers(directory, name);
  if (!found.kept.empty()) {
    COHORT_LOG(kWarning, "[checkpoint_manager] ", path, " ", why, ": taking ",
               found.kept.back().name, " for the newest, by its number");
  }
  return found;
}

std::optional<int64_t> number_of(const std::string& name) {
  const std::size_t dash = name.rfind('-');
  if (dash == std::string::npos || dash + 1 == name.size() || dash == 0) return std::nullopt;
  int64_t out = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + dash + 1, end, out);
  return error == std::errc() && rest == end && out >= 0 ? std::optional(out) : std::nullopt;
}

}  // namespace cohort::internal
