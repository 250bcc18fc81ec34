// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/saving_group.h"

#include <cstdint>
#include <cstring>
#include <functional>
#include <sstream>

#include "cohort/base/check.h"

namespace cohort::internal::checkpoint {
namespace {

template <class T>
void put(std::string& to, const T& number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof(number));
}
void put_text(std::string& to, const std::string& text) {
  put<uint64_t>(to, text.size());
  to += text;
}

// Reads what the functions above have written, in this job, by this build of the program.
class PackedParts {
 public:
  explicit PackedParts(const std::string& bytes) : bytes_(bytes) {}
  bool ended() const { return at_ == bytes_.size(); }
  template <class T>
  T number() {
    T out;
    std::memcpy(&out, bytes_.data() + at_, sizeof(out));
    at_ += sizeof(out);
    return out;
  }
  std::string text() {
    const auto size = static_cast<std::size_t>(number<uint64_t>());
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }

 private:
  const std::string& bytes_;
  std::size_t at_ = 0;
};

std::string description_of(const std::map<std::string, Tensor>& tensors) {
  std::string out;
  for (const auto& [name, tensor] : tensors) {
    put_text(out, name);
    put<int64_t>(out, static_cast<int64_t>(tensor.scalar_type()));
    put<int64_t>(out, tensor.dim());
    for (const int64_t size : tensor.sizes()) put(out, size);
  }
  return out;
}

std::map<std::string, Tensor> tensors_like(const std::string& description) {
  std::map<std::string, Tensor> out;
  for (PackedParts parts(description); !parts.ended();) {
    const std::string name = parts.text();
    const auto dtype = static_cast<DType>(parts.number<int64_t>());
    Shape shape(static_cast<std::size_t>(parts.number<int64_t>()));
    for (int64_t& size : shape) size = parts.number<int64_t>();
    out[name] = empty(shape, dtype);
  }
  return out;
}

std::string line_at(const std::string& lines, std::size_t at) {
  std::istringstream in(lines);
  std::string line;
  for (std::size_t i = 0; i <= at; ++i) {
    if (!std::getline(in, line)) return "nothing more";
  }
  return line;
}

}  // namespace

void together(SavingGroup* group, const char* operation, base::FunctionRef<void()> body) {
  if (group == nullptr) return body();
  group->together(operation, [&] {
    from_chief(group, std::string());  // what fails fails here on all, and in nothing before it
    body();
  });
}

bool is_chief(const SavingGroup* group) { return group == nullptr || group->rank() == 0; }

void on_chief(SavingGroup* group, base::FunctionRef<void()> fn) {
  if (is_chief(group)) fn();
  from_chief(group, std::string());
}

std::string from_chief(SavingGroup* group, std::string text) {
  if (group == nullptr) return text;
  uint64_t size = text.size();
  group->broadcast(std::as_writable_bytes(std::span(&size, 1)));
  text.resize(static_cast<std::size_t>(size));
  if (size > 0) group->broadcast(std::as_writable_bytes(std::span(text)));
  return text;
}

std::map<std::string, std::string> from_chief(SavingGroup* group,
                                              const std::map<std::string, std::string>& texts) {
  if (group == nullptr) return texts;
  std::string packed;
  for (const auto& [name, text] : texts) {
    put_text(packed, name);
    put_text(packed, text);
  }
  const std::string received = from_chief(group, std::move(packed));
  std::map<std::string, std::string> out;
  for (PackedParts parts(received); !parts.ended();) {
    std::string name = parts.text();
    out[std::move(name)] = parts.text();
  }
  return out;
}

std::map<std::string, Tensor> from_chief(SavingGroup* group,
                                         std::map<std::string, Tensor> tensors) {
  if (group == nullptr) return tensors;
  const std::string description = from_chief(group, description_of(tensors));
  if (!is_chief(group)) tensors = tensors_like(description);
  for (auto& entry : tensors) {
    Tensor& tensor = entry.second;
    tensor = tensor.contiguous();
    if (tensor.nbytes() == 0) continue;
    group->broadcast({static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()});
  }
  return tensors;
}

void leave_together(SavingGroup* group) noexcept {
  try {
    together(group, "exit", [&] { from_chief(group, std::string()); });
  } catch (...) {
    // Who has gone first is what this waits for.
  }
}

void check_same_lines(SavingGroup* group, const char* operation, const char* what,
                      const std::string& lines) {
  if (group == nullptr) return;
  std::string hash;
  put<uint64_t>(hash, lines.size());
  put<uint64_t>(hash, std::hash<std::string>()(lines));  // of one build: the same everywhere
  const std::vector<std::string> hashes = group->gather(hash);
  bool same = true;
  for (const std::string& other : hashes) same = same && other == hashes[0];
  if (same) return;
  const std::vector<std::string> all = group->gather(lines);
  for (std::size_t worker = 1; worker < all.size(); ++worker) {
    if (all[worker] == all[0]) continue;
    std::size_t at = 0;
    while (line_at(all[worker], at) == line_at(all[0], at)) ++at;
    throw FailedPrecondition(str_cat(
        "[", operation, "] expected the same ", what, " on every worker, got ", line_at(all[0], at),
        " on worker 0 and ", line_at(all[worker], at), " on worker ", worker));
  }
}

}  // namespace cohort::internal::checkpoint
