// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/store/internal/element_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>

#include "cohort/base/check.h"
#include "cohort/base/errno_code.h"
#include "cohort/data/core/internal/pass.h"
#include "cohort/data/dataset.h"
#include "cohort/data/formats/tf_record/internal/tf_record_reader.h"
#include "cohort/data/pipeline/internal/nodes.h"

namespace cohort::internal::data {
namespace {

constexpr std::string_view kMagic = "cohort.elements.1";

[[noreturn]] void not_such_a_file(const std::string& where, const std::string& path,
                                  const char* got) {
  throw DataLoss(str_cat(where, " expected a whole file of elements, got ", path, ", ", got));
}

/// Nobody may ever write into a pipe that has the name of a file: opening it would wait for that.
std::unique_ptr<RecordReader> open_records(const std::string& where, const std::string& path,
                                           Compression compression) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    not_such_a_file(where, path, "which is no regular file");
  }
  return open_tf_records(where, path, {.compression = compression});
}

/// Records are checked by their checksums: one that cannot be read was not written by us.
template <class F>
auto parse(const std::string& where, const std::string& path, const Element& record, const F& f) {
  try {
    StateReader in(record.string());
    auto out = f(in);
    in.expect_end();
    return out;
  } catch (const InvalidArgument&) {
    not_such_a_file(where, path, "whose records hold something else");
  }
}

ElementFileHeader parse_header(const std::string& where, const std::string& path,
                               RecordReader& records) {
  Element record;
  if (!records.next(record)) not_such_a_file(where, path, "which is empty");
  return parse(where, path, record, [](StateReader& in) {
    if (in.get_text() != kMagic) StateReader::fail();
    ElementFileHeader header;
    header.id = in.get_text();
    header.pipeline = in.get_text();
    header.spec = in.get_spec();
    return header;
  });
}

class ElementFileStream final : public ElementStream {
 public:
  ElementFileStream(std::string where, std::string path, Compression compression)
      : where_(std::move(where)), path_(std::move(path)), compression_(compression) {}

  bool next(Element& out) override {
    check_cancelled();
    if (ended_) return false;
    try {
      if (records_ == nullptr) open();
      Element record;
      if (!records_->next(record)) not_such_a_file(where_, path_, "which ends too early");
      out = parse(where_, path_, record, [&](StateReader& in) -> Element {
        if (in.get_flag()) return in.get_element();
        ended_ = true;
        in.get_int();
        return {};
      });
    } catch (...) {
      // Whoever goes on after an error gets what can still be read.
      if (records_ == nullptr || !records_->can_go_on()) ended_ = true;
      throw;
    }
    return !ended_;
  }
  void save(StateWriter& out) override {
    out.put_int(ended_ ? 1 : 0);
    out.put_int(records_ != nullptr ? 1 : 0);
    if (records_ != nullptr) records_->save(out);
  }
  void restore(StateReader& in) override {
    ended_ = in.get_flag();
    if (!in.get_flag()) return;
    records_ = open_records(where_, path_, compression_);
    records_->restore(in);
  }

 private:
  void open() {
    records_ = open_records(where_, path_, compression_);
    parse_header(where_, path_, *records_);
  }

  const std::string where_;
  const std::string path_;
  const Compression compression_;
  std::unique_ptr<RecordReader> records_;  ///< Null before the first element.
  bool ended_ = false;
};

class ElementFileNode final : public DatasetNode {
 public:
  ElementFileNode(std::string where, std::string path, ElementSpec spec, Compression compression)
      : DatasetNode("element_file", std::move(spec), {}),
        where_(std::move(where)),
        path_(std::move(path)),
        compression_(compression) {}
  int64_t cardinality() const override { return kUnknownCardinality; }
  std::unique_ptr<ElementStream> make_stream() const override {
    return std::make_unique<ElementFileStream>(where_, path_, compression_);
  }
  void save_as_element(StateWriter& out) const override {
    out.put_int(1);
    out.put_text(where_);
    out.put_text(path_);
    out.put_spec(spec());
    out.put_int(static_cast<int64_t>(compression_));
  }

 private:
  const std::string where_;
  const std::string path_;
  const Compression compression_;
};

}  // namespace

namespace {

std::string created(std::string path) {
  create_file("[element_file]", path);
  return path;
}

}  // namespace

std::string new_element_file_id() {
  std::random_device random;
  std::string out;
  constexpr int kWords = 3;
  for (int i = 0; i < kWords; ++i) out += str_cat(i == 0 ? "" : "-", random());
  return out;
}

ElementFileWriter::ElementFileWriter(std::string path, const ElementFileHeader& header,
                                     Compression compression)
    : path_(created(std::move(path))), writer_(path_, {.compression = compression}) {
  StateWriter out;
  out.put_text(kMagic);
  out.put_text(header.id);
  out.put_text(header.pipeline);
  out.put_spec(header.spec);
  writer_.write(std::move(out).take());
}

void ElementFileWriter::write(const Element& element) {
  StateWriter out;
  out.put_int(1);
  out.put_element(element);
  writer_.write(std::move(out).take());
  ++elements_;
}

void ElementFileWriter::close() {
  StateWriter out;
  out.put_int(0);
  out.put_int(elements_);
  writer_.write(std::move(out).take());
  writer_.close();
  sync_file("[element_file]", path_);
}

ElementFileHeader read_element_file_header(const std::string& where, const std::string& path,
                                           Compression compression) {
  const auto records = open_records(where, path, compression);
  return parse_header(where, path, *records);
}

NodePtr make_element_file_node(std::string where, std::string path, ElementSpec spec,
                               Compression compression) {
  return std::make_shared<ElementFileNode>(std::move(where), std::move(path), std::move(spec),
                                           compression);
}

namespace {

/// What ElementFileNode::save_as_element wrote behind the 1.
NodePtr get_element_file(StateReader& in) {
  std::string where(in.get_text());
  std::string path(in.get_text());
  ElementSpec spec = in.get_spec();
  const auto compression =
      static_cast<Compression>(in.get_count(static_cast<int64_t>(Compression::kGzip)));
  return make_element_file_node(std::move(where), std::move(path), std::move(spec), compression);
}

}  // namespace

Element StateReader::get_dataset() {
  if (get_flag()) return Dataset(get_element_file(*this));
  std::vector<Element> elements;
  for (int64_t left = get_count(bytes_left()); left > 0; --left) elements.push_back(get_element());
  return Dataset(make_elements_node(std::move(elements)));
}

void create_new_folder(const std::string& where, const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return;
  const int error = errno;
  throw Error(base::code_of_errno(error),
              str_cat(where, " cannot create ", path, ": ", std::strerror(error)));
}

void create_folders(const std::string& where, const std::string& path) {
  if (path.empty()) return;  // Relative paths have no parent.
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return;
  throw Error(base::code_of_errno(error.value()),
              str_cat(where, " cannot create ", path, ": ", error.message()));
}

void create_file(const std::string& where, const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file >= 0) {
    ::close(file);
    return;
  }
  const int error = errno;
  throw Error(base::code_of_errno(error),
              str_cat(where, " cannot create ", path, ": ", std::strerror(error)));
}

void rename_path(const std::string& where, const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return;
  const int error = errno;
  throw Error(base::code_of_errno(error),
              str_cat(where, " cannot name ", from, " ", to, ": ", std::strerror(error)));
}

void sync_file(const std::string& where, const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = file >= 0 && ::fsync(file) == 0;
  const int error = errno;
  if (file >= 0) ::close(file);
  if (synced) return;
  throw Error(base::code_of_errno(error),
              str_cat(where, " cannot sync ", path, ": ", std::strerror(error)));
}

}  // namespace cohort::internal::data
