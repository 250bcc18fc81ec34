// SPDX-License-Identifier: Apache-2.0
//
// What stands before each message on a stream and on a line. Ranks are processes of one build on
// machines of one byte order (they compare that when they meet), so these are the structs' bytes.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "cohort/collectives/transport.h"
#include "cohort/rpc/errors.h"

namespace cohort::internal::collectives {

/// A message of a stream.
struct FrameHeader {
  static constexpr uint32_t kMagic = 0x43685231;
  enum class Kind : uint8_t {
    kMessage,  ///< Of an exchange; `bytes` of it follow.
    kRenew,    ///< The sender has come to the beginning of `generation`.
    kGoodbye,  ///< The sender ends in good order; nothing follows.
  };

  uint32_t magic = kMagic;
  Kind kind = Kind::kMessage;
  ExchangeKey::Channel channel = ExchangeKey::Channel::kCollective;
  uint8_t phase = 0;
  Collective collective = Collective::kBarrier;
  uint64_t generation = 0;
  uint64_t sequence = 0;
  uint64_t bytes = 0;
  uint64_t signature_bytes = 0;
  uint64_t tag = 0;
  int32_t root = 0;
  DType dtype = DType::Undefined;
  uint8_t op = 0;
  std::array<uint8_t, 10> unused = {};

  static FrameHeader of(uint64_t generation, const ExchangeKey& key, const CallSignature& s,
                        std::size_t bytes) {
    return {.channel = key.channel,
            .phase = key.phase,
            .collective = s.collective,
            .generation = generation,
            .sequence = key.sequence,
            .bytes = bytes,
            .signature_bytes = s.bytes,
            .tag = s.tag,
            .root = s.root,
            .dtype = s.dtype,
            .op = static_cast<uint8_t>(s.op)};
  }
  ExchangeKey key() const { return {.channel = channel, .phase = phase, .sequence = sequence}; }
  CallSignature signature() const {
    return {.collective = collective,
            .root = root,
            .bytes = signature_bytes,
            .dtype = dtype,
            .op = static_cast<ReduceOp>(op),
            .tag = tag};
  }
  /// Whether a message can begin so: a stream that has lost its order is not read further.
  bool is_sane() const {
    return magic == kMagic && kind <= Kind::kGoodbye && channel <= ExchangeKey::Channel::kPair &&
           collective <= Collective::kSend && op <= static_cast<uint8_t>(ReduceOp::kProduct) &&
           dtype >= DType::Byte && dtype <= DType::Undefined && bytes <= (uint64_t{1} << 48);
  }
};
static_assert(sizeof(FrameHeader) == 64 && std::is_trivially_copyable_v<FrameHeader>);

/// A message of a line; `text_bytes` of a failure's text follow.
struct AlarmHeader {
  static constexpr uint32_t kMagic = 0x43684131;
  static constexpr uint32_t kLongestText = 16 << 10;
  enum class Kind : uint8_t {
    kProposal,  ///< The sender has failed; who decides takes the first one.
    kVerdict,   ///< The generation's failure, and the commits that had passed.
    kSettling,  ///< How many commits the sender has passed, now that who decided them is gone.
    kGoodbye,   ///< As on the stream.
  };

  uint32_t magic = kMagic;
  Kind kind = Kind::kProposal;
  uint8_t code = 0;
  std::array<uint8_t, 2> unused = {};
  int32_t rank = 0;
  uint32_t text_bytes = 0;
  uint64_t generation = 0;
  uint64_t committed = 0;

  bool is_sane() const {
    return magic == kMagic && kind <= Kind::kGoodbye && text_bytes <= kLongestText &&
           code <= static_cast<uint8_t>(rpc::kUnauthenticatedCode);
  }
};
static_assert(sizeof(AlarmHeader) == 32 && std::is_trivially_copyable_v<AlarmHeader>);

}  // namespace cohort::internal::collectives
