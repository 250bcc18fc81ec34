// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cohort/base/check.h"
#include "cohort/base/crc32c.h"
#include "cohort/base/failpoint.h"
#include "cohort/checkpoint/internal/format.h"
#include "cohort/checkpoint/internal/temporary.h"
#include "cohort/checkpoint/internal/tensor_writer.h"
#include "cohort/checkpoint/safetensors.h"

namespace cohort {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

namespace {

using internal::checkpoint::FormatType;
using internal::checkpoint::kFormatTypes;

struct Item {
  const std::string* name;
  const Tensor* tensor;
  const FormatType* type;
};

const FormatType& type_of(const std::string& name, const Tensor& tensor) {
  COHORT_CHECK_ARG(tensor.defined(), "[save_tensors] expected a tensor as \"", name,
                   "\", got an undefined one");
  for (const FormatType& type : kFormatTypes) {
    if (type.dtype == tensor.scalar_type()) return type;
  }
  throw InvalidArgument(str_cat("[save_tensors] \"", name, "\": the format has no type for ",
                                dtype_name(tensor.scalar_type()),
                                "; save its parts, or the tensor in another dtype"));
}

// Wide types first keeps every tensor aligned; this is the order of the reference writer.
std::vector<Item> in_file_order(const std::map<std::string, Tensor>& tensors) {
  std::vector<Item> items;
  for (const auto& [name, tensor] : tensors) {
    COHORT_CHECK_ARG(name != internal::checkpoint::kMetadataKey,
                     "[save_tensors] expected a name other than ",
                     internal::checkpoint::kMetadataKey, ", which the format keeps for metadata");
    items.push_back({&name, &tensor, &type_of(name, tensor)});
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.type->bytes > b.type->bytes; });
  return items;
}

using Sums = std::map<std::string, uint32_t>;

// Always equally long for the same items, whatever the checksums: zero for those that are missing.
std::string header_of(const std::vector<Item>& items, std::map<std::string, std::string> metadata,
                      const Sums& sums) {
  nlohmann::json texts = nlohmann::json::object();
  std::map<std::string, internal::checkpoint::FormatEntry> entries;
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  header[internal::checkpoint::kMetadataKey] =
      nullptr;  // the first, as the reference writer has it
  uint64_t offset = 0;
  for (const Item& item : items) {
    const uint64_t end = offset + static_cast<uint64_t>(item.tensor->numel() * item.type->bytes);
    header[*item.name] = {{"dtype", item.type->name},
                          {"shape", shape_of(*item.tensor)},
                          {"data_offsets", {offset, end}}};
    offset = end;
    const auto sum = sums.find(*item.name);
    texts[*item.name] = internal::checkpoint::digits_of(sum == sums.end() ? 0 : sum->second);
    entries[*item.name] = {item.type->name, shape_of(*item.tensor)};
  }
  std::string text;
  try {
    metadata[internal::checkpoint::kTensorSums] = texts.dump();
    metadata[internal::checkpoint::kHeaderSum] =
        internal::checkpoint::digits_of(internal::checkpoint::header_sum(metadata, entries));
    header[internal::checkpoint::kMetadataKey] = metadata;
    text = header.dump();
  } catch (const nlohmann::json::exception& e) {
    throw InvalidArgument(str_cat("[save_tensors] expected names in UTF-8: ", e.what()));
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  COHORT_CHECK_ARG(text.size() <= internal::checkpoint::kLargestHeader,
                   "[save_tensors] expected at most ", internal::checkpoint::kLargestHeader,
                   " bytes of names and shapes, got ", text.size());
  return text;
}

std::string_view bytes_of(const void* data, std::size_t bytes) {
  return {static_cast<const char*>(data), bytes};
}

}  // namespace

internal::checkpoint::WrittenTensors internal::checkpoint::write_tensors(
    OutputFile& file, const std::map<std::string, Tensor>& tensors,
    const std::map<std::string, std::string>& metadata) {
  for (const char* own : {kTensorSums, kHeaderSum}) {
    COHORT_CHECK_ARG(!metadata.contains(own), "[save_tensors] expected metadata without \"", own,
                     "\", under which checksums are kept");
  }
  const std::vector<Item> items = in_file_order(tensors);
  std::string header = header_of(items, metadata, {});
  const uint64_t length = header.size();
  file.write(&length, sizeof length);
  file.write(header.data(), header.size());
  WrittenTensors out;
  out.header_bytes = sizeof length + length;
  out.bytes = out.header_bytes;
  Sums sums;
  for (const Item& item : items) {
    const Tensor data = item.tensor->detach().cpu().contiguous();
    file.write(data.const_data_ptr(), data.nbytes());
    const uint32_t crc = base::crc32c(bytes_of(data.const_data_ptr(), data.nbytes()));
    sums[*item.name] = crc;
    out.tensors[*item.name] = {out.bytes, data.nbytes(), crc};
    out.bytes += data.nbytes();
  }
  // Once more, with the checksums that are known now.
  header = bytes_of(&length, sizeof length);
  header += header_of(items, metadata, sums);
  COHORT_CHECK(header.size() == out.header_bytes, "a header has changed its length");
  file.write_at(0, header.data(), header.size());
  out.header_crc32c = base::crc32c(header);
  return out;
}

void save_tensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                  const std::map<std::string, std::string>& metadata) {
  const std::string own = std::filesystem::path(path).filename().string();
  internal::checkpoint::remove_temporaries(
      internal::checkpoint::folder_of(path),
      [&](std::string_view base) { return internal::checkpoint::are_of_one_series(base, own); });
  internal::checkpoint::AtomicFile file("save_tensors", path);
  internal::checkpoint::write_tensors(file.file(), tensors, metadata);
  internal::base::failpoint("save_tensors.written");
  file.commit();
}

}  // namespace cohort
