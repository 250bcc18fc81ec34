// SPDX-License-Identifier: Apache-2.0
#include <hdf5_hl.h>

#include <optional>
#include <set>

#include "cohort/archive/hdf5_file.h"
#include "cohort/archive/internal/hdf5_driver.h"
#include "cohort/archive/internal/hdf5_trailer.h"
#include "cohort/archive/internal/hdf5_types.h"
#include "cohort/base/check.h"

namespace cohort::internal::archive {

namespace {

constexpr std::size_t kMostObjects = 100'000;
constexpr int kDeepest = 100;
// An array may be larger than what is stored of it by so much, or so many times.
constexpr uint64_t kSmall = uint64_t{1} << 20;
constexpr uint64_t kMostExpansion = 100;

struct Link {
  std::string name;
  H5L_type_t type;
};

// Called by the library, through which nothing must be thrown.
herr_t note_link(hid_t, const char* name, const H5L_info_t* info, void* links) {
  auto& all = *static_cast<std::vector<Link>*>(links);
  try {
    if (all.size() >= kMostMembers) return 1;
    all.push_back({name, info->type});
  } catch (...) {
    return -1;
  }
  return 0;
}

}  // namespace

struct Hdf5Reader::File {
  const char* operation;
  std::string shown;
  FileBytes bytes = {};                        // of those that are in memory
  std::unique_ptr<CheckedBytes> checked = {};  // of the others
  Hdf5Source source = {};
  uint64_t total = 0;
  bool is_whole = false;  // what a trailer says is so
  Hdf5Id id = {};
  std::set<haddr_t> groups = {};  // those that have been looked into
  std::size_t objects = 0;

  [[noreturn]] void refuse(const std::string& path, const std::string& what) const {
    throw DataLoss(str_cat("[", operation, "] ", shown, ": ",
                           path.empty() ? std::string("the file") : "\"" + path + "\"", " ", what));
  }
  void check(bool fine, const std::string& path, const char* what) const {
    if (fine) return;
    if (source.thrown != nullptr) std::rethrow_exception(source.thrown);
    refuse(path, what + hdf5_reason());
  }

  void open();

  void look(hid_t parent, const std::string& name, const std::string& path, int depth,
            std::map<std::string, Array>& arrays);
  void look_into(hid_t group, const std::string& path, int depth,
                 std::map<std::string, Array>& arrays);
  std::optional<Array> described(hid_t array, const std::string& path) const;
  void check_place(hid_t array, const std::string& path) const;
  void check_sum(hid_t array, const std::string& path, uint32_t sum) const;
};

void Hdf5Reader::File::look_into(hid_t group, const std::string& path, int depth,
                                 std::map<std::string, Array>& arrays) {
  if (depth > kDeepest) refuse(path, str_cat("is more than ", kDeepest, " groups deep"));
  H5O_info_t info = {};
  check(H5Oget_info(group, &info) >= 0, path, "cannot be read");
  if (!groups.insert(info.addr).second) refuse(path, "is a group that has two names, or a circle");
  std::vector<Link> links;
  const herr_t ended = H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, note_link, &links);
  if (ended > 0) refuse(path, str_cat("has more than ", kMostMembers, " members"));
  check(ended == 0, path, "cannot be listed");
  for (const Link& link : links) {
    const std::string inside = path.empty() ? link.name : path + "/" + link.name;
    if (++objects > kMostObjects) refuse(inside, str_cat("is one of more than ", kMostObjects));
    if (link.type != H5L_TYPE_HARD) {
      refuse(inside, link.type == H5L_TYPE_EXTERNAL ? "is a link to another file"
                                                    : "is a link, which no file of weights needs");
    }
    look(group, link.name, inside, depth, arrays);
  }
}

void Hdf5Reader::File::look(hid_t parent, const std::string& name, const std::string& path,
                            int depth, std::map<std::string, Array>& arrays) {
  H5O_info_t info = {};
  check(H5Oget_info_by_name(parent, name.c_str(), &info, H5P_DEFAULT) >= 0, path, "is damaged");
  if (info.type == H5O_TYPE_GROUP) {
    const Hdf5Id group(H5Gopen2(parent, name.c_str(), H5P_DEFAULT), H5Gclose);
    check(group.valid(), path, "is damaged");
    return look_into(group, path, depth + 1, arrays);
  }
  if (info.type != H5O_TYPE_DATASET) refuse(path, "is neither a group nor an array");
  const Hdf5Id array(H5Dopen2(parent, name.c_str(), H5P_DEFAULT), H5Dclose);
  check(array.valid(), path, "is damaged");
  if (std::optional<Array> found = described(array, path)) arrays[path] = std::move(*found);
}

void Hdf5Reader::File::check_place(hid_t array, const std::string& path) const {
  const Hdf5Id made(H5Dget_create_plist(array), H5Pclose);
  check(made.valid(), path, "is damaged");
  const H5D_layout_t layout = H5Pget_layout(made);
  check(layout != H5D_LAYOUT_ERROR, path, "is damaged");
  if (layout == H5D_VIRTUAL) refuse(path, "is made of parts of other files");
  if (H5Pget_external_count(made) != 0) refuse(path, "has its bytes in another file");
  const int filters = H5Pget_nfilters(made);
  check(filters >= 0, path, "is damaged");
  for (int i = 0; i < filters; ++i) {
    unsigned flags = 0, settings = 0;
    size_t count = 0;
    const H5Z_filter_t filter = H5Pget_filter2(made, static_cast<unsigned>(i), &flags, &count,
                                               nullptr, 0, nullptr, &settings);
    const bool known = filter == H5Z_FILTER_DEFLATE || filter == H5Z_FILTER_SHUFFLE ||
                       filter == H5Z_FILTER_FLETCHER32;
    if (!known) refuse(path, str_cat("is packed by a filter (", filter, ") that is not read"));
  }
}

// Where the file says what it is: other programs write none.
void Hdf5Reader::File::check_sum(hid_t array, const std::string& path, uint32_t sum) const {
  const htri_t has = H5Aexists(array, kSumAttribute);
  check(has >= 0, path, "is damaged");
  if (has == 0) return;
  const Hdf5Id attribute(H5Aopen(array, kSumAttribute, H5P_DEFAULT), H5Aclose);
  uint32_t written = 0;
  check(attribute.valid() && H5Aread(attribute, H5T_NATIVE_UINT32, &written) >= 0, path,
        "is damaged");
  if (written == sum) return;
  refuse(path, str_cat("is not what was written: expected checksum ", written, ", got ", sum,
                       ". A tool that changes arrays has to delete their attribute \"",
                       kSumAttribute, "\""));
}

std::optional<Hdf5Reader::Array> Hdf5Reader::File::described(hid_t array,
                                                             const std::string& path) const {
  check_place(array, path);
  const Hdf5Id type(H5Dget_type(array), H5Tclose), space(H5Dget_space(array), H5Sclose);
  check(type.valid() && space.valid(), path, "is damaged");
  const std::optional<DType> dtype = dtype_of_hdf5(type);
  const int rank = H5Sget_simple_extent_ndims(space);
  if (!dtype || rank < 0 || H5Sget_simple_extent_type(space) == H5S_NULL) return {};
  std::vector<hsize_t> sizes(static_cast<std::size_t>(rank));
  H5Sget_simple_extent_dims(space, sizes.data(), nullptr);
  Array out{*dtype, {}};
  uint64_t declared = H5Tget_size(type);
  for (const hsize_t size : sizes) {
    if (size > INT64_MAX || (size > 0 && declared > INT64_MAX / size)) {
      refuse(path, "says that it is larger than any memory");
    }
    declared *= size;
    out.shape.push_back(static_cast<int64_t>(size));
  }
  const uint64_t stored = H5Dget_storage_size(array);
  if (stored > total) refuse(path, "says that it has more bytes than the file");
  if (declared > kSmall && declared / kMostExpansion > stored) {
    refuse(path,
           str_cat("says that it is ", declared, " bytes, of which ", stored, " are in the file"));
  }
  return out;
}

// Nothing is written into the bytes.
void Hdf5Reader::File::open() {
  std::optional<uint64_t> content;
  if (checked != nullptr) {
    total = checked->size();
    content = checked->content();
    is_whole = checked->has_trailer();
  } else {
    total = bytes.size;
    if (const auto view = without_trailer(bytes.view())) content = view->size();
    is_whole = content && *content < total;
  }
  if (!content) refuse("", "is not what was written: its checksum is another");
  if (checked != nullptr) {
    source = {checked.get(), *content};
    id = open_hdf5(source);
  } else {
    constexpr unsigned kOurs = H5LT_FILE_IMAGE_DONT_COPY | H5LT_FILE_IMAGE_DONT_RELEASE;
    id = Hdf5Id(H5LTopen_file_image(bytes.data.get(), *content, kOurs), H5Fclose);
  }
  check(id.valid(), "", "is no HDF5 file, or a damaged one");
}

Hdf5Reader::Hdf5Reader(const char* operation, std::string shown, FileBytes bytes)
    : file_(std::make_unique<File>(File{operation, std::move(shown), std::move(bytes)})) {
  open();
}

Hdf5Reader::Hdf5Reader(const char* operation, std::string shown,
                       std::unique_ptr<CheckedBytes> bytes)
    : file_(std::make_unique<File>(File{operation, std::move(shown)})) {
  file_->checked = std::move(bytes);
  open();
}

void Hdf5Reader::open() {
  const Hdf5Turn turn;
  try {
    file_->open();
    const Hdf5Id root(H5Gopen2(file_->id, "/", H5P_DEFAULT), H5Gclose);
    file_->check(root.valid(), "", "is damaged");
    file_->look_into(root, "", 0, arrays_);
  } catch (...) {
    file_->id.close();
    throw;
  }
}

Hdf5Reader::~Hdf5Reader() {
  const Hdf5Turn turn;
  file_->id.close();
}

Tensor Hdf5Reader::read(const std::string& path) const {
  const Array& wanted = arrays_.at(path);
  Tensor out;
  try {
    out = empty(wanted.shape, wanted.dtype == kBool ? DType::Byte : wanted.dtype);
  } catch (const std::exception&) {
    throw Error(ErrorCode::kResourceExhausted,
                str_cat("[", file_->operation, "] ", file_->shown, ": no memory for \"", path,
                        "\", ", dtype_name(wanted.dtype), bracketed(wanted.shape)));
  }
  read_into(path, out);
  return wanted.dtype == kBool ? out.to(kBool) : out;
}

void Hdf5Reader::read_into(const std::string& path, const Tensor& out) const {
  if (out.numel() == 0) return;
  const DType dtype = arrays_.at(path).dtype;
  const Hdf5Turn turn;
  file_->source.thrown = nullptr;  // of an earlier read
  const Hdf5Id array(H5Dopen2(file_->id, path.c_str(), H5P_DEFAULT), H5Dclose);
  file_->check(array.valid(), path, "is damaged");
  const Hdf5Id stored(H5Dget_type(array), H5Tclose), type = memory_type_of(dtype, stored);
  const herr_t status = H5Dread(array, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out.mutable_data_ptr());
  file_->check(status >= 0, path, "cannot be read");
  // One sum of all bytes says the same.
  if (!file_->is_whole) file_->check_sum(array, path, array_sum(path, dtype, out));
}

}  // namespace cohort::internal::archive
