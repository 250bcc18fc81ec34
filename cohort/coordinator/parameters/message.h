// SPDX-License-Identifier: Apache-2.0
//
// Messages to and from parameter servers: a small header and then rows of numbers as they lie in
// memory, in the byte order of the machine.
//
//   Payload out = message(header);
//   append_bytes(out, rows);                 // not copied: the tensor's memory is kept
//
//   PayloadReader in("[ps] ", payload);
//   const std::string text = in.header();    // stays there while it is read
//   MessageReader header("[ps] ", text);
//   in.read(row, bytes);
//   in.expect(0);                            // nothing is left
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cohort/rpc/payload.h"
#include "cohort/rpc/server.h"
#include "cohort/rpc/wire.h"
#include "cohort/runtime/tensor.h"
#include "cohort/update_rules/rules.h"
#include "cohort/update_rules/update.h"
#include "cohort/variables/whole_step.h"

namespace cohort::internal::coordinator {

/// Begins with a mark of Cohort's, the version and the byte order. A multiple of 8 bytes: numbers
/// that stand behind it are aligned where it is.
rpc::Payload message(const rpc::MessageWriter& header);

/// Which call it is, and whose: the same when it is sent again.
struct CallNumber {
  uint64_t client = 0;    ///< As the server told it.
  uint64_t sequence = 0;  ///< From 1.
  uint64_t oldest = 0;    ///< Before this one the client waits for no answer (any more).
};
class PayloadReader;
/// The message behind its number. Owns: a share of what `of` owns.
rpc::Payload numbered(const CallNumber& number, const rpc::Payload& of);
/// Errors: DataLoss.
CallNumber read_number(PayloadReader& in);

/// The bytes of a contiguous tensor. Owns: a handle of it. It must stay as it is until the message
/// has been sent.
void append_bytes(rpc::Payload& to, const Tensor& contiguous);
void append_rows(rpc::Payload& to, std::vector<int64_t> rows);

/// Reads what a stranger may have sent, however it is cut. Errors, of all: DataLoss.
/// Threads: thread-compatible.
class PayloadReader {
 public:
  /// `payload` stays there. `operation`: for error texts.
  PayloadReader(const char* operation, const rpc::Payload& payload,
                const rpc::RpcReply* reply = nullptr)
      : operation_(operation), payload_(payload), reply_(reply), left_(payload.size()) {}

  /// What message() was given.
  std::string header();
  void read(void* to, std::size_t bytes);
  /// The next `count` numbers where they lie, as long as the payload is there; null, and nothing is
  /// read, where they are not in one piece, or not aligned.
  template <class T>
  const T* in_place(std::size_t count) {
    return static_cast<const T*>(in_place(count * sizeof(T), alignof(T)));
  }
  /// Strictly ascending numbers in [0, below).
  std::vector<int64_t> ascending_rows(std::size_t count, int64_t below);
  /// Any numbers.
  std::vector<int64_t> integers(std::size_t count);
  /// Numbers in [0, below).
  std::vector<int64_t> rows(std::size_t count, int64_t below);
  std::size_t left() const { return left_; }
  /// As RpcReply's: for the answer to what is read, if it is a call.
  rpc::RpcReply::Room room(std::size_t bytes) const {
    return reply_ == nullptr ? rpc::RpcReply::Room{} : reply_->room(bytes);
  }
  /// The rest are so many bytes.
  void expect(std::size_t bytes) const;

 private:
  const void* in_place(std::size_t bytes, std::size_t alignment);
  void skip(std::size_t bytes);

  const char* const operation_;
  const rpc::Payload& payload_;
  const rpc::RpcReply* const reply_;
  std::size_t left_;
  std::size_t piece_ = 0;
  std::size_t at_ = 0;  // in the piece
};

/// Of a variable's numbers. Errors: InvalidArgument for a dtype that does not travel.
uint64_t wire_dtype(DType dtype);
/// Errors: DataLoss.
DType read_dtype(rpc::MessageReader& in);

/// A variable's name, or that of an optimizer's set of slots. Errors: InvalidArgument for one of
/// more than 4 KiB; DataLoss.
std::string read_name(rpc::MessageReader& in);

void write_shape(rpc::MessageWriter& out, const Shape& shape);
/// Errors: DataLoss for what is no shape: more than 32 axes, or more elements than memory has
///         addresses.
Shape read_shape(rpc::MessageReader& in);

/// A rule with its numbers, and what happens around it.
struct UpdateStep {
  update_rules::Rule rule = {};
  update_rules::UpdateOptions how = {};
  std::string slots = {};  ///< Whose: the name of the optimizer's set.
};
void write_step(rpc::MessageWriter& out, const UpdateStep& step);
/// Errors: DataLoss for a rule that there is not.
UpdateStep read_step(rpc::MessageReader& in);

/// The same of one that looks at a variable as a whole.
struct WholeStep {
  variables::WholeRule rule = {};
  double weight_decay = 0;  ///< Decay times learning rate.
  std::string slots = {};
};
void write_step(rpc::MessageWriter& out, const WholeStep& step);
/// Errors: DataLoss for a rule that there is not.
WholeStep read_whole_step(rpc::MessageReader& in);
void write_form(rpc::MessageWriter& out, const variables::SlotForm& form);
/// Errors: DataLoss.
variables::SlotForm read_form(rpc::MessageReader& in);

}  // namespace cohort::internal::coordinator
