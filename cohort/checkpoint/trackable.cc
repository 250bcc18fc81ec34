// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/trackable.h"

#include <cstring>

#include "cohort/base/check.h"
#include "cohort/checkpoint/internal/object_graph.h"
#include "cohort/checkpoint/internal/restore_session.h"

namespace cohort {
namespace {

class Values final : public Trackable {
 public:
  explicit Values(std::vector<TrackedValue> values) : values_(std::move(values)) {}
  TrackedParts parts() const override { return {.values = values_}; }

 private:
  const std::vector<TrackedValue> values_;
};

class Group final : public Trackable {
 public:
  explicit Group(const std::map<std::string, TrackableRef>& parts) {
    for (const auto& [name, part] : parts) {
      internal::checkpoint::check_part_name("trackable_group", name);
      parts_.children.emplace_back(name, part.trackable());
    }
  }
  TrackedParts parts() const override { return parts_; }

 private:
  TrackedParts parts_;
};

template <class T>
std::shared_ptr<Trackable> number(T* place, DType dtype) {
  COHORT_CHECK_ARG(place != nullptr, "[checkpoint] expected a number's address, got null");
  return trackable_value({.dtype = dtype,
                          .shape = Shape{},
                          .read = [place, dtype] { return full({}, 0, dtype).fill_(*place); },
                          .write = [place](const Tensor& value) { *place = value.item<T>(); },
                          .identity = place});
}

}  // namespace

TrackedValue tracked_bytes(std::string name, std::function<std::string()> read,
                           std::function<void(std::string_view)> write) {
  TrackedValue value{.name = std::move(name), .dtype = kUint8};
  value.read = [read = std::move(read)] {
    const std::string bytes = read();
    Tensor out = empty({static_cast<int64_t>(bytes.size())}, kUint8);
    std::memcpy(out.mutable_data_ptr(), bytes.data(), bytes.size());
    return out;
  };
  value.write = [write = std::move(write)](const Tensor& bytes) {
    write({static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()});
  };
  return value;
}

TrackedParts TrackedObject::parts() const {
  std::function<TrackedParts()> parts;
  {
    const internal::base::MutexLock lock(mutex_);
    parts = parts_;
  }
  return parts ? parts() : TrackedParts{.gone = true};
}

void TrackedObject::grown() {
  const auto session = waiting_for();
  if (session == nullptr) return;
  session->match_later();
  if (!parts().growing) wait_for(nullptr);
}

Tensor TrackedObject::waiting_value(const std::string& name) const {
  const auto session = waiting_for();
  return session == nullptr ? Tensor() : session->waiting_value(*this, name);
}

void TrackedObject::release() {
  std::shared_ptr<internal::checkpoint::RestoreSession> session;  // ends after the lock
  const internal::base::MutexLock lock(mutex_);
  parts_ = nullptr;
  session.swap(session_);
}

void TrackedObject::wait_for(std::shared_ptr<internal::checkpoint::RestoreSession> session) {
  const internal::base::MutexLock lock(mutex_);
  if (parts_) session_.swap(session);
}

std::shared_ptr<internal::checkpoint::RestoreSession> TrackedObject::waiting_for() const {
  const internal::base::MutexLock lock(mutex_);
  return session_;
}

TrackableRef::TrackableRef(std::shared_ptr<Trackable> trackable)
    : trackable_(std::move(trackable)) {
  COHORT_CHECK_ARG(trackable_ != nullptr, "[checkpoint] expected an object to keep, got null");
}
TrackableRef::TrackableRef(int64_t* place) : trackable_(number(place, kInt64)) {}
TrackableRef::TrackableRef(double* place) : trackable_(number(place, kFloat64)) {}
TrackableRef::TrackableRef(std::string* text) {
  COHORT_CHECK_ARG(text != nullptr, "[checkpoint] expected a text's address, got null");
  TrackedValue value = tracked_bytes(
      {}, [text] { return *text; }, [text](std::string_view bytes) { *text = bytes; });
  value.identity = text;
  trackable_ = trackable_value(std::move(value));
}

std::shared_ptr<Trackable> trackable_value(TrackedValue value) {
  return trackable_values({std::move(value)});
}

std::shared_ptr<Trackable> trackable_values(std::vector<TrackedValue> values) {
  return std::make_shared<Values>(std::move(values));
}

std::shared_ptr<Trackable> trackable_group(const std::map<std::string, TrackableRef>& parts) {
  return std::make_shared<Group>(parts);
}

namespace internal::checkpoint {

std::string UniqueNames::add(const std::string& name) {
  std::string unique = name;
  for (int i = 1; !taken_.insert(unique).second; ++i) unique = str_cat(name, "_", i);
  return unique;
}

}  // namespace internal::checkpoint
}  // namespace cohort
