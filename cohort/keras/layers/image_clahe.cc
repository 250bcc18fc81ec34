// SPDX-License-Identifier: Apache-2.0
//
// ContrastLimitedAdaptiveHistogramEqualization: each tile of an image has a table of its own, and a
// pixel is what the tables of the four tiles around it say, by how near they are.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/where.h>

#include <utility>

#include "cohort/base/check.h"
#include "cohort/keras/layers/image_colors.h"
#include "cohort/keras/layers/internal/image_colors.h"

namespace cohort::keras {
namespace {

constexpr int64_t kGrays = 256;
constexpr double kWhite = 255;

// As many rows behind the last one as are missing, mirrored there.
Tensor mirrored(const Tensor& images, int64_t axis, int64_t missing) {
  if (missing == 0) return images;
  const int64_t size = images.size(axis);
  const Tensor at = at::arange(size, size + missing).remainder(2 * size);
  const Tensor back = at::where(at < size, at, 2 * size - 1 - at);
  return at::cat({images, images.index_select(axis, back)}, axis);
}

struct Tiles {
  int64_t rows, columns;  // of tiles
  int64_t height, width;  // of each
  int64_t pixels() const { return height * width; }
};

// Which gray becomes which, of each tile: [b, rows, columns, c, grays].
Tensor tables(const Tensor& grays, const Tiles& tiles, double clip_limit) {
  const int64_t count = grays.size(0), channels = grays.size(3);
  const Tensor tiled =
      grays.reshape({count, tiles.rows, tiles.height, tiles.columns, tiles.width, channels})
          .permute({0, 1, 3, 5, 2, 4})
          .reshape({count, tiles.rows, tiles.columns, channels, tiles.pixels()});
  Tensor counts = at::one_hot(tiled, kGrays).sum(-2).to(kFloat32);
  const auto pixels = static_cast<double>(tiles.pixels());
  if (clip_limit > 0) {
    const Tensor clipped = counts.clamp_max(clip_limit * pixels / kGrays);
    counts = clipped + (counts - clipped).sum(-1, true) / kGrays;
  }
  const Tensor sums = counts.cumsum(-1), least = sums.amin(-1, true);
  const Tensor rest = pixels - least;
  return ((sums - least) * kWhite / rest.masked_fill(rest.eq(0), 1)).clamp(0, kWhite);
}

// The two tiles around each pixel along an axis, and how much of the second; tiles count from 1,
// and those at the border stand for what is beyond.
struct Around {
  Tensor first, second, part;
};

Around around(int64_t tiles, int64_t size) {
  const Tensor at =
      (at::arange(tiles * size).to(kFloat32) - static_cast<double>(size) / 2) / size + 1;
  const Tensor first = at.floor();
  const auto tile = [&](const Tensor& t) { return (t - 1).clamp(0, tiles - 1).to(kInt64); };
  return {tile(first), tile(first + 1), at - first};
}

Tensor equalized(const Tensor& images, const Tiles& tiles, double clip_limit) {
  const int64_t count = images.size(0), channels = images.size(3);
  const int64_t height = images.size(1), width = images.size(2);
  const Tensor whole = mirrored(mirrored(images, 1, tiles.rows * tiles.height - height), 2,
                                tiles.columns * tiles.width - width);
  const Tensor grays = whole.trunc().clamp(0, kWhite).to(kInt64);
  const Tensor table = tables(grays, tiles, clip_limit).flatten();
  const Around y = around(tiles.rows, tiles.height), x = around(tiles.columns, tiles.width);
  const int64_t of_column = channels * kGrays, of_row = tiles.columns * of_column;
  const Tensor base = at::arange(count).view({-1, 1, 1, 1}) * (tiles.rows * of_row) +
                      at::arange(channels) * kGrays + grays;
  const auto read = [&](const Tensor& row, const Tensor& column) {
    return table.take(base + row.view({1, -1, 1, 1}) * of_row +
                      column.view({1, 1, -1, 1}) * of_column);
  };
  const Tensor right = x.part.view({1, 1, -1, 1}), below = y.part.view({1, -1, 1, 1});
  const auto line = [&](const Tensor& row) {
    return read(row, x.first) * (1 - right) + read(row, x.second) * right;
  };
  const Tensor all = line(y.first) * (1 - below) + line(y.second) * below;
  return all.narrow(1, 0, height).narrow(2, 0, width);
}

}  // namespace

ContrastLimitedAdaptiveHistogramEqualizationLayer::
    ContrastLimitedAdaptiveHistogramEqualizationLayer(
        ContrastLimitedAdaptiveHistogramEqualizationOptions options)
    : LayerImpl(std::move(options)) {
  const auto& o = config();
  COHORT_CHECK_ARG(
      o.tile_grid_size.size() == 2 && o.tile_grid_size[0] > 0 && o.tile_grid_size[1] > 0,
      "[contrast_limited_adaptive_histogram_equalization] expected tile_grid_size of "
      "two numbers > 0, got ",
      bracketed(o.tile_grid_size));
  COHORT_CHECK_ARG(!o.value_range.is_one && o.value_range.low < o.value_range.high,
                   "[contrast_limited_adaptive_histogram_equalization] expected a value_range of "
                   "two numbers, got ",
                   o.value_range.low, " and ", o.value_range.high);
  set_up(o.data_format);
}

Tensor ContrastLimitedAdaptiveHistogramEqualizationLayer::transform(const Tensor& images) {
  if (images.numel() == 0) return images;
  const FactorRange& range = config().value_range;
  const int64_t rows = config().tile_grid_size[0], columns = config().tile_grid_size[1];
  const Tiles tiles{rows, columns, (images.size(1) + rows - 1) / rows,
                    (images.size(2) + columns - 1) / columns};
  const Tensor levels = internal::rescaled(images.to(kFloat32), range.low, range.high, 0, kWhite);
  return internal::rescaled(equalized(levels, tiles, config().clip_limit), 0, kWhite, range.low,
                            range.high);
}

}  // namespace cohort::keras
