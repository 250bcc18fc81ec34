// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "cohort/base/check.h"
#include "cohort/base/crc32c.h"
#include "cohort/checkpoint/internal/format.h"
#include "cohort/checkpoint/internal/tensor_writer.h"
#include "cohort/checkpoint/safetensors.h"

namespace cohort {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

namespace {

using internal::FormatType;
using internal::kFormatTypes;

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
                                dtype_name(tensor.scalar_type())));
}

// Wide types first keeps every tensor aligned; this is the order of the reference writer.
std::vector<Item> in_file_order(const std::map<std::string, Tensor>& tensors) {
  std::vector<Item> items;
  for (const auto& [name, tensor] : tensors) {
    COHORT_CHECK_ARG(name != internal::kMetadataKey, "[save_tensors] expected a name other than ",
                     internal::kMetadataKey);
    items.push_back({&name, &tensor, &type_of(name, tensor)});
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.type->bytes > b.type->bytes; });
  return items;
}

std::string header_of(const std::vector<Item>& items,
                      const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[internal::kMetadataKey] = metadata;
  uint64_t offset = 0;
  for (const Item& item : items) {
    const uint64_t end = offset + static_cast<uint64_t>(item.tensor->numel() * item.type->bytes);
    header[*item.name] = {{"dtype", item.type->name},
                          {"shape", shape_of(*item.tensor)},
                          {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception& e) {
    throw InvalidArgument(str_cat("[save_tensors] expected names in UTF-8: ", e.what()));
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  COHORT_CHECK_ARG(text.size() <= internal::kLargestHeader, "[save_tensors] expected at most ",
                   internal::kLargestHeader, " bytes of names and shapes, got ", text.size());
  return text;
}

std::string_view bytes_of(const void* data, std::size_t bytes) {
  return {static_cast<const char*>(data), bytes};
}

}  // namespace

internal::WrittenTensors internal::write_tensors(
    OutputFile& file, const std::map<std::string, Tensor>& tensors,
    const std::map<std::string, std::string>& metadata) {
  const std::vector<Item> items = in_file_order(tensors);
  const std::string header = header_of(items, metadata);
  const uint64_t length = header.size();
  file.write(&length, sizeof length);
  file.write(header.data(), header.size());
  WrittenTensors out;
  out.header_bytes = sizeof length + length;
  out.header_crc32c = crc32c(header, crc32c(bytes_of(&length, sizeof length)));
  out.bytes = out.header_bytes;
  for (const Item& item : items) {
    const Tensor data = item.tensor->detach().cpu().contiguous();
    file.write(data.const_data_ptr(), data.nbytes());
    const uint32_t crc = crc32c(bytes_of(data.const_data_ptr(), data.nbytes()));
    out.tensors[*item.name] = {out.bytes, data.nbytes(), crc};
    out.bytes += data.nbytes();
  }
  return out;
}

void save_tensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                  const std::map<std::string, std::string>& metadata) {
  internal::AtomicFile file("save_tensors", path);
  internal::write_tensors(file.file(), tensors, metadata);
  file.commit();
}

}  // namespace cohort
