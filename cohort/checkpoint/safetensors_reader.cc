// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "cohort/base/check.h"
#include "cohort/base/crc32c.h"
#include "cohort/checkpoint/internal/file.h"
#include "cohort/checkpoint/internal/format.h"
#include "cohort/checkpoint/internal/json_text.h"
#include "cohort/checkpoint/internal/tensor_reader.h"
#include "cohort/checkpoint/safetensors.h"

namespace cohort {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

namespace {

using internal::checkpoint::FormatType;
using internal::checkpoint::kLengthBytes;
using nlohmann::json;

// The header, a tensor in it, its shape.
constexpr std::size_t kDeepestHeader = 3;

constexpr const char* kOtherTool =
    ". A tool that changes tensors has to leave out the metadata \"cohort.crc32c\" and "
    "\"cohort.crc32c.header\"";

struct Entry {
  std::string name;
  const FormatType* type = nullptr;
  Shape shape = {};
  uint64_t begin = 0;
  uint64_t end = 0;
};

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), file_("load_tensors", path) {}

  TensorFile read() {
    const json header = read_header();
    TensorFile out;
    std::vector<Entry> entries;
    for (const auto& [name, value] : header.items()) {
      if (name == internal::checkpoint::kMetadataKey) {
        out.metadata = metadata_of(value);
      } else {
        entries.push_back(entry_of(name, value));
      }
    }
    check_places(entries);
    take_sums(entries, out.metadata);
    for (const Entry& entry : entries) out.tensors.emplace(entry.name, tensor_of(entry));
    return out;
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(uint64_t byte, const Parts&... parts) const {
    throw DataLoss(str_cat("[load_tensors] ", path_, ": at byte ", byte, ": ", parts...));
  }

  json read_header() {
    if (file_.size() < kLengthBytes) {
      fail(0, "expected a header's length (8 bytes), got a file of ", file_.size(), " bytes");
    }
    uint64_t length = 0;
    file_.read(0, &length, sizeof length);
    if (length > internal::checkpoint::kLargestHeader || length > file_.size() - kLengthBytes) {
      fail(0, "expected a header that fits into ", file_.size() - kLengthBytes,
           " bytes, got a length of ", length);
    }
    std::string text(static_cast<std::size_t>(length), '\0');
    file_.read(kLengthBytes, text.data(), text.size());
    if (text.empty() || text.front() != '{') {
      fail(kLengthBytes,
           "expected a header in JSON, which begins with '{', got other bytes: this is no "
           "safetensors file");
    }
    data_ = kLengthBytes + length;
    return parse(text);
  }

  json parse(const std::string& text) const {
    try {
      return internal::checkpoint::parse_json(text, kDeepestHeader);
    } catch (const internal::checkpoint::BadJson& e) {
      fail(kLengthBytes + e.byte, e.text);
    }
  }

  std::map<std::string, std::string> metadata_of(const json& value) const {
    std::map<std::string, std::string> out;
    if (!value.is_object())
      fail(kLengthBytes, "expected an object as ", internal::checkpoint::kMetadataKey);
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) fail(kLengthBytes, "expected text as metadata \"", key, "\"");
      out.emplace(key, text.get<std::string>());
    }
    return out;
  }

  Entry entry_of(const std::string& name, const json& value) const {
    const auto bad = [&](const char* expected) {
      fail(kLengthBytes, "tensor \"", name, "\": expected ", expected);
    };
    if (!value.is_object() || value.size() != 3) bad("dtype, shape and data_offsets");
    for (const char* key : {"dtype", "shape", "data_offsets"}) {
      if (!value.contains(key)) bad("dtype, shape and data_offsets");
    }
    Entry entry{.name = name};
    if (!value["dtype"].is_string()) bad("text as dtype");
    const std::string& type = value["dtype"].get_ref<const std::string&>();
    for (const FormatType& known : internal::checkpoint::kFormatTypes) {
      if (known.name == type) entry.type = &known;
    }
    if (entry.type == nullptr) fail(kLengthBytes, "tensor \"", name, "\": unknown dtype ", type);
    if (!value["shape"].is_array()) bad("an array as shape");
    for (const json& size : value["shape"]) {
      if (!size.is_number_unsigned() || size.get<uint64_t>() > INT64_MAX) bad("sizes >= 0");
      entry.shape.push_back(static_cast<int64_t>(size.get<uint64_t>()));
    }
    const json& offsets = value["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned()) {
      bad("two offsets >= 0");
    }
    entry.begin = offsets[0].get<uint64_t>();
    entry.end = offsets[1].get<uint64_t>();
    return entry;
  }

  // Bytes of the shape; false if they exceed 2^63, zeros counted as ones: so do strides.
  static bool bytes_of(const Entry& entry, uint64_t& bytes) {
    int64_t product = entry.type->bytes;
    bool is_empty = false;
    for (int64_t size : entry.shape) {
      is_empty = is_empty || size == 0;
      if (__builtin_mul_overflow(product, std::max<int64_t>(size, 1), &product)) return false;
    }
    bytes = is_empty ? 0 : static_cast<uint64_t>(product);
    return true;
  }

  // In the order of the file: from 0 on without gap or overlap up to the file's end.
  void check_places(std::vector<Entry>& entries) const {
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
    });
    uint64_t next = 0;
    for (const Entry& entry : entries) {
      uint64_t bytes = 0;
      if (entry.begin != next) {
        fail(data_ + next, "tensor \"", entry.name, "\": expected data from offset ", next,
             " on, got offset ", entry.begin);
      }
      if (!bytes_of(entry, bytes) || entry.end < entry.begin || entry.end - entry.begin != bytes) {
        fail(data_ + entry.begin, "tensor \"", entry.name, "\": the data offsets [", entry.begin,
             ", ", entry.end, ") do not fit ", entry.type->name, bracketed(entry.shape));
      }
      next = entry.end;
      if (next > file_.size() - data_) {
        fail(file_.size(), "tensor \"", entry.name, "\": expected data up to byte ", data_ + next,
             ", got the end of the file");
      }
    }
    if (data_ + next != file_.size()) {
      fail(data_ + next, "expected the end of the file, got ", file_.size() - data_ - next,
           " more bytes");
    }
  }

  // Out of the metadata into sums_, where a file has them: those of other tools have not.
  void take_sums(const std::vector<Entry>& entries, std::map<std::string, std::string>& metadata) {
    const auto tensors = metadata.find(internal::checkpoint::kTensorSums);
    const auto header = metadata.find(internal::checkpoint::kHeaderSum);
    if (tensors == metadata.end() && header == metadata.end()) return;
    if (tensors == metadata.end() || header == metadata.end()) {
      fail(kLengthBytes, "expected both \"", internal::checkpoint::kTensorSums, "\" and \"",
           internal::checkpoint::kHeaderSum, "\" in the metadata, got one");
    }
    std::map<std::string, internal::checkpoint::FormatEntry> said;
    for (const Entry& entry : entries) said[entry.name] = {entry.type->name, entry.shape};
    const std::string sum =
        internal::checkpoint::digits_of(internal::checkpoint::header_sum(metadata, said));
    if (header->second != sum) {
      fail(kLengthBytes, "the header is not the one that was written: expected checksum ",
           header->second, ", got ", sum, kOtherTool);
    }
    const json sums = parse(tensors->second);
    const bool fits =
        sums.is_object() && sums.size() == entries.size() &&
        std::all_of(sums.begin(), sums.end(), [](const json& s) { return s.is_string(); });
    if (!fits) fail(kLengthBytes, "expected a checksum for each tensor");
    sums_ = sums.get<std::map<std::string, std::string>>();
    metadata.erase(tensors);
    metadata.erase(header);
  }

  void check_sum(const Entry& entry, const Tensor& tensor) const {
    if (sums_.empty()) return;
    const auto stored = sums_.find(entry.name);
    const std::string sum = internal::checkpoint::digits_of(internal::base::crc32c(
        {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()}));
    if (stored != sums_.end() && stored->second == sum) return;
    fail(data_ + entry.begin, "the ", tensor.nbytes(), " bytes of tensor \"", entry.name,
         "\" are not those that were written: expected checksum ",
         stored == sums_.end() ? "of it, got none" : stored->second + ", got " + sum, kOtherTool);
  }

  Tensor tensor_of(const Entry& entry) const {
    Tensor out = internal::checkpoint::room_for("load_tensors", file_.path(), entry.name,
                                                entry.shape, entry.type->dtype);
    file_.read(data_ + entry.begin, out.mutable_data_ptr(), out.nbytes());
    check_sum(entry, out);
    if (entry.type->dtype == kBool) {
      const auto* bytes = static_cast<const unsigned char*>(out.const_data_ptr());
      for (std::size_t i = 0; i < out.nbytes(); ++i) {
        if (bytes[i] > 1) {
          fail(data_ + entry.begin + i, "tensor \"", entry.name, "\": expected 0 or 1, got ",
               static_cast<int>(bytes[i]));
        }
      }
    }
    return out;
  }

  const std::string& path_;
  const internal::checkpoint::InputFile file_;
  uint64_t data_ = 0;                        // where the tensors' bytes begin
  std::map<std::string, std::string> sums_;  // by tensor; empty: the file has none
};

}  // namespace

TensorFile load_tensors(const std::string& path) { return Reader(path).read(); }

}  // namespace cohort
