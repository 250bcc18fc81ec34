// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/message.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <tuple>
#include <utility>

#include "cohort/base/check.h"

namespace cohort::internal::coordinator {
namespace {

using namespace update_rules;  // NOLINT(google-build-using-namespace): the rules, by their names
using variables::AdafactorStep;
using variables::LambStep;
using variables::MuonAdamStep;
using variables::MuonStep;
using variables::SlotForm;
using variables::WholeRule;

// As the sender has it in memory: another version, or another order of bytes, reads as another one.
constexpr uint64_t kMark = 0x0006'5350'5f48'4f43;  // "COH_PS", version 6
constexpr std::size_t kMostHeaderBytes = std::size_t{1} << 20;
constexpr uint64_t kMostAxes = 32;
constexpr std::size_t kMostNameBytes = 4096;

// Their places are what travels: new ones come last.
constexpr std::array kDTypes = {kBool,     kUint8,   kInt32,   kInt64,      kFloat16,
                                kBFloat16, kFloat32, kFloat64, DType::Char, DType::Short};

// The numbers of each rule, in one order for both directions.
auto fields(SgdStep& s) { return std::tie(s.learning_rate); }
auto fields(MomentumStep& s) { return std::tie(s.learning_rate, s.momentum, s.nesterov); }
auto fields(AdamStep& s) { return std::tie(s.alpha, s.beta_1, s.beta_2, s.epsilon, s.amsgrad); }
auto fields(RmspropStep& s) {
  return std::tie(s.learning_rate, s.rho, s.momentum, s.epsilon, s.centered);
}
auto fields(AdagradStep& s) { return std::tie(s.learning_rate, s.epsilon); }
auto fields(AdadeltaStep& s) { return std::tie(s.learning_rate, s.rho, s.epsilon); }
auto fields(AdamaxStep& s) { return std::tie(s.alpha, s.beta_1, s.beta_2, s.epsilon); }
auto fields(NadamStep& s) {
  return std::tie(s.momentum_scale, s.gradient_scale, s.velocity_scale, s.beta_1, s.beta_2,
                  s.epsilon);
}
auto fields(FtrlStep& s) {
  return std::tie(s.learning_rate, s.learning_rate_power, s.l1, s.l2, s.l2_shrinkage, s.beta);
}
auto fields(LionStep& s) { return std::tie(s.learning_rate, s.beta_1, s.beta_2); }
auto fields(LambStep& s) {
  return std::tie(s.learning_rate, s.beta_1, s.beta_2, s.epsilon, s.correction_1, s.correction_2,
                  s.ratio);
}
// What resolve() needs, who sends it has used.
auto fields(AdafactorStep& s) { return std::tie(s.share, s.epsilon_1, s.rows_mean, s.rate); }
auto fields(MuonStep& s) { return std::tie(s.momentum, s.rate); }
auto fields(MuonAdamStep& s) { return std::tie(s.alpha, s.beta_1, s.beta_2, s.epsilon); }
auto fields(UpdateOptions& o) { return std::tie(o.gradient_scale, o.clip_value, o.weight_decay); }

void put(rpc::MessageWriter& out, double x) { out.float64(x); }
void put(rpc::MessageWriter& out, bool x) { out.number(x ? 1 : 0); }
void get(rpc::MessageReader& in, double& x) { x = in.float64(); }
void get(rpc::MessageReader& in, bool& x) { x = in.number_up_to(1) == 1; }

// Of a header of so many: what stands behind it is aligned.
std::size_t padding(std::size_t bytes) { return (0 - bytes) % sizeof(uint64_t); }

template <class S>
void put_fields(rpc::MessageWriter& out, S step) {
  std::apply([&](const auto&... each) { (put(out, each), ...); }, fields(step));
}
template <class S>
void get_fields(rpc::MessageReader& in, S& step) {
  std::apply([&](auto&... each) { (get(in, each), ...); }, fields(step));
}

template <class R, std::size_t... I>
R rule_of_index(uint64_t index, std::index_sequence<I...>) {
  R out;
  ((index == I ? static_cast<void>(out.template emplace<I>()) : void()), ...);
  return out;
}
template <class R>
R read_rule(rpc::MessageReader& in) {
  constexpr std::size_t kRules = std::variant_size_v<R>;
  R out = rule_of_index<R>(in.number_up_to(kRules - 1), std::make_index_sequence<kRules>());
  std::visit([&](auto& rule) { get_fields(in, rule); }, out);
  return out;
}
template <class R>
void write_rule(rpc::MessageWriter& out, const R& rule) {
  out.number(rule.index());
  std::visit([&](const auto& each) { put_fields(out, each); }, rule);
}

}  // namespace

rpc::Payload message(const rpc::MessageWriter& header) {
  const std::string& text = header.str();
  std::string bytes(2 * sizeof(uint64_t) + text.size() + padding(text.size()), '\0');
  const uint64_t size = text.size();
  std::memcpy(bytes.data(), &kMark, sizeof(kMark));
  std::memcpy(bytes.data() + sizeof(kMark), &size, sizeof(size));
  std::copy(text.begin(), text.end(), bytes.begin() + 2 * sizeof(uint64_t));
  return rpc::Payload(bytes);
}

rpc::Payload numbered(const CallNumber& number, const rpc::Payload& of) {
  rpc::MessageWriter header;
  header.number(number.client);
  header.number(number.sequence);
  header.number(number.oldest);
  rpc::Payload out = message(header);
  for (const rpc::Payload::Piece& piece : of.pieces()) out.append(piece);
  return out;
}

CallNumber read_number(PayloadReader& in) {
  const std::string header = in.header();
  rpc::MessageReader numbers("[ps] ", header);
  CallNumber out;
  out.client = numbers.number();
  out.sequence = numbers.number();
  out.oldest = numbers.number();
  numbers.end();
  return out;
}

void append_bytes(rpc::Payload& to, const Tensor& contiguous) {
  if (contiguous.nbytes() == 0) return;
  const auto* data = static_cast<const std::byte*>(contiguous.const_data_ptr());
  to.append({.bytes = {data, contiguous.nbytes()}, .owner = std::make_shared<Tensor>(contiguous)});
}

void append_rows(rpc::Payload& to, std::vector<int64_t> rows) {
  if (rows.empty()) return;
  auto owner = std::make_shared<const std::vector<int64_t>>(std::move(rows));
  to.append({.bytes = std::as_bytes(std::span(*owner)), .owner = owner});
}

std::string PayloadReader::header() {
  uint64_t mark = 0;
  uint64_t size = 0;
  read(&mark, sizeof(mark));
  read(&size, sizeof(size));
  if (mark != kMark || size > kMostHeaderBytes || size + padding(size) > left_) {
    throw DataLoss(str_cat(operation_, "expected a message between workers and parameter servers, ",
                           "got other bytes; the other side is of another version of Cohort, of a ",
                           "machine with another order of bytes, or no part of Cohort"));
  }
  std::string out(size, '\0');
  read(out.data(), size);
  uint64_t behind = 0;
  read(&behind, padding(size));
  return out;
}

const void* PayloadReader::in_place(std::size_t bytes, std::size_t alignment) {
  if (bytes == 0 || bytes > left_) return nullptr;
  const std::span<const std::byte> rest = payload_.pieces()[piece_].bytes.subspan(at_);
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(rest.data()) % alignment == 0;
  if (bytes > rest.size() || !is_aligned) return nullptr;
  skip(bytes);
  return rest.data();
}

// Of the piece that is being read.
void PayloadReader::skip(std::size_t bytes) {
  left_ -= bytes;
  at_ += bytes;
  if (at_ < payload_.pieces()[piece_].bytes.size()) return;
  ++piece_;
  at_ = 0;
}

void PayloadReader::read(void* to, std::size_t bytes) {
  if (bytes > left_) {
    throw DataLoss(str_cat(operation_, "expected ", bytes, " more bytes in a message, got ", left_,
                           "; the other side is damaged, of another version or no part of Cohort"));
  }
  auto* out = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const std::span<const std::byte> piece = payload_.pieces()[piece_].bytes;
    const std::size_t now = std::min(bytes, piece.size() - at_);
    if (piece.data() + at_ != out) std::memcpy(out, piece.data() + at_, now);
    out += now;
    bytes -= now;
    skip(now);
  }
}

std::vector<int64_t> PayloadReader::integers(std::size_t count) {
  if (count > left_ / sizeof(int64_t)) expect(std::numeric_limits<std::size_t>::max());
  std::vector<int64_t> out(count);
  if (count > 0) read(out.data(), count * sizeof(int64_t));
  return out;
}

std::vector<int64_t> PayloadReader::rows(std::size_t count, int64_t below) {
  const std::vector<int64_t> out = integers(count);
  for (const int64_t row : out) {
    if (row < 0 || row >= below) {
      throw InvalidArgument(
          str_cat(operation_, "expected rows in [0, ", below, "), got row ", row));
    }
  }
  return out;
}

std::vector<int64_t> PayloadReader::ascending_rows(std::size_t count, int64_t below) {
  std::vector<int64_t> out = rows(count, below);
  const auto wrong = std::adjacent_find(out.begin(), out.end(), std::greater_equal<>());
  if (wrong != out.end()) {
    throw InvalidArgument(str_cat(operation_, "expected each row once, in ascending order, got ",
                                  wrong[0], " and then ", wrong[1]));
  }
  return out;
}

void PayloadReader::expect(std::size_t bytes) const {
  if (left_ == bytes) return;
  throw DataLoss(str_cat(operation_, "expected ", bytes, " bytes of numbers, got ", left_,
                         "; the other side is damaged, of another version or no part of Cohort"));
}

uint64_t wire_dtype(DType dtype) {
  const auto* const found = std::find(kDTypes.begin(), kDTypes.end(), dtype);
  COHORT_CHECK_ARG(found != kDTypes.end(), "[variable] expected a dtype that parameter servers ",
                   "keep, got ", dtype_name(dtype));
  return static_cast<uint64_t>(found - kDTypes.begin());
}

DType read_dtype(rpc::MessageReader& in) { return kDTypes[in.number_up_to(kDTypes.size() - 1)]; }

std::string read_name(rpc::MessageReader& in) {
  std::string out = in.text();
  if (out.size() > kMostNameBytes) {
    throw InvalidArgument(str_cat("[ps] expected a name of at most ", kMostNameBytes,
                                  " bytes, got one of ", out.size(), ", \"", out.substr(0, 40),
                                  "...\""));
  }
  return out;
}

void write_shape(rpc::MessageWriter& out, const Shape& shape) {
  out.number(shape.size());
  for (const int64_t axis : shape) out.signed_number(axis);
}

Shape read_shape(rpc::MessageReader& in) {
  constexpr uint64_t kMostElements = uint64_t{1} << 48;
  Shape out(in.number_up_to(kMostAxes));
  uint64_t elements = 1;
  for (int64_t& axis : out) {
    const uint64_t most = elements == 0 ? kMostElements : kMostElements / elements;
    axis = static_cast<int64_t>(in.number_up_to(most));
    elements *= static_cast<uint64_t>(axis);
  }
  return out;
}

void write_step(rpc::MessageWriter& out, const UpdateStep& step) {
  write_rule(out, step.rule);
  put_fields(out, step.how);
  out.text(step.slots);
}

UpdateStep read_step(rpc::MessageReader& in) {
  UpdateStep out;
  out.rule = read_rule<Rule>(in);
  get_fields(in, out.how);
  out.slots = read_name(in);
  return out;
}

void write_step(rpc::MessageWriter& out, const WholeStep& step) {
  write_rule(out, step.rule);
  put(out, step.weight_decay);
  out.text(step.slots);
}

WholeStep read_whole_step(rpc::MessageReader& in) {
  WholeStep out;
  out.rule = read_rule<WholeRule>(in);
  get(in, out.weight_decay);
  out.slots = read_name(in);
  return out;
}

void write_form(rpc::MessageWriter& out, const SlotForm& form) {
  out.number(static_cast<uint64_t>(form.kind));
  write_shape(out, form.shape);
}

SlotForm read_form(rpc::MessageReader& in) {
  SlotForm out;
  out.kind =
      static_cast<SlotForm::Kind>(in.number_up_to(static_cast<uint64_t>(SlotForm::Kind::kShared)));
  out.shape = read_shape(in);
  return out;
}

}  // namespace cohort::internal::coordinator
