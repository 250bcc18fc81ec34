// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/callbacks/csv_logger.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>

#include "cohort/base/check.h"
#include "cohort/keras/model.h"

namespace cohort::keras {

namespace {

// As Python's str(float): the shortest text that is read back as the same number.
std::string python_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  const double size = std::abs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  std::array<char, 64> text = {};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  const std::string out(text.data(), end.ptr);
  return plain && out.find('.') == std::string::npos ? out + ".0" : out;
}

class CSVLoggerBase final : public CallbackBase {
 public:
  CSVLoggerBase(std::string filename, CSVLoggerOptions options)
      : filename_(std::move(filename)), options_(std::move(options)) {
    COHORT_CHECK_ARG(!options_.separator.empty(),
                     "[csv_logger] expected a separator, got an empty one");
  }

  void on_train_begin() override {
    names_.clear();
    writes_ = model().strategy().extended().should_save_summary();
    if (!writes_) return;
    header_.clear();
    if (options_.append) std::getline(std::ifstream(filename_) >> std::ws, header_);
    out_ = std::ofstream(filename_, options_.append ? std::ios::app : std::ios::trunc);
    check("open");
  }

  void on_epoch_end(int epoch, Logs& logs) override {
    if (!writes_) return;
    if (names_.empty()) begin_columns(logs);
    out_ << epoch;
    for (const std::string& name : names_) {
      out_ << options_.separator << (logs.contains(name) ? python_text(logs.number(name)) : "NA");
    }
    out_ << '\n' << std::flush;
    check("write");
  }

  void on_train_end() override {
    if (!writes_) return;
    out_.close();
    check("close");
  }

 private:
  void begin_columns(const Logs& logs) {
    names_ = logs.names();
    std::sort(names_.begin(), names_.end());
    std::string header = "epoch";
    for (const std::string& name : names_) header += options_.separator + name;
    if (header_.empty()) {
      out_ << header << '\n';
      return;
    }
    COHORT_CHECK_ARG(header_ == header, "[csv_logger] expected ", filename_, " to begin with ",
                     header, " to append to it, got ", header_);
  }

  void check(const char* what) const {
    if (out_) return;
    throw Error(ErrorCode::kFailedPrecondition, str_cat("[csv_logger] failed to ", what, " ",
                                                        filename_, ": ", std::strerror(errno)));
  }

  const std::string filename_;
  const CSVLoggerOptions options_;
  bool writes_ = true;
  std::string header_;  // of a file to append to
  std::vector<std::string> names_;
  std::ofstream out_;
};

}  // namespace

CSVLogger::CSVLogger(std::string filename, CSVLoggerOptions options)
    : Callback(std::make_shared<CSVLoggerBase>(std::move(filename), std::move(options))) {}

}  // namespace cohort::keras
