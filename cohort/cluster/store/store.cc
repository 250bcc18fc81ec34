// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/store/store.h"

#include <algorithm>

namespace cohort::internal::cluster {

std::string Store::get(const std::string& key, std::chrono::milliseconds wait) {
  return ask({.verb = StoreVerb::kGet,
              .key = key,
              .wait = std::max(wait, std::chrono::milliseconds(1))})
      .value;
}

std::optional<std::string> Store::find(const std::string& key) {
  StoreReply reply = ask({.verb = StoreVerb::kGet, .key = key});
  if (!reply.yes) return {};
  return std::move(reply.value);
}

void Store::set(const std::string& key, const std::string& value) {
  ask({.verb = StoreVerb::kSet, .key = key, .value = value});
}

std::string Store::insert(const std::string& key, const std::string& value) {
  return ask({.verb = StoreVerb::kInsert, .key = key, .value = value}).value;
}

int64_t Store::add(const std::string& key, int64_t number) {
  return ask({.verb = StoreVerb::kAdd, .key = key, .number = number}).number;
}

bool Store::erase(const std::string& key) {
  return ask({.verb = StoreVerb::kErase, .key = key}).yes;
}

void Store::barrier(const std::string& name, int tasks, std::chrono::milliseconds wait) {
  meet(name, tasks, {}, wait);
}

std::map<std::string, std::string> Store::meet(const std::string& name, int tasks,
                                               const std::string& value,
                                               std::chrono::milliseconds wait) {
  return ask({.verb = StoreVerb::kMeet, .key = name, .value = value, .number = tasks, .wait = wait})
      .all;
}

std::shared_ptr<Store> Store::under(const std::string& prefix,
                                    const std::shared_ptr<Store>& whole) {
  return std::make_shared<Store>([prefix, whole](const StoreRequest& request) {
    if (request.key.empty()) return whole->ask(request);
    StoreRequest mine = request;
    mine.key = prefix + request.key;
    return whole->ask(mine);
  });
}

std::vector<StoreMember> Store::members() { return ask({.verb = StoreVerb::kMembers}).members; }

}  // namespace cohort::internal::cluster
