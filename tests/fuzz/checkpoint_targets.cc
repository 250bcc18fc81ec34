// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints: tables of contents, and files of tensors with their headers.
#include <filesystem>
#include <fstream>

#include "cohort/base/crc32c.h"
#include "cohort/checkpoint/internal/checkpoint_folder.h"
#include "cohort/checkpoint/internal/file.h"
#include "cohort/checkpoint/internal/format.h"
#include "cohort/checkpoint/safetensors.h"
#include "tests/fuzz/parts.h"
#include "tests/fuzz/targets.h"

namespace cohort::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHead = "{\"crc32c\": \"";
constexpr std::string_view kMiddle = "\", \"manifest\": ";
constexpr std::string_view kTail = "}\n";
constexpr std::size_t kDigits = 8;

/// A table of contents with a true checksum: random bytes hardly ever have one.
std::string framed(std::string_view body) {
  std::string text(kHead);
  text += internal::checkpoint::digits_of(internal::base::crc32c(body));
  text += kMiddle;
  text += body;
  return text += kTail;
}

void fuzz_manifest(std::string_view bytes) {
  const std::string text = framed(bytes);
  survives([&] {
    const internal::checkpoint::Manifest manifest =
        internal::checkpoint::parse_manifest(text, "cohort.json");
    const std::string again = internal::checkpoint::manifest_text(manifest);
    if (internal::checkpoint::manifest_text(internal::checkpoint::parse_manifest(again, "again")) !=
        again) {
      broken("a table of contents changed when it was written");
    }
  });
}

/// A folder in memory, where there is one; it is gone when the program has ended.
const std::string& work_folder() {
  struct Folder {
    std::string path = (fs::exists("/dev/shm") ? "/dev/shm/" : temporary_file()) +
                       fs::path(temporary_file()).filename().string() + "_checkpoint";
    Folder() { fs::create_directories(path); }
    ~Folder() { fs::remove_all(path); }
  };
  static const Folder folder;
  return folder.path;
}

void write_file(const std::string& name, std::string_view bytes) {
  std::ofstream(work_folder() + "/" + name, std::ios::binary) << bytes;
}

/// One shard, its size and header as the table of contents says, however they look.
void fuzz_checkpoint(std::string_view bytes) {
  const std::size_t end = std::min(bytes.find('\n'), bytes.size());
  const std::string_view values = bytes.substr(0, end);
  const std::string_view shard = bytes.substr(std::min(end + 1, bytes.size()));
  const std::size_t header = std::min<std::size_t>(shard.size(), 64);
  write_file("shard", shard);
  write_file(
      internal::checkpoint::kManifestName,
      framed("{\"format\": \"cohort.checkpoint\", \"format_version\": 1, \"files\": "
             "[{\"name\": \"shard\", \"bytes\": " +
             std::to_string(shard.size()) + ", \"header_bytes\": " + std::to_string(header) +
             ", \"header_crc32c\": " +
             std::to_string(internal::base::crc32c(shard.substr(0, header))) +
             "}], \"values\": " + std::string(values) + ", \"aliases\": {}, \"unfinished\": []}"));
  survives([&] { internal::checkpoint::read_checkpoint(work_folder()); });
}

void fuzz_safetensors(std::string_view bytes) {
  survives([&] {
    const TensorFile file = load_tensors(memory_file(bytes));
    const std::string path = work_folder() + "/again";
    save_tensors(path, file.tensors, file.metadata);
    const TensorFile again = load_tensors(memory_file(taken(path)));
    if (again.metadata != file.metadata || again.tensors.size() != file.tensors.size()) {
      broken("a file of tensors changed when it was written");
    }
  });
}

std::map<std::string, Tensor> some_tensors() {
  return {{"a/b", arange(3)}, {"on", tensor({1, 0}, kBool)}, {"none", zeros({0, 2}, kUint8)}};
}

std::vector<std::string> safetensors_seeds() {
  const std::string path = work_folder() + "/seed";
  save_tensors(path, some_tensors(), {{"format", "pt"}});
  const std::string text =
      R"({"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"__metadata__":{"k":"v"}})";
  std::string plain(1, static_cast<char>(text.size()));
  plain += std::string(7, '\0') + text + std::string(8, '\1');
  return {taken(path), plain};
}

std::vector<std::string> manifest_seeds() {
  const std::string folder = work_folder() + "_seed";
  internal::checkpoint::SavedValues values{.tensors = some_tensors()};
  values.aliases["again"] = "on";
  values.unfinished.insert("later");
  internal::checkpoint::write_checkpoint(folder, values);
  const std::string text = taken(folder + "/" + internal::checkpoint::kManifestName);
  fs::remove_all(folder);
  const std::size_t begin = kHead.size() + kDigits + kMiddle.size();
  return {text.substr(begin, text.size() - begin - kTail.size())};
}

std::vector<std::string> checkpoint_seeds() {
  const std::string data(72, '\1');
  const std::string sum =
      std::to_string(internal::base::crc32c(std::string_view(data).substr(64, 4)));
  const auto piece = [&](const char* offset, const char* start) {
    return std::string(R"({"file":0,"bytes":4,"crc32c":)") + sum + R"(,"offset":)" + offset +
           R"(,"starts":[0,)" + start + R"(],"sizes":[1,1]})";
  };
  return {R"({"w":{"dtype":"F32","shape":[1,2],"pieces":[)" + piece("64", "0") + "," +
          piece("68", "1") + "]}}\n" + data};
}

}  // namespace

std::span<const Target> checkpoint_targets() {
  static const Target targets[] = {{"manifest", fuzz_manifest, manifest_seeds},
                                   {"checkpoint", fuzz_checkpoint, checkpoint_seeds},
                                   {"safetensors", fuzz_safetensors, safetensors_seeds}};
  return targets;
}

}  // namespace cohort::fuzz
