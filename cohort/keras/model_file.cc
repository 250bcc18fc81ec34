// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/model_file.h"

#include <charconv>
#include <ctime>
#include <filesystem>
#include <set>
#include <system_error>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/checkpoint/internal/file.h"
#include "cohort/checkpoint/internal/temporary.h"
#include "cohort/keras/config.h"
#include "cohort/keras/model.h"
#include "cohort/keras/sequential.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::keras::internal {

using keras::WeightGroup;

namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigMember = "config.json";
constexpr const char* kMetadataMember = "metadata.json";
constexpr const char* kWeightsMember = "model.weights.h5";
constexpr const char* kOtherWeightsMember = "model.weights.npz";
constexpr const char* kOptimizer = "optimizer";
constexpr const char* kInnerOptimizer = "optimizer/inner_optimizer";
constexpr std::size_t kCountAndRate = 2;
// Files have nothing that a Keras 3 of this version has not.
constexpr const char* kWrittenAs = "3.8.0";

std::string metadata_text() {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  char date[64];
  std::strftime(date, sizeof date, "%Y-%m-%d@%H:%M:%S", &local);
  return keras::Config::object({{"keras_version", kWrittenAs}, {"date_saved", std::string(date)}})
      .to_json();
}

template <class Write>
void write_whole(const char* operation, const std::string& path, const Write& write) {
  const std::string own = std::filesystem::path(path).filename().string();
  cohort::internal::checkpoint::remove_temporaries(
      cohort::internal::checkpoint::folder_of(path), [&](std::string_view base) {
        return cohort::internal::checkpoint::are_of_one_series(base, own);
      });
  cohort::internal::checkpoint::AtomicFile file(operation, path);
  write(file.file());
  cohort::internal::base::failpoint("save_model.written");
  file.commit();
}

std::unique_ptr<cohort::internal::archive::CheckedBytes> bytes_of_file(const char* operation,
                                                                       const std::string& path) {
  const auto file = std::make_shared<cohort::internal::checkpoint::InputFile>(operation, path);
  return std::make_unique<cohort::internal::archive::CheckedBytes>(
      operation, path, file->size(),
      [file](uint64_t place, void* out, std::size_t bytes) { file->read(place, out, bytes); });
}

// Where the value of a variable is, if that is one piece of this process's memory that such an
// array can be read into; else undefined.
Tensor place_of(const Variable& variable,
                const cohort::internal::archive::Hdf5Reader::Array& array) {
  auto& impl = variable.impl();
  if (impl.local() == nullptr || impl.copies() != 1 || impl.leaf_count() != 1) return {};
  Tensor value = impl.value();  // not as layers of mixed precision read it, which is a copy
  const bool fits = value.is_cpu() && value.is_contiguous() && value.scalar_type() != kBool &&
                    value.scalar_type() == array.dtype && shape_of(value) == array.shape;
  return fits ? value : Tensor();
}

std::string described(DType dtype, const Shape& shape) {
  return str_cat(dtype_name(dtype), bracketed(shape));
}

// "layers/dense/vars/1" is number 1 of the group "layers/dense".
bool split_path(const std::string& path, std::string& group, std::size_t& number) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return false;
  const std::string_view digits = std::string_view(path).substr(slash + 1);
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (read.ec != std::errc() || read.ptr != digits.data() + digits.size()) return false;
  const std::string_view above = std::string_view(path).substr(0, slash);
  if (above == "vars") {
    group.clear();
    return true;
  }
  if (!above.ends_with("/vars")) return false;
  group = above.substr(0, above.size() - 5);
  return true;
}

// TensorFlow 2.13 had another name for "layers".
std::string with_new_names(const std::string& path) {
  constexpr std::string_view kOld = "_layer_checkpoint_dependencies";
  std::string out = path;
  for (std::size_t at; (at = out.find(kOld)) != std::string::npos;) {
    out.replace(at, kOld.size(), "layers");
  }
  return out;
}

template <class Has>
void check_is_hdf5(const char* operation, const std::string& path, const Has& has) {
  if (has(kWeightsMember) || !has(kOtherWeightsMember)) return;
  throw Unimplemented(str_cat("[", operation, "] ", path, ": expected weights in ", kWeightsMember,
                              ", got ", kOtherWeightsMember,
                              ": save the model with Keras's default format of weights"));
}

std::string text_of_file(const cohort::internal::checkpoint::InputFile& file) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 30U;
  return file.read_all(kMostBytes);
}

// Where a step of a folder's reading failed, if it did.
void check_read(const char* operation, const fs::path& path, const std::error_code& error) {
  if (error) cohort::internal::checkpoint::throw_system(operation, path.string(), error.value());
}

// By the names that an archive would have them under. Programs that fetch models leave links in
// place of files, to where they keep them.
std::map<std::string, std::string> assets_below(const char* operation, const std::string& folder) {
  constexpr std::size_t kMostFiles = 10'000;  // as in an archive
  std::map<std::string, std::string> assets;
  const fs::path root = fs::path(folder) / "assets";
  std::error_code error;
  const fs::file_status status = fs::status(root, error);
  if (status.type() == fs::file_type::not_found) return assets;
  check_read(operation, root, error);
  if (!fs::is_directory(status)) {
    throw DataLoss(str_cat("[", operation, "] expected a folder, got a file: ", root.string()));
  }
  fs::recursive_directory_iterator entry(root, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (entry->symlink_status(error).type() == fs::file_type::directory) continue;
    const std::string name = entry->path().lexically_relative(folder).generic_string();
    const std::string bad = cohort::internal::archive::why_bad_member_name(name);
    if (!bad.empty()) {
      throw DataLoss(str_cat("[", operation, "] expected assets with plain names in ",
                             root.string(), ", got ", name, ", whose name ", bad));
    }
    if (assets.size() == kMostFiles) {
      throw DataLoss(str_cat("[", operation, "] expected at most ", kMostFiles, " assets in ",
                             root.string(), ", got more"));
    }
    assets[name] = text_of_file({operation, entry->path().string()});
  }
  check_read(operation, root, error);
  return assets;
}

bool is_of_optimizer(const std::string& group) {
  return group == kOptimizer || group.starts_with("optimizer/") || group.ends_with("/optimizer") ||
         group.find("/optimizer/") != std::string::npos;
}

}  // namespace

ModelFile model_file_of(const char* operation, const std::string& path) {
  if (path.ends_with(".safetensors")) return ModelFile::kSafetensors;
  if (path.ends_with(".weights.h5")) return ModelFile::kHdf5;
  if (path.ends_with(".keras")) return ModelFile::kKeras;
  throw InvalidArgument(str_cat("[", operation,
                                "] expected a path that ends with .keras, .weights.h5 or "
                                ".safetensors, got ",
                                path));
}

void check_has_weights(const char* operation, const keras::Model& model) {
  const std::string error = model.zeros_error();
  // Of these it is known that there are none.
  const bool is_drawn =
      model.is_functional() ||
      (model.built() && dynamic_cast<const keras::Sequential*>(&model) != nullptr);
  COHORT_CHECK_STATE(is_drawn || !model.variables().empty() || !error.empty(), "[", operation,
                     "] expected a built model, got \"", model.name(),
                     "\" without variables: call it, fit it, or start it with an "
                     "InputLayer first; a class of your own has the layers that it was given "
                     "by add() and track()");
  const std::string waiting = model.waiting_sub_layer();
  if (waiting.empty()) return;
  throw FailedPrecondition(
      str_cat("[", operation, "] expected a model that has all its weights, got \"", model.name(),
              "\" with \"", waiting,
              "\", which gets its weights when it is first called: call the model on data first",
              error.empty() ? "" : "; building it by a call with zeros failed, ", error));
}

std::vector<WeightGroup> stored_groups(const keras::Model& model) {
  std::vector<WeightGroup> groups = model.weight_groups();
  if (model.compiled() && model.optimizer() && model.optimizer().base().built()) {
    const keras::OptimizerBase& optimizer = model.optimizer().base();
    groups.push_back({kOptimizer, optimizer.name(), optimizer.stored_variables()});
    if (const keras::OptimizerBase* inner = optimizer.wrapped(); inner != nullptr) {
      groups.push_back({kInnerOptimizer, inner->name(), inner->stored_variables()});
    }
  }
  return groups;
}

std::string stored_path(const std::string& group, std::size_t i) {
  return str_cat(group, group.empty() ? "" : "/", "vars/", i);
}

StoredValues read_values(const std::vector<WeightGroup>& groups) {
  StoredValues values;
  for (const WeightGroup& group : groups) {
    for (std::size_t i = 0; i < group.weights.size(); ++i) {
      values[stored_path(group.path, i)] = group.weights[i].value();
    }
  }
  return values;
}

void assign_values(const std::vector<WeightGroup>& groups, const StoredValues& values) {
  for (const WeightGroup& group : groups) {
    for (std::size_t i = 0; i < group.weights.size(); ++i) {
      const auto found = values.find(stored_path(group.path, i));
      if (found == values.end()) continue;
      group.weights[i].assign(found->second.to(group.weights[i].dtype()));
    }
  }
}

cohort::internal::archive::FileBytes hdf5_of(const std::vector<WeightGroup>& groups,
                                             const StoredValues& values,
                                             const StoredValues& named) {
  std::size_t bytes = 0;
  std::set<std::string> made;
  for (const auto& value : values) bytes += value.second.nbytes();
  cohort::internal::archive::Hdf5Writer file(bytes);
  for (const WeightGroup& group : groups) {
    const std::string vars = group.path.empty() ? "vars" : group.path + "/vars";
    file.add_group(vars, group.layer);
    made.insert(vars);
    for (std::size_t i = 0; i < group.weights.size(); ++i) {
      const std::string path = stored_path(group.path, i);
      file.add(path, values.at(path));
    }
  }
  for (const auto& [path, value] : named) {
    const std::string vars = path.substr(0, path.rfind('/'));
    if (made.insert(vars).second) file.add_group(vars, "lookup");
    file.add(path, value);
  }
  return std::move(file).finish();
}

void write_weights_file(const std::string& path,
                        const cohort::internal::archive::FileBytes& weights) {
  write_bytes_file("save_weights", path, weights.view());
}

void write_bytes_file(const char* operation, const std::string& path, std::string_view bytes) {
  write_whole(operation, path, [&](cohort::internal::checkpoint::OutputFile& file) {
    file.write(bytes.data(), bytes.size());
  });
}

void write_model_file(const std::string& path, const std::string& config,
                      const cohort::internal::archive::FileBytes& weights,
                      const std::map<std::string, std::string>& assets) {
  const std::string metadata = metadata_text();
  std::vector<cohort::internal::archive::ZipMember> members = {
      {kMetadataMember, metadata}, {kConfigMember, config}, {kWeightsMember, weights.view()}};
  for (const auto& [name, bytes] : assets) members.push_back({name, bytes});
  write_whole("save", path, [&](cohort::internal::checkpoint::OutputFile& file) {
    cohort::internal::archive::write_zip("save", file, members);
  });
}

WeightsReader::WeightsReader(const char* operation, const std::string& path) {
  if (model_file_of(operation, path) == ModelFile::kHdf5) {
    file_ = std::make_unique<cohort::internal::archive::Hdf5Reader>(operation, path,
                                                                    bytes_of_file(operation, path));
    list();
    return;
  }
  const cohort::internal::archive::ZipReader archive(operation, path);
  config_ = archive.read(kConfigMember).view();
  check_is_hdf5(operation, path, [&](const char* name) { return archive.contains(name); });
  for (const std::string& name : archive.names()) {
    if (name.starts_with("assets/") && !name.ends_with('/')) {
      assets_[name] = archive.read(name).view();
    }
  }
  const std::string shown = path + "/" + kWeightsMember;
  if (auto bytes = archive.open(kWeightsMember)) {
    file_ =
        std::make_unique<cohort::internal::archive::Hdf5Reader>(operation, shown, std::move(bytes));
  } else {
    file_ = std::make_unique<cohort::internal::archive::Hdf5Reader>(operation, shown,
                                                                    archive.read(kWeightsMember));
  }
  list();
}

std::unique_ptr<WeightsReader> WeightsReader::of_folder(const char* operation,
                                                        const std::string& path) {
  const auto has = [&](const char* name) {
    std::error_code error;
    const bool exists = fs::exists(fs::path(path) / name, error);
    check_read(operation, fs::path(path) / name, error);
    return exists;
  };
  check_is_hdf5(operation, path, has);
  for (const char* const name : {kConfigMember, kWeightsMember}) {
    COHORT_CHECK_ARG(has(name), "[", operation, "] expected the folder of a model, with ",
                     kConfigMember, " and ", kWeightsMember, ", got ", path, " without ", name);
  }
  std::unique_ptr<WeightsReader> reader(new WeightsReader());
  const std::string weights = (fs::path(path) / kWeightsMember).string();
  reader->config_ = text_of_file({operation, (fs::path(path) / kConfigMember).string()});
  reader->assets_ = assets_below(operation, path);
  reader->file_ = std::make_unique<cohort::internal::archive::Hdf5Reader>(
      operation, weights, bytes_of_file(operation, weights));
  reader->list();
  return reader;
}

void WeightsReader::list() {
  for (const auto& [path, array] : file_->arrays()) {
    std::string group;
    std::size_t number = 0;
    if (split_path(path, group, number)) groups_[with_new_names(group)][number] = {path, array};
  }
}

uint64_t WeightsReader::bytes() const {
  uint64_t bytes = 0;
  for (const auto& [path, array] : file_->arrays()) {
    uint64_t own = c10::elementSize(array.dtype);
    for (const int64_t size : array.shape) own *= static_cast<uint64_t>(size);
    bytes += own;
  }
  return bytes;
}

StoredValues WeightsReader::named_values() const {
  StoredValues values;
  for (const auto& [path, array] : file_->arrays()) {
    std::string group;
    std::size_t number = 0;
    if (!split_path(path, group, number)) values[with_new_names(path)] = file_->read(path);
  }
  return values;
}

std::size_t WeightsReader::optimizer_values() const {
  const auto found = groups_.find(kOptimizer);
  if (found == groups_.end()) return 0;
  std::size_t count = found->second.size();
  // A LossScaleOptimizer has the values of the one inside among its own.
  const auto inner = groups_.find(kInnerOptimizer);
  if (inner != groups_.end()) {
    const std::size_t inside = inner->second.size();
    if (inside > kCountAndRate || inside > count) return count;
    count -= inside;
  }
  const auto first = found->second.find(0);
  // Of one that made no step, Keras has its count and rate alone, which a config has, too, and of a
  // LossScaleOptimizer its counter and scale beside these, but nothing of the one within it.
  const std::size_t most = has_scaled_optimizer() ? kCountAndRate + 2 : kCountAndRate;
  if (count > most || first == found->second.end()) return count;
  const Tensor steps = file_->read(first->second.path);
  return steps.numel() == 1 && steps.to(kFloat64).item<double>() == 0 ? 0 : count;
}

bool WeightsReader::has_scaled_optimizer() const { return groups_.contains(kInnerOptimizer); }

void WeightsReader::compare(const WeightGroup& group, std::vector<std::string>& differences) const {
  const auto found = groups_.find(group.path);
  const std::size_t count = found == groups_.end() ? 0 : found->second.size();
  const std::string name = group.path.empty() ? "the model itself" : group.path;
  if (count != group.weights.size()) {
    differences.push_back(
        str_cat(name, ": ", count, " values in the file, ", group.weights.size(), " in the model"));
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Variable& here = group.weights[i];
    const std::string shown = str_cat(stored_path(group.path, i), " (", here.name(), ")");
    const auto there = found->second.find(i);
    if (there == found->second.end()) {
      differences.push_back("not in the file: " + shown);
    } else if (there->second.array.shape != here.shape() ||
               !c10::canCast(there->second.array.dtype, here.dtype())) {
      differences.push_back(
          str_cat(shown, ": ", described(there->second.array.dtype, there->second.array.shape),
                  " in the file, ", described(here.dtype(), here.shape()), " in the model"));
    }
  }
}

std::vector<std::string> WeightsReader::differences(const std::vector<WeightGroup>& groups) const {
  std::vector<std::string> differences;
  std::map<std::string, bool> known;
  for (const WeightGroup& group : groups) {
    known[group.path] = true;
    compare(group, differences);
  }
  for (const auto& group : groups_) {
    if (!known.contains(group.first) && !is_of_optimizer(group.first)) {
      differences.push_back("not in the model: " + group.first);
    }
  }
  return differences;
}

StoredValues WeightsReader::read(const std::vector<WeightGroup>& groups) const {
  StoredValues values;
  for (const WeightGroup& group : groups) {
    for (std::size_t i = 0; i < group.weights.size(); ++i) {
      values[stored_path(group.path, i)] = file_->read(groups_.at(group.path).at(i).path);
    }
  }
  return values;
}

void WeightsReader::fill(const std::vector<WeightGroup>& groups) const {
  for (const WeightGroup& group : groups) {
    for (std::size_t i = 0; i < group.weights.size(); ++i) {
      const Variable& weight = group.weights[i];
      const Stored& stored = groups_.at(group.path).at(i);
      const Tensor place = place_of(weight, stored.array);
      if (!place.defined()) {
        weight.assign(file_->read(stored.path).to(weight.dtype()));
        continue;
      }
      place.unsafeGetTensorImpl()->bump_version();  // as by any write
      file_->read_into(stored.path, place.detach());
    }
  }
}

}  // namespace cohort::keras::internal
