// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/callbacks/model_checkpoint.h"

#include <array>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/state.h"
#include "cohort/keras/callbacks/monitor.h"
#include "cohort/keras/model.h"
#include "cohort/keras/model_file.h"
#include "cohort/keras/progress_bar.h"

namespace cohort::keras::internal {

namespace {

bool digits(std::string_view text) {
  if (text.size() > 2) return false;
  for (char c : text) {
    if (std::isdigit(static_cast<unsigned char>(c)) == 0) return false;
  }
  return true;
}

// Python's [0][width][.precision][type], of which C has the same meaning.
std::string formatted(const std::string& pattern, const std::string& spec, double value,
                      bool integer) {
  const char type = !spec.empty() && std::isalpha(static_cast<unsigned char>(spec.back())) != 0
                        ? spec.back()
                        : '\0';
  const std::string sizes = type == '\0' ? spec : spec.substr(0, spec.size() - 1);
  const std::size_t dot = sizes.find('.');
  const bool known = std::string_view(integer ? "dfeg" : "feg").find(type) != std::string::npos;
  COHORT_CHECK_ARG((type == '\0' || known) && digits(sizes.substr(0, dot)) &&
                       (dot == std::string::npos || digits(sizes.substr(dot + 1))),
                   "[model_checkpoint] failed to format ", pattern, ": expected a format such as ",
                   integer ? "02d" : ".3f", ", got \"", spec, "\"");
  std::array<char, 512> text = {};
  if (integer && (type == 'd' || type == '\0')) {
    std::snprintf(text.data(), text.size(), ("%" + sizes + "lld").c_str(),
                  static_cast<long long>(value));
  } else {
    const std::string letter(1, type == '\0' ? 'g' : type);
    const bool plain = type == '\0' && dot == std::string::npos;
    std::snprintf(text.data(), text.size(), ("%" + sizes + (plain ? ".12" : "") + letter).c_str(),
                  value);
  }
  return text.data();
}

}  // namespace

void check_braces(const std::string& pattern) {
  bool open = false;
  for (const char c : pattern) {
    if (c != '{' && c != '}') continue;
    COHORT_CHECK_ARG(open == (c == '}'),
                     "[model_checkpoint] expected names in braces such as {epoch}, got '", c, "' ",
                     open ? "after '{'" : "without '{'", " in ", pattern);
    open = !open;
  }
  COHORT_CHECK_ARG(!open, "[model_checkpoint] expected names in braces such as {epoch}, got '{' ",
                   "without '}' in ", pattern);
}

std::string format_path(const std::string& pattern, int64_t epoch, int64_t batch,
                        const keras::Logs& logs) {
  check_braces(pattern);
  std::string out;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '{') {
      out += pattern[i];
      continue;
    }
    const std::size_t end = pattern.find('}', i);
    const std::string inside = pattern.substr(i + 1, end - i - 1);
    const std::size_t colon = inside.find(':');
    const std::string name = inside.substr(0, colon);
    const std::string spec = colon == std::string::npos ? "" : inside.substr(colon + 1);
    i = end;
    if (name == "epoch" || name == "batch") {
      const int64_t number = name == "epoch" ? epoch : batch;
      out += formatted(pattern, spec, static_cast<double>(number), true);
      continue;
    }
    COHORT_CHECK_ARG(logs.contains(name), "[model_checkpoint] failed to format ", pattern,
                     ": expected epoch, batch or one of ", bracketed(logs.names()), ", got \"",
                     name, "\"");
    out += formatted(pattern, spec, logs.number(name), false);
  }
  return out;
}

}  // namespace cohort::keras::internal

namespace cohort::keras {

namespace {

void make_folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error || std::filesystem::is_directory(folder)) return;
  throw Error(ErrorCode::kFailedPrecondition,
              str_cat("[model_checkpoint] failed to make the folder ", folder.string(), ": ",
                      error.message()));
}

class ModelCheckpointBase : public CallbackBase {
 public:
  ModelCheckpointBase(std::string filepath, ModelCheckpointOptions options)
      : filepath_(std::move(filepath)),
        options_(std::move(options)),
        monitor_("model_checkpoint", options_.monitor, options_.mode),
        best_(options_.initial_value_threshold) {
    whole_ = internal::model_file_of("model_checkpoint", filepath_) == internal::ModelFile::kKeras;
    internal::check_braces(filepath_);
    COHORT_CHECK_ARG(options_.save_every_batches >= 0,
                     "[model_checkpoint] expected save_every_batches >= 0, got ",
                     options_.save_every_batches);
    // A whole epoch ends with no batch's number.
    const bool names_batch = filepath_.find("{batch}") != std::string::npos ||
                             filepath_.find("{batch:") != std::string::npos;
    COHORT_CHECK_ARG(!names_batch || options_.save_every_batches > 0,
                     "[model_checkpoint] expected save_every_batches for {batch} in ", filepath_,
                     ", got files at the ends of epochs");
  }

  void on_train_begin() override {
    batches_ = saved_at_ = 0;
    if (options_.save_best_only) monitor_.begin(model());
    if (!best_) best_ = monitor_.worst();
    // What cannot be made is better known now than after the first epoch.
    if (writes()) make_folder_of(filepath_.substr(0, filepath_.find('{')));
  }
  void on_epoch_begin(int epoch) override {
    epoch_ = epoch;
    step_ = -1;
  }
  bool works_without_batches() const override { return options_.save_every_batches == 0; }
  void on_train_batch_begin(int64_t step) override {
    if (step_ < 0) step_ = step - 1;  // an epoch that goes on in the middle
  }

  void on_train_batch_end(int64_t step, Logs& logs) override {
    if (options_.save_every_batches == 0) return;
    batches_ += step - step_;  // one execution may have run several
    step_ = step;
    if (batches_ < saved_at_ + options_.save_every_batches) return;
    saved_at_ = batches_;
    consider(step + 1, logs);
  }

  void on_epoch_end(int epoch, Logs& logs) override {
    epoch_ = epoch;
    if (options_.save_every_batches == 0) consider(0, logs);
  }

  std::string save_state() override {
    cohort::internal::data::StateWriter out;
    out.put_int(std::bit_cast<int64_t>(best_.value_or(monitor_.worst())));
    out.put_int(batches_);
    out.put_int(saved_at_);
    return std::move(out).take();
  }
  void restore_state(std::string_view state) override {
    cohort::internal::data::StateReader in(state);
    best_ = std::bit_cast<double>(in.get_int());
    batches_ = in.get_int();
    saved_at_ = in.get_int();
    in.expect_end();
  }

 private:
  void consider(int64_t batch, const Logs& logs) {
    std::string why;
    if (options_.save_best_only && !is_best(logs, why)) return;
    const std::string path = internal::format_path(filepath_, epoch_ + 1, batch, logs);
    say(str_cat(why, "saving model to ", path));
    if (writes()) make_folder_of(path);
    whole_ ? model().save(path) : model().save_weights(path);
  }

  /// Also where nobody can tell: as in Keras, weights that may be the best are not lost.
  bool is_best(const Logs& logs, std::string& why) {
    const std::optional<double> value =
        monitor_.read(logs, "saves every time, as without save_best_only");
    if (!value) return true;
    if (!monitor_.improves(*value, *best_)) {
      say(str_cat(monitor_.name(), " did not improve from ", *best_));
      return false;
    }
    why = str_cat(monitor_.name(), " improved from ", *best_, " to ", *value, ", ");
    best_ = *value;
    return true;
  }

  bool writes() const { return model().strategy().extended().should_checkpoint(); }

  void say(const std::string& what) const {
    if (options_.verbose == 0 || !writes()) return;
    internal::print_out(str_cat("\nEpoch ", epoch_ + 1, ": ", what, "\n"));
  }

  const std::string filepath_;
  const ModelCheckpointOptions options_;
  bool whole_ = false;  // not the weights alone
  internal::Monitor monitor_;
  std::optional<double> best_;
  int epoch_ = 0;
  int64_t step_ = -1;     // the last one of this epoch
  int64_t batches_ = 0;   // of this fit
  int64_t saved_at_ = 0;  // batches_
};

}  // namespace

ModelCheckpoint::ModelCheckpoint(std::string filepath, ModelCheckpointOptions options) {
  callback_ = std::make_shared<ModelCheckpointBase>(std::move(filepath), std::move(options));
}

}  // namespace cohort::keras
