// SPDX-License-Identifier: Apache-2.0
#include "data_contender.h"

#include <chrono>
#include <cstring>
#include <optional>
#include <sstream>

#include "cohort/base/check.h"
#include "cohort/data/catalog/catalog.h"
#include "cohort/data/dataset.h"
#include "cohort/data/formats/example/example_parser.h"
#include "cohort/data/image/image.h"
#include "cohort/runtime/memory.h"
#include "data_files.h"
#include "data_limits.h"
#include "pipe.h"

namespace cohort::bench {
namespace {

constexpr int kCycle = 16;           // Files that are read in turns,
constexpr std::int64_t kBlock = 16;  // and records of one before the next one's turn.
constexpr std::int64_t kShuffleRows = 60000;
constexpr std::int64_t kShuffleRecords = 4096;

double sum_of(const Element& element) {
  if (element.is_tuple()) {
    double sum = 0;
    for (std::size_t i = 0; i < element.size(); ++i) sum += sum_of(element[i]);
    return sum;
  }
  if (element.is_tensor()) return element.tensor().to(kFloat64).sum().item<double>();
  double sum = 0;
  for (const std::string& text : element.strings()) {
    for (const char c : text) sum += static_cast<unsigned char>(c);
  }
  return sum;
}

/// A dataset of batches, read again and again.
class DatasetSource final : public BatchSource {
 public:
  /// `prefetch` is what a user adds last.
  DatasetSource(const Dataset& batches, bool prefetch)
      : batches_(batches), endless_(prefetch ? batches.repeat().prefetch() : batches.repeat()) {}

  void begin() override { iterator_.emplace(endless_.make_iterator()); }
  void end() override { iterator_.reset(); }
  void read(std::int64_t count) override {
    for (std::int64_t i = 0; i < count; ++i) iterator_->next()->materialize();
  }
  Pass pass() const override {
    Pass pass;
    for (const Element& batch : batches_) {
      pass.rows += batch.rows();
      pass.sum += sum_of(batch);
    }
    return pass;
  }

 private:
  const Dataset batches_;
  const Dataset endless_;
  std::optional<Iterator> iterator_;
};

/// "cohort", and "cohort_bare" without a thread that reads ahead: on one core each handing over
/// costs two switches.
BatchSources sources(const Dataset& batches) {
  BatchSources ways;
  ways["cohort"] = std::make_unique<DatasetSource>(batches, true);
  ways["cohort_bare"] = std::make_unique<DatasetSource>(batches, false);
  return ways;
}

Element rows_of(const std::string& folder) {
  const std::string pixels = read_file(folder + "/images.u8");
  const std::string labels = read_file(folder + "/labels.u8");
  const auto count = static_cast<std::int64_t>(labels.size());
  const Tensor x = empty({count, kImageBytes}, kUint8);
  std::memcpy(x.data_ptr(), pixels.data(), pixels.size());
  const Tensor y = empty({count}, kUint8);
  std::memcpy(y.data_ptr(), labels.data(), labels.size());
  return {x, y.to(kInt64)};
}

BatchSources rows(std::int64_t batch, const std::string& folder, const std::string& images) {
  const Dataset train = fashion_mnist({.directory = images, .flatten = true}).train;
  BatchSources ways = sources(train.shuffle(kShuffleRows).batch(batch));
  // The same for rows of one's own, with a function of one's own.
  const auto scale = [](const Tensor& x, const Tensor& y) {
    return std::tuple(x.to(kFloat32).div_(255), y);
  };
  ways["cohort_map"] = std::make_unique<DatasetSource>(
      Dataset::from_tensor_slices(rows_of(folder)).shuffle(kShuffleRows).batch(batch).map(scale),
      true);
  ways["cohort_map_rows"] = std::make_unique<DatasetSource>(
      Dataset::from_tensor_slices(rows_of(folder)).shuffle(kShuffleRows).map(scale).batch(batch),
      true);
  ways["gather"] = make_gather_limit(folder, batch);
  return ways;
}

BatchSources examples(const FeatureSpecs& features, std::int64_t batch, const std::string& folder) {
  const std::string file = folder + "/examples.tfrecord";
  BatchSources ways =
      sources(Dataset::tf_records({file}).batch(batch).apply(parse_example_dataset(features)));
  ways["crc32c"] = make_crc_limit(file, batch);
  return ways;
}

/// The same records by a shuffle, and by one call for each of them.
BatchSources shuffled(const FeatureSpecs& features, std::int64_t batch, const std::string& folder) {
  const Dataset records =
      Dataset::tf_records({folder + "/examples.tfrecord"}).shuffle(kShuffleRecords);
  const auto parse = parse_example_dataset(features);
  BatchSources ways = sources(records.batch(batch).apply(parse));
  ways["cohort_map"] =
      std::make_unique<DatasetSource>(records.apply(parse).batch(batch), /*prefetch=*/true);
  return ways;
}

FeatureSpecs float_features() {
  FeatureSpecs features;
  for (int c = 0; c < kColumns; ++c) {
    features[str_cat("f", c)] = FixedLenFeature{FeatureType::kFloat32};
  }
  return features;
}

BatchSources csv(std::int64_t batch, const std::string& folder) {
  const std::string file = folder + "/table.csv";
  BatchSources ways =
      sources(Dataset::csv({file}, {.columns = std::vector<CsvColumn>(kColumns)}).batch(batch));
  ways["from_chars"] = make_from_chars_limit(file, batch);
  return ways;
}

BatchSources images_of(std::int64_t batch, const std::string& folder) {
  constexpr std::int64_t kSide = 224;
  const auto read = [](const std::string& file) {
    return decode_and_resize(data::read_file(file), kSide, kSide);
  };
  return sources(Dataset::list_files(folder + "/*.jpg", {.shuffle = false}).map(read).batch(batch));
}

BatchSources interleave(const std::string& name, std::int64_t batch, const std::string& folder) {
  const bool lines = name == "interleave_lines";
  const auto open = [lines](const std::string& file) {
    return lines ? Dataset::text_lines({file}) : Dataset::tf_records({file});
  };
  const Dataset files = Dataset::from_tensor_slices(many_files(name, folder));
  return sources(
      files.interleave(open, {.cycle_length = kCycle, .block_length = kBlock}).batch(batch));
}

std::chrono::nanoseconds time_of(BatchSource& source, std::int64_t count) {
  using Clock = std::chrono::steady_clock;
  source.begin();
  const auto opened = Clock::now();
  do {
    source.read(kWarmUpBatches);
  } while (Clock::now() - opened < kWarmUp);
  const auto start = Clock::now();
  source.read(count);
  const auto stop = Clock::now();
  source.end();
  return stop - start;
}

std::string answer(BatchSources& ways, const std::string& line) {
  std::istringstream words(line);
  std::string command, name;
  words >> command >> name;
  if (command == "open") {
    std::int64_t batch = 0;
    std::string folder, images;
    words >> batch >> folder >> images;
    COHORT_CHECK_ARG(words && batch > 0, "[data_bench] expected a case, a batch and folders, got ",
                     line);
    ways.clear();
    ways = open_case(name, batch, folder, images);
    std::string names;
    for (const auto& [way, unused] : ways) names += (names.empty() ? "" : " ") + way;
    return names;
  }
  const auto way = ways.find(name);
  COHORT_CHECK_ARG(way != ways.end(), "[data_bench] expected a way of the open case, got ", line);
  std::ostringstream out;
  out.precision(17);
  if (command == "check") {
    const BatchSource::Pass pass = way->second->pass();
    out << pass.rows << ' ' << pass.sum;
    return out.str();
  }
  std::int64_t count = 0;
  words >> count;
  COHORT_CHECK_ARG(command == "run" && words && count > 0,
                   "[data_bench] expected open, check or run, got ", line);
  out << time_of(*way->second, count).count();
  return out.str();
}

}  // namespace

BatchSources open_case(const std::string& name, std::int64_t batch, const std::string& folder,
                       const std::string& images) {
  if (name == "rows") return rows(batch, folder, images);
  if (name == "examples_image") {
    return examples({{"image", FixedLenFeature{FeatureType::kString}},
                     {"label", FixedLenFeature{FeatureType::kInt64}}},
                    batch, folder);
  }
  if (name == "examples_floats") return examples(float_features(), batch, folder);
  if (name == "examples_shuffled") return shuffled(float_features(), batch, folder);
  if (name == "csv") return csv(batch, folder);
  if (name == "images") return images_of(batch, folder);
  COHORT_CHECK_ARG(name == "interleave_records" || name == "interleave_lines",
                   "[data_bench] unknown case ", name);
  return interleave(name, batch, folder);
}

int serve_data() {
  set_memory_policy(MemoryPolicy::kCaching);  // as every program with a strategy has it
  BatchSources ways;
  return serve_lines("cohort", [&](const std::string& line) { return answer(ways, line); });
}

}  // namespace cohort::bench
