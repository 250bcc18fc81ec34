// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/device.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <limits>

#include "cohort/base/check.h"
#include "cohort/runtime/device_backend.h"
#include "cohort/runtime/topology.h"

namespace cohort {
namespace {

constexpr int kMaxDefaultCpus = 8;

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  return text;
}

[[noreturn]] void bad_name(const std::string& name) {
  throw InvalidArgument(
      str_cat("[device] expected a name such as \"CPU:0\", \"/gpu:1\" or "
              "\"/job:worker/replica:0/task:1/device:CPU:0\", got \"",
              name, "\""));
}

int parse_index(const std::string& text, const std::string& name) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) bad_name(name);
  return value;
}

DeviceKind parse_kind(const std::string& text, const std::string& name) {
  const std::string kind = upper(text);
  if (kind == "CPU") return DeviceKind::kCpu;
  if (kind == "GPU") return DeviceKind::kGpu;
  if (kind == "TPU") return DeviceKind::kTpu;
  bad_name(name);
}

const char* kind_name(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu:
      return "CPU";
    case DeviceKind::kGpu:
      return "GPU";
    case DeviceKind::kTpu:
      return "TPU";
  }
  return "CPU";
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::string::size_type begin = 0;
  for (auto end = text.find(separator); end != std::string::npos;
       begin = end + 1, end = text.find(separator, begin)) {
    parts.push_back(text.substr(begin, end - begin));
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<Device> list_gpus() {
  internal::runtime::DeviceBackend* const gpus = internal::runtime::find_device_backend(c10::kCUDA);
  std::vector<Device> devices;
  for (int i = 0; gpus != nullptr && i < gpus->count(); ++i)
    devices.emplace_back(str_cat("GPU:", i));
  return devices;
}

}  // namespace

Device::Device(const char* name) : Device(std::string(name)) {}

Device::Device(const std::string& name) {
  bool has_kind = false;
  std::vector<std::string> parts = split(name, '/');
  if (parts.front().empty()) parts.erase(parts.begin());
  if (parts.empty()) bad_name(name);
  for (const std::string& part : parts) {
    const std::vector<std::string> words = split(part, ':');
    if (words.size() == 2 && words[0] == "job" && !words[1].empty()) {
      job_ = words[1];
    } else if (words.size() == 2 && words[0] == "replica") {
      replica_ = parse_index(words[1], name);
    } else if (words.size() == 2 && words[0] == "task") {
      task_ = parse_index(words[1], name);
    } else {
      const std::size_t first = words[0] == "device" ? 1 : 0;
      if (has_kind || words.size() <= first || words.size() > first + 2) bad_name(name);
      kind_ = parse_kind(words[first], name);
      index_ = words.size() > first + 1 ? parse_index(words[first + 1], name) : 0;
      has_kind = true;
    }
  }
  if (!has_kind) bad_name(name);
}

std::string Device::short_name() const { return str_cat(kind_name(kind_), ':', index_); }

c10::Device Device::at_device() const {
  if (kind_ == DeviceKind::kCpu) return {c10::kCPU};
  constexpr int kMostIndex = std::numeric_limits<c10::DeviceIndex>::max();
  COHORT_CHECK_ARG(index_ <= kMostIndex, "[device] expected an index of at most ", kMostIndex,
                   ", got ", short_name());
  const auto index = static_cast<c10::DeviceIndex>(index_);
  switch (kind_) {
    case DeviceKind::kCpu:
      break;
    case DeviceKind::kGpu:
      return {c10::kCUDA, index};
    case DeviceKind::kTpu:
      return {c10::kXLA, index};
  }
  return {c10::kCPU};
}

std::string Device::name() const {
  return str_cat("/job:", job_, "/replica:", replica_, "/task:", task_, "/device:", short_name());
}

std::ostream& operator<<(std::ostream& out, const Device& device) {
  const bool here = device == Device(device.short_name());
  return out << (here ? device.short_name() : device.name());
}

void set_logical_device_configuration(const Device& physical,
                                      const std::vector<LogicalDeviceConfiguration>& logical) {
  constexpr const char* kName = "[set_logical_device_configuration] ";
  if (physical.kind() != DeviceKind::kGpu) {
    throw Unimplemented(str_cat(kName, "expected a GPU, got ", physical.short_name(),
                                physical.kind() == DeviceKind::kCpu
                                    ? "; logical CPUs need no set-up: name them"
                                    : ": not supported in this version"));
  }
  COHORT_CHECK_ARG(!logical.empty(), kName, "expected at least 1 logical GPU, got none");
  std::vector<int64_t> limits;
  for (const LogicalDeviceConfiguration& one : logical) {
    COHORT_CHECK_ARG(one.memory_limit >= 0, kName, "expected memory limits from 0, got ",
                     one.memory_limit);
    limits.push_back(one.memory_limit);
  }
  internal::runtime::device_backend(physical).split(physical.index(), limits);
}

std::vector<Device> list_devices(DeviceKind kind) {
  if (kind == DeviceKind::kTpu) return {};
  if (kind == DeviceKind::kGpu) return list_gpus();
  int count = std::min(internal::runtime::usable_cores(), kMaxDefaultCpus);
  if (const char* text = std::getenv("COHORT_CPU_DEVICES"); text != nullptr && *text != '\0') {
    const std::string value = text;
    const auto [end, error] = std::from_chars(text, text + value.size(), count);
    COHORT_CHECK_ARG(error == std::errc() && end == text + value.size() && count >= 1,
                     "[list_devices] expected COHORT_CPU_DEVICES to be a number from 1, got \"",
                     value, "\"");
  }
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) devices.emplace_back(str_cat("CPU:", i));
  return devices;
}

}  // namespace cohort
