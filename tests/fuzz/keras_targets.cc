// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/keras_targets.h"

#include <hdf5.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "cohort/archive/hdf5_file.h"
#include "cohort/archive/internal/hdf5_trailer.h"
#include "cohort/archive/internal/hdf5_types.h"
#include "cohort/archive/zip_file.h"
#include "cohort/checkpoint/internal/file.h"
#include "cohort/keras/internal/layer_call.h"
#include "cohort/keras/internal/unknown_fields.h"
#include "cohort/keras/internal/weights_to_come.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/losses/losses.h"
#include "cohort/keras/metrics/metrics.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/keras/sequential.h"
#include "cohort/keras/test_golden_layers.h"

namespace cohort::fuzz {
namespace {

namespace fs = std::filesystem;
using internal::archive::FileBytes;
using internal::archive::Hdf5Id;
using internal::archive::kTrailerBytes;
using keras::Config;
using Strings = std::vector<std::string>;

constexpr const char* kConfigMember = "config.json";
constexpr const char* kWeightsMember = "model.weights.h5";
constexpr const char* kMetadataMember = "metadata.json";

std::string path_of(const std::string& name) { return work_folder() + "/" + name; }

std::string written(const std::string& name, std::string_view bytes) {
  const std::string path = path_of(name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::string bytes_of(const std::string& path) {
  return internal::checkpoint::InputFile("fuzz", path).read_all(uint64_t{1} << 30);
}

// Configs: layers with inputs to call them on, models, and what models are compiled with.

// Whatever its inputs' shape: nothing but an error may come of it.
void shape_outputs(const keras::Layer& layer) {
  for (const Shape& shape : {Shape{}, Shape{-1}, Shape{2, 3}, Shape{-1, 3, 4}, Shape{2, 0, 4, 3},
                             Shape{-1, 3, -1, 4, 2}}) {
    try {
      layer.base().compute_output_shape(shape);
    } catch (const Error&) {
    }
  }
}

void call_layer(const Config& config) {
  const Config& wanted = config.at("layer");
  const keras::Layer layer = keras::Layer::deserialize(wanted);
  keras::internal::build_as_told(layer.base(), wanted);
  shape_outputs(layer);
  for (const bool training : {false, true}) {
    layer(keras::testing::element_in(config.at("inputs")), {.training = training});
  }
}

Config made_again(const Config& config) {
  const Config* module = config.find("module");
  const std::string text = module != nullptr && module->is_text() ? module->text() : "";
  if (text == "keras.initializers") return keras::Initializer::deserialize(config).serialize();
  if (text == "keras.regularizers") return keras::Regularizer::deserialize(config).serialize();
  if (text == "keras.constraints") return keras::Constraint::deserialize(config).serialize();
  if (text == "keras.layers") return keras::Layer::deserialize(config).serialize();
  if (text == "keras.optimizers.schedules") {
    return keras::LearningRate::deserialize(config).serialize();
  }
  if (text == "keras.optimizers") return keras::Optimizer::deserialize(config).serialize();
  if (text == "keras.losses") return keras::Loss::deserialize(config).serialize();
  if (text == "keras.metrics") return keras::Metric::deserialize(config).serialize();
  return keras::model_from_config(config)->serialize();
}

void run_config(const Input& input) {
  const keras::internal::UnknownFieldsWarn lenient;
  const Config config = Config::parse_json(input.bytes);
  if (config.is_object() && config.contains("layer")) return call_layer(config);
  const Config once = made_again(config), twice = made_again(once);
  if (once != twice) broken("a config changed when it was read: " + once.to_json());
}

Strings model_configs() {
  Strings seeds;
  const Config all = keras::testing::read_golden(COHORT_GOLDEN "/functional.json");
  for (const Config& model : all.list()) seeds.push_back(model.at("config").to_json());
  return seeds;
}

Strings config_seeds() {
  Strings seeds = model_configs();
  for (const auto& [name, config] : keras::testing::layer_cases(COHORT_GOLDEN)) {
    if (config.contains("adapt")) continue;  // it cannot be called ahead of that
    seeds.push_back(
        Config::object({{"layer", config.at("layer")}, {"inputs", config.at("inputs")}}).to_json());
  }
  const Config all = keras::testing::read_golden(COHORT_GOLDEN "/configs.json");
  for (const auto& [name, config] : all.members()) seeds.push_back(config.to_json());
  return seeds;
}

Input change_config(const std::string& bytes, bool, Random& random) {
  if (random.once_in(10)) return {changed_bytes(bytes, random)};
  try {
    Config config = Config::parse_json(bytes);
    if (config.is_object() && config.contains("layer")) {
      config.set("layer", changed_config(config.at("layer"), random));
    } else {
      config = changed_config(config, random);
    }
    return {config.to_json()};
  } catch (const Error&) {
    return {changed_bytes(bytes, random)};
  }
}

// Weights: files of ours, with sums or without, and of other programs, in packed pieces.

FileBytes owned(std::string_view bytes) {
  FileBytes out(bytes.size());
  bytes.copy(out.data.get(), bytes.size());
  return out;
}

std::string with_trailer(const std::string& content) {
  FileBytes out = owned(content + std::string(kTrailerBytes, '\0'));
  internal::archive::write_trailer(out);
  return std::string(out.view());
}

bool has_trailer(std::string_view bytes) {
  return bytes.size() >= kTrailerBytes &&
         internal::archive::trailer_sum(bytes.substr(bytes.size() - kTrailerBytes)).has_value();
}

std::string changed_weights(std::string bytes, Random& random) {
  if (has_trailer(bytes)) bytes.resize(bytes.size() - kTrailerBytes);
  bytes = changed_bytes(std::move(bytes), random);
  return random.once_in(2) ? with_trailer(bytes) : bytes;
}

// The same arrays in pieces, packed, as other programs may write them.
std::string packed(const std::string& weights) {
  const internal::archive::Hdf5Reader in("fuzz", "seed", owned(weights));
  const std::string path = path_of("packed.h5");
  {
    const Hdf5Id file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
    const Hdf5Id parents(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
    H5Pset_create_intermediate_group(parents, 1);
    for (const auto& [name, array] : in.arrays()) {
      const std::vector<hsize_t> sizes(array.shape.begin(), array.shape.end());
      const auto rank = static_cast<int>(sizes.size());
      const Hdf5Id made(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
      if (rank > 0) {
        std::vector<hsize_t> piece(sizes);
        for (hsize_t& size : piece) size = std::min<hsize_t>(size, 2);
        H5Pset_chunk(made, rank, piece.data());
        H5Pset_shuffle(made);
        H5Pset_deflate(made, 4);
        H5Pset_fletcher32(made);
      }
      const Hdf5Id space(H5Screate_simple(rank, sizes.data(), nullptr), H5Sclose);
      const Hdf5Id type = internal::archive::hdf5_type_of(array.dtype);
      const Hdf5Id out(H5Dcreate2(file, name.c_str(), type, space, parents, made, H5P_DEFAULT),
                       H5Dclose);
      H5Dwrite(out, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, in.read(name).const_data_ptr());
    }
  }
  return bytes_of(path);
}

keras::Sequential& small_model() {
  static keras::Sequential model = [] {
    keras::Sequential out({keras::InputLayer({4}), keras::Dense(3, {.activation = "tanh"}),
                           keras::BatchNormalization(), keras::Dense(1)});
    out.compile({.optimizer = keras::Adam(), .loss = "mse"});
    out.train_on_batch(ones({2, 4}), ones({2, 1}));
    return out;
  }();
  return model;
}

Strings weights_seeds() {
  const std::string path = path_of("seed.weights.h5");
  small_model().save_weights(path);
  const std::string ours = bytes_of(path);
  return {ours, ours.substr(0, ours.size() - kTrailerBytes), packed(ours)};
}

// What is sent over a line or lies on a disk: of ours each byte is summed.
Input change_weights(const std::string& bytes, bool is_seed, Random& random) {
  if (is_seed && has_trailer(bytes) && random.once_in(2)) return {damaged(bytes, random), bytes};
  return {changed_weights(bytes, random)};
}

// The library keeps files open in which something is.
void check_closed() {
  if (H5Fget_obj_count(H5F_OBJ_ALL, H5F_OBJ_ALL) > 0) broken("a part of an HDF5 file stayed open");
}

void load_small(const std::string& bytes) {
  try {
    small_model().load_weights(written("run.weights.h5", bytes));
  } catch (const Error&) {
    check_closed();
    throw;
  }
  check_closed();
}

void run_weights(const Input& input) {
  const keras::Sequential& model = small_model();
  load_small(input.bytes);
  if (input.undamaged.empty()) return;
  const std::vector<Tensor> got = model.get_weights();
  load_small(input.undamaged);
  const std::vector<Tensor> expected = model.get_weights();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!got[i].equal(expected[i])) broken("weights of a damaged file were loaded");
  }
}

// Archives.

using Members = std::map<std::string, std::string>;

Members members_of(const std::string& path) {
  const internal::archive::ZipReader archive("fuzz", path);
  Members members;
  for (const std::string& name : archive.names()) {
    members[name] = std::string(archive.read(name).view());
  }
  return members;
}

std::string archive_of(const Members& members) {
  const std::string path = path_of("made.keras");
  std::vector<internal::archive::ZipMember> list;
  for (const auto& [name, bytes] : members) list.push_back({name, bytes});
  internal::checkpoint::AtomicFile file("fuzz", path);
  internal::archive::write_zip("fuzz", file.file(), list);
  file.commit();
  return bytes_of(path);
}

Strings archive_seeds() {
  keras::internal::WeightsToCome::set_most_besides(uint64_t{256} << 20);  // on every machine
  Strings seeds;
  const std::string path = path_of("seed.keras");
  const auto add = [&](const keras::Model& model) {
    model.save(path);
    seeds.push_back(bytes_of(path));
  };
  add(small_model());
  std::set<fs::path> golden;  // in one order
  for (const auto& entry : fs::directory_iterator(COHORT_GOLDEN)) {
    if (entry.path().extension() == ".keras") golden.insert(entry.path());
  }
  for (const fs::path& file : golden) add(*keras::load_model(file));
  for (const std::string& config : model_configs()) {
    add(*keras::model_from_json(config));
  }
  return seeds;
}

Members changed_members(Members members, Random& random) {
  const std::size_t how = random.below(8);
  if (how < 4) {
    const Config config = Config::parse_json(members[kConfigMember]);
    members[kConfigMember] = changed_config(config, random).to_json();
  } else if (how < 7) {
    members[kWeightsMember] = changed_weights(members[kWeightsMember], random);
  } else {
    auto some =
        std::next(members.begin(), static_cast<std::ptrdiff_t>(random.below(members.size())));
    std::string bytes = some->second, name = some->first;
    members.erase(some);
    if (random.once_in(3)) name += "x";
    if (!random.once_in(3)) members[name] = changed_bytes(bytes, random);
  }
  return members;
}

Input change_archive(const std::string& bytes, bool is_seed, Random& random) {
  if (is_seed && random.once_in(3)) return {damaged(bytes, random), bytes};
  try {
    return {archive_of(changed_members(members_of(written("change.keras", bytes)), random))};
  } catch (const Error&) {
    return {changed_bytes(bytes, random)};
  }
}

// By arrays: where they are may differ.
void add_arrays(const std::string& weights, Members& out) {
  const internal::archive::Hdf5Reader in("fuzz", "again", owned(weights));
  for (const auto& [name, array] : in.arrays()) {
    const Tensor values = in.read(name);
    std::string& bytes = out[str_cat(name, " ", values.scalar_type(), values.sizes())];
    bytes.assign(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
  }
}

// All that a file says, as it is written again.
Members meaning_of(const std::string& bytes) {
  const std::shared_ptr<keras::Model> model = keras::load_model(written("run.keras", bytes));
  const std::string again = path_of("again.keras");
  model->save(again);
  Members members = members_of(again);
  members.erase(kMetadataMember);  // which has the time
  add_arrays(members.extract(kWeightsMember).mapped(), members);
  return members;
}

void run_archive(const Input& input) {
  const Members meaning = meaning_of(input.bytes);
  if (!input.undamaged.empty()) {
    if (meaning != meaning_of(input.undamaged)) broken("a damaged file was loaded as another");
    return;
  }
  const Members again = meaning_of(bytes_of(path_of("again.keras")));
  if (again == meaning) return;
  for (const auto& [name, bytes] : meaning) {
    const auto other = again.find(name);
    if (other != again.end() && other->second == bytes) continue;
    broken("a model changed when it was saved, its " + name +
           (name.ends_with("json") ? ": " + bytes : std::string()));
  }
  broken("a model that was saved again has other members");
}

}  // namespace

std::span<const FileTarget> keras_targets() {
  static const FileTarget targets[] = {
      {"keras_config", config_seeds, change_config, run_config, false},
      {"keras_weights", weights_seeds, change_weights, run_weights, true},
      {"keras_archive", archive_seeds, change_archive, run_archive, true}};
  return targets;
}

}  // namespace cohort::fuzz
