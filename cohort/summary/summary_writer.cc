// SPDX-License-Identifier: Apache-2.0
#include "cohort/summary/summary_writer.h"

#include <ATen/ops/clamp.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <exception>

#include "cohort/base/check.h"
#include "cohort/base/handle.h"
#include "cohort/base/logging.h"
#include "cohort/data/image/image.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/summary/internal/event_file.h"
#include "cohort/summary/internal/messages.h"

namespace cohort {

namespace {

using internal::summary::wall_time;

// Replica 0 of all workers, and whoever is in no replica.
bool writes_here() { return internal::runtime::current_global_replica() <= 0; }

// Floats as tf.image.convert_image_dtype(saturate=True) takes them to uint8.
Tensor as_uint8(const Tensor& images) {
  if (images.scalar_type() == kUint8) return images;
  return images.to(kFloat32).mul(255.5).clamp(0, 255).to(kUint8);
}

Tensor checked_images(const Tensor& images) {
  const bool has_type =
      images.defined() && (images.scalar_type() == kUint8 || images.is_floating_point());
  const int64_t rank = images.defined() ? images.dim() : 0;
  COHORT_CHECK_ARG(
      has_type && (rank == 3 || rank == 4) && images.size(-1) >= 1 && images.size(-1) <= 4,
      "[summary_writer.image] expected uint8 or floats [images, height, width, 1 to 4 "
      "channels], or one image, got ",
      images.defined() ? str_cat(dtype_name(images.scalar_type()), " ", bracketed(images.sizes()))
                       : std::string("no tensor"));
  return rank == 4 ? images : images.unsqueeze(0);
}

}  // namespace

struct SummaryWriter::State {
  State(std::string folder, std::chrono::milliseconds flush_every)
      : file(std::move(folder), flush_every) {}

  void put(std::string_view tag, int64_t step, const internal::summary::SummaryPlugin& plugin,
           const std::string& tensor) {
    file.write(internal::summary::value_event(wall_time(), step, tag, plugin, tensor));
  }

  internal::summary::EventFile file;
};

SummaryWriter::SummaryWriter(std::string log_dir, SummaryWriterOptions options)
    : state_(std::make_unique<State>(std::move(log_dir), options.flush_every)) {}

SummaryWriter::State& SummaryWriter::use(const char* operation) const {
  return *internal::base::held(state_, "SummaryWriter", operation);
}

SummaryWriter::SummaryWriter(SummaryWriter&&) noexcept = default;
SummaryWriter& SummaryWriter::operator=(SummaryWriter&&) noexcept = default;

SummaryWriter::~SummaryWriter() {
  if (!state_) return;
  try {
    state_->file.close();
  } catch (const std::exception& e) {
    COHORT_LOG(kError, "[summary_writer] failed to close the file in ", log_dir(), ": ", e.what());
  }
}

void SummaryWriter::scalar(std::string_view tag, double value, int64_t step) {
  if (!writes_here()) return;
  use().put(tag, step, {.name = "scalars"},
            internal::summary::float_tensor(static_cast<float>(value)));
}

void SummaryWriter::histogram(std::string_view tag, const Tensor& values, int64_t step,
                              int buckets) {
  COHORT_CHECK_ARG(buckets > 0, "[summary_writer.histogram] expected at least one bucket, got ",
                   buckets);
  COHORT_CHECK_ARG(values.defined() && !values.is_complex(),
                   "[summary_writer.histogram] expected a tensor of real numbers, got ",
                   values.defined() ? dtype_name(values.scalar_type()) : "none");
  if (!writes_here()) return;
  use().put(tag, step, {.name = "histograms"},
            internal::summary::histogram_tensor(values, buckets));
}

void SummaryWriter::image(std::string_view tag, const Tensor& images, int64_t step,
                          int max_outputs) {
  const Tensor batch = checked_images(images);
  COHORT_CHECK_ARG(max_outputs > 0, "[summary_writer.image] expected max_outputs > 0, got ",
                   max_outputs);
  if (!writes_here()) return;
  const int64_t count = std::min<int64_t>(max_outputs, batch.size(0));
  std::vector<std::string> texts = {str_cat(batch.size(2)), str_cat(batch.size(1))};
  for (int64_t i = 0; i < count; ++i) {
    texts.push_back(data::encode_png(as_uint8(batch[i].detach()).contiguous()));
  }
  use().put(tag, step, {.name = "images"}, internal::summary::string_tensor(texts, false));
}

void SummaryWriter::text(std::string_view tag, std::string_view markdown, int64_t step) {
  if (!writes_here()) return;
  use().put(tag, step, {.name = "text"},
            internal::summary::string_tensor({std::string(markdown)}, true));
}

void SummaryWriter::hparams(const std::vector<std::pair<std::string, HParam>>& values) {
  if (!writes_here()) return;
  const std::string content = internal::summary::session_start(values, wall_time());
  use().put("_hparams_/session_start_info", 0, {.name = "hparams", .content = content},
            internal::summary::no_floats_tensor());
}

void SummaryWriter::flush() { use().file.flush(); }
void SummaryWriter::close() { use().file.close(); }
const std::string& SummaryWriter::log_dir() const { return use().file.folder(); }

}  // namespace cohort
