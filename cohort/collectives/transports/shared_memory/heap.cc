// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/shared_memory/heap.h"

#include <string>

#include "cohort/base/check.h"
#include "cohort/base/error.h"
#include "cohort/base/mutex.h"
#include "cohort/base/process_mark.h"
#include "cohort/base/strings.h"

namespace cohort::internal::collectives {

// Lives as long as the heap or anything of it.
struct SharedHeap::State {
  explicit State(SegmentTable* of) : table(of), used(SegmentTable::kMost, nullptr) {}

  const base::ProcessMark process;  // whose table it is
  base::Mutex mutex;
  SegmentTable* table COHORT_GUARDED_BY(mutex);                     // null: the heap is gone
  std::vector<const SharedSegment*> used COHORT_GUARDED_BY(mutex);  // [entry]
};

// A segment, in the table for as long as somebody has it.
struct SharedHeap::Entry {
  Entry(std::shared_ptr<State> of, std::size_t number, SharedSegment made)
      : state(std::move(of)), at(number), segment(std::move(made)) {}
  ~Entry() {
    if (!state->process.is_ours()) return;
    const base::MutexLock freed(state->mutex);
    state->used[at] = nullptr;
    // So that others see that there is nothing to be read here any more.
    if (state->table != nullptr) state->table->entries[at].token = {};
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  const std::shared_ptr<State> state;
  const std::size_t at;
  SharedSegment segment;
};

class SharedHeap::HeapRegion final : public runtime::Region {
 public:
  explicit HeapRegion(std::shared_ptr<Entry> of)
      : Region(of->segment.data(), of->segment.bytes()), entry_(std::move(of)) {}
  void use(std::size_t, std::size_t) override {}
  void clear(std::size_t offset, std::size_t bytes) override {
    if (entry_->state->process.is_ours()) entry_->segment.clear(offset, bytes);
  }

 private:
  const std::shared_ptr<Entry> entry_;
};

SharedHeap::SharedHeap(SegmentTable* table) : state_(std::make_shared<State>(table)) {}

SharedHeap::~SharedHeap() {
  const base::MutexLock lock(state_->mutex);
  state_->table = nullptr;
}

std::shared_ptr<SharedHeap::Entry> SharedHeap::enter(std::size_t bytes,
                                                     SharedSegment::Pages pages) {
  if (!state_->process.is_ours()) return nullptr;  // the table is the parent's
  const base::MutexLock lock(state_->mutex);
  std::size_t at = 0;
  while (at < SegmentTable::kMost && state_->used[at] != nullptr) ++at;
  if (at == SegmentTable::kMost || state_->table == nullptr) return nullptr;
  auto made = std::make_shared<Entry>(state_, at, SharedSegment::create(bytes, pages));
  state_->table->entries[at] = made->segment.offer();
  state_->used[at] = &made->segment;
  return made;
}

std::shared_ptr<std::byte> SharedHeap::allocate(std::size_t bytes) {
  if (bytes < kLeastBytes) return nullptr;
  const auto entry = enter(bytes, SharedSegment::Pages::kAllNow);
  return entry != nullptr ? std::shared_ptr<std::byte>(entry, entry->segment.data()) : nullptr;
}

std::unique_ptr<runtime::Region> SharedHeap::reserve(std::size_t bytes) {
  auto entry = enter(bytes, SharedSegment::Pages::kWhenWritten);
  return entry != nullptr ? std::make_unique<HeapRegion>(std::move(entry)) : nullptr;
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
