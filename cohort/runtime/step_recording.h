// SPDX-License-Identifier: Apache-2.0
//
// Internal: what the code of a step does so that the step can be recorded once and then started
// again and again (step_recorder.h), with the numbers that a step made by hand would have.
//
// While a step is recorded its code runs as always, but nothing happens: what it asks of the device
// is written down, with the addresses and the kernels' arguments of this one pass, and what it
// would change on the host it hands to the recording. So a recording that fails leaves nothing to
// undo.
//
// StepRecording::current() is the recording under way, null where the step is made by hand. In it
// value(8, fill) gives the address at which a kernel reads a number that fill(to) writes ahead of
// every start, in place of an argument of the kernel; and after(effect) takes what the host changes
// with a step, such as its number, which changes when the recording has been started.
// Steps made by hand do both at once.
//
// A number of the host's that another step may have another of (a learning rate, which random
// numbers come next) must not become an argument: value() gives it a place in a block of the
// device's memory. What the host changes by a step goes into after(). Each start of the recording,
// the first one, too,
// (1) asks all values, in the order in which the step's code came to them; one that throws
// ends the step here, as it would have,
// with nothing started;
// (2) sends the block and, behind it, starts what was recorded, without waiting;
// (3) calls the effects, in their order.
// Code that cannot do so calls refuse_recording(), as does code that reads on the host what the
// step computes: the step is then made without a recording, and so are all later ones.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

namespace cohort::internal::runtime {

/// Things that recordings of one step share (one for each shape of its batches), kept as long as
/// one of them may be started. Threads: one at a time.
class RecordingStore {
 public:
  template <class T>
  void keep(std::shared_ptr<T> thing) {
    kept_.emplace_back(typeid(T), std::move(thing));
  }
  /// All of a class, in the order in which they came.
  template <class T>
  std::vector<std::shared_ptr<T>> kept() const {
    std::vector<std::shared_ptr<T>> found;
    for (const auto& [type, thing] : kept_) {
      if (type == typeid(T)) found.push_back(std::static_pointer_cast<T>(thing));
    }
    return found;
  }

 private:
  std::vector<std::pair<std::type_index, std::shared_ptr<void>>> kept_;
};

/// Threads: bound to the thread that records, later to those that start it, one at a time.
class StepRecording {
 public:
  using Fill = std::function<void(std::byte* out)>;

  /// `block`: memory of the device, `capacity` bytes, 16-byte aligned. `store` outlives it.
  StepRecording(std::byte* block, std::size_t capacity, RecordingStore& store)
      : block_(block), capacity_(capacity), store_(store) {}
  StepRecording(const StepRecording&) = delete;
  StepRecording& operator=(const StepRecording&) = delete;

  /// Ahead of the step's code. When that runs once more it gets the same places again, and its
  /// functions are those of the first time. Order: the same calls each time.
  void begin_pass();

  /// The calling thread's; null: what it does is done at once. Cost: a load.
  static StepRecording* current() { return t_current; }

  /// A place of so many bytes, 16-byte aligned, of the device's; `fill` gives what is there in the
  /// step that is started. Of 0 bytes: null, and `fill` may compute what later ones share.
  /// Errors: RecordingRefused where the block is full.
  std::byte* value(std::size_t bytes, Fill fill);
  /// What a step changes on the host once it is started. Must not throw.
  void after(std::function<void()> effect) {
    if (passes_ <= 1) effects_.push_back(std::move(effect));
  }
  RecordingStore& store() { return store_; }

  /// Of all values together.
  std::size_t bytes() const { return end_; }
  /// Asks all values. Errors: theirs.
  void fill(std::span<std::byte> out) const;
  void call_effects() const;

 private:
  friend class RecordingScope;
  struct Value {
    std::size_t offset, bytes;
    Fill fill;
  };
  // Found without a call, also in a shared library.
  static constinit thread_local StepRecording* t_current __attribute__((tls_model("initial-exec")));

  std::byte* const block_;
  const std::size_t capacity_;
  RecordingStore& store_;
  std::size_t end_ = 0;
  int passes_ = 0;
  std::size_t next_ = 0;  // of values_, in this pass
  std::vector<Value> values_;
  std::vector<std::function<void()>> effects_;
};

/// Makes a recording the calling thread's for its lifetime.
class [[nodiscard]] RecordingScope {
 public:
  explicit RecordingScope(StepRecording& recording)
      : before_(std::exchange(StepRecording::t_current, &recording)) {}
  ~RecordingScope() { StepRecording::t_current = before_; }
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  StepRecording* const before_;
};

/// Why a step cannot be recorded. No error of the program's: whoever records catches it.
class RecordingRefused : public std::exception {
 public:
  explicit RecordingRefused(std::string why) : why_(std::move(why)) {}
  const char* what() const noexcept override { return why_.c_str(); }

 private:
  std::string why_;
};

[[noreturn]] void throw_recording_refused(const char* why);

/// Does nothing where the calling thread records nothing. `why`: "its optimizer accumulates
/// gradients", of the step.
inline void refuse_recording(const char* why) {
  if (StepRecording::current() != nullptr) [[unlikely]]
    throw_recording_refused(why);
}

}  // namespace cohort::internal::runtime
