// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/callbacks/plot.h"

#include <limits>
#include <utility>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/state.h"
#include "cohort/keras/model.h"

namespace cohort::keras {
namespace {

class PlotBase final : public CallbackBase {
 public:
  PlotBase(std::string filename, PlotOptions options)
      : filename_(std::move(filename)), options_(std::move(options)) {
    COHORT_CHECK_ARG(filename_.ends_with(".svg") || filename_.ends_with(".png"),
                     "[plot] expected a path that ends with .svg or .png, got ", filename_);
  }

  void on_train_begin() override {
    writes_ = model().strategy().extended().should_save_summary();
    history_ = {};
  }

  void on_epoch_end(int epoch, Logs& logs) override {
    for (const std::string& name : logs.names()) history_.history.try_emplace(name);
    for (auto& [name, values] : history_.history) {
      values.resize(history_.epoch.size(), kGap);
      values.push_back(logs.contains(name) ? logs.number(name) : kGap);
    }
    history_.epoch.push_back(epoch);
    if (writes_) utils::plot_history(history_, filename_, options_);
  }

  std::string save_state() override {
    cohort::internal::data::StateWriter out;
    const auto count = static_cast<int64_t>(history_.epoch.size());
    out.put_int(count);
    for (const int epoch : history_.epoch) out.put_int(epoch);
    out.put_int(static_cast<int64_t>(history_.history.size()));
    for (const auto& [name, values] : history_.history) {
      out.put_text(name);
      out.put_element(from_vector<double>(values, {count}));
    }
    return std::move(out).take();
  }

  void restore_state(std::string_view state) override {
    cohort::internal::data::StateReader in(state);
    History history;
    const int64_t count = in.get_count(in.bytes_left());
    for (int64_t i = 0; i < count; ++i) history.epoch.push_back(static_cast<int>(in.get_int()));
    const int64_t names = in.get_count(in.bytes_left());
    for (int64_t i = 0; i < names; ++i) {
      const std::string name(in.get_text());
      std::vector<double> values = to_vector<double>(in.get_element().tensor());
      if (values.size() != history.epoch.size()) {
        cohort::internal::data::StateReader::fail();
      }
      history.history.insert_or_assign(name, std::move(values));
    }
    in.expect_end();
    history_ = std::move(history);
  }

 private:
  static constexpr double kGap = std::numeric_limits<double>::quiet_NaN();

  const std::string filename_;
  const PlotOptions options_;
  bool writes_ = true;
  History history_;
};

}  // namespace

Plot::Plot(std::string filename, PlotOptions options)
    : Callback(std::make_shared<PlotBase>(std::move(filename), std::move(options))) {}

}  // namespace cohort::keras
