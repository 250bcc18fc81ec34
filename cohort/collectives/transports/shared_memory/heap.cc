// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/shared_memory/heap.h"

#include <string>

#include "cohort/base/check.h"
#include "cohort/base/error.h"
#include "cohort/base/mutex.h"
#include "cohort/base/strings.h"

namespace cohort::internal::collectives {

// Lives as long as the heap or anything of it.
struct SharedHeap::State {
  explicit State(SegmentTable* of) : table(of), used(SegmentTable::kMost, nullptr) {}

  base::Mutex mutex;
  SegmentTable* table COHORT_GUARDED_BY(mutex);                     // null: the heap is gone
  std::vector<const SharedSegment*> used COHORT_GUARDED_BY(mutex);  // [entry]
};

SharedHeap::SharedHeap(SegmentTable* table) : state_(std::make_shared<State>(table)) {}

SharedHeap::~SharedHeap() {
  const base::MutexLock lock(state_->mutex);
  state_->table = nullptr;
}

std::shared_ptr<std::byte> SharedHeap::allocate(std::size_t bytes) {
  if (bytes < kLeastBytes) return nullptr;
  const base::MutexLock lock(state_->mutex);
  std::size_t entry = 0;
  while (entry < SegmentTable::kMost && state_->used[entry] != nullptr) ++entry;
  if (entry == SegmentTable::kMost || state_->table == nullptr) return nullptr;
  auto segment = std::make_unique<SharedSegment>(SharedSegment::create(bytes));
  state_->table->entries[entry] = segment->offer();
  state_->used[entry] = segment.get();
  std::byte* const data = segment->data();
  return {data, [state = state_, entry, owned = segment.release()](std::byte*) {
            const std::unique_ptr<SharedSegment> last(owned);
            const base::MutexLock freed(state->mutex);
            state->used[entry] = nullptr;
            // So that others see that there is nothing to be read here any more.
            if (state->table != nullptr) state->table->entries[entry].token = {};
          }};
}

std::optional<HeapPlace> SharedHeap::find(std::span<const std::byte> bytes) const {
  const base::MutexLock lock(state_->mutex);
  for (std::size_t entry = 0; entry < state_->used.size(); ++entry) {
    const SharedSegment* const segment = state_->used[entry];
    if (segment == nullptr || bytes.data() < segment->data()) continue;
    const auto at = static_cast<std::size_t>(bytes.data() - segment->data());
    if (at < segment->bytes() && bytes.size() <= segment->bytes() - at) {
      return HeapPlace{static_cast<int32_t>(entry), at};
    }
  }
  return std::nullopt;
}

std::span<const std::byte> PeerHeap::read(HeapPlace place, std::size_t bytes) {
  COHORT_CHECK_STATE(
      place.segment >= 0 && static_cast<std::size_t>(place.segment) < std::size(table_->entries),
      "[communicator] expected a segment of another rank, got number ", place.segment);
  const SegmentOffer offer = table_->entries[static_cast<std::size_t>(place.segment)];
  auto& [token, segment] = open_[place.segment];
  if (!segment || token != offer.token) {
    std::erase_if(open_, [&](const auto& other) {
      const auto& [number, opened] = other;
      return number != place.segment &&
             table_->entries[static_cast<std::size_t>(number)].token != opened.first;
    });
    std::string why;
    segment = SharedSegment::open(offer, &why);
    token = offer.token;
    if (!segment) {
      throw Error(ErrorCode::kUnavailable,
                  str_cat("[communicator] expected to read another rank's memory, got ", why));
    }
  }
  if (place.at > segment.bytes() || bytes > segment.bytes() - place.at) {
    throw Error(ErrorCode::kInternal,
                "[communicator] expected a place in another rank's memory, got one beyond its end");
  }
  return {segment.data() + place.at, bytes};
}

}  // namespace cohort::internal::collectives
