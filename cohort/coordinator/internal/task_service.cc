// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/internal/task_service.h"

#include <elf.h>
#include <link.h>

#include <array>
#include <cstring>
#include <random>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/coordinator/function.h"
#include "cohort/coordinator/parameters/generation_fence.h"
#include "cohort/rpc/wire.h"

namespace cohort::internal::coordinator {
namespace {

constexpr uint64_t kMostFunctions = 1 << 20;

uint64_t random_number() {
  std::random_device device;
  uint64_t out = 0;
  while (out == 0) out = (static_cast<uint64_t>(device()) << 32) | device();
  return out;
}

std::string hex(std::span<const unsigned char> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const unsigned char byte : bytes) {
    out.push_back(kDigits[byte >> 4]);
    out.push_back(kDigits[byte & 15]);
  }
  return out;
}

std::size_t padded(std::size_t size) { return (size + 3) & ~std::size_t{3}; }

// The linker's number of a note segment, which two builds of different code do not share.
std::string build_id_of_notes(const char* at, std::size_t left) {
  while (left >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note{};
    std::memcpy(&note, at, sizeof note);
    const std::size_t size = sizeof note + padded(note.n_namesz) + padded(note.n_descsz);
    if (size > left) break;
    if (note.n_type == NT_GNU_BUILD_ID) {
      const auto* id = reinterpret_cast<const unsigned char*>(at + sizeof note);
      return hex({id + padded(note.n_namesz), note.n_descsz});
    }
    at += size;
    left -= size;
  }
  return {};
}

// Empty where the linker gives none.
std::string program_build_id() {
  std::string out;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr)& part = info->dlpi_phdr[i];
          if (part.p_type != PT_NOTE) continue;
          const std::string id = build_id_of_notes(
              reinterpret_cast<const char*>(info->dlpi_addr + part.p_vaddr), part.p_memsz);
          if (!id.empty()) *static_cast<std::string*>(to) = id;
        }
        return 1;  // the program itself is the first
      },
      &out);
  return out;
}

}  // namespace

ProgramIdentity program_identity() {
  static const std::string build = program_build_id();
  return {.build = build, .functions = registered_functions()};
}

std::string first_difference(const ProgramIdentity& ours, const ProgramIdentity& theirs) {
  const std::map<std::string, std::string> here(ours.functions.begin(), ours.functions.end());
  const std::map<std::string, std::string> there(theirs.functions.begin(), theirs.functions.end());
  for (const auto& [name, signature] : there) {
    const auto mine = here.find(name);
    if (mine == here.end()) {
      return str_cat("the coordinator's has a function \"", name, "\", ",
                     readable_signature(signature), ", which is not registered in this one");
    }
    if (mine->second != signature) {
      return str_cat("its function \"", name, "\" is ", readable_signature(signature),
                     ", in this one ", readable_signature(mine->second));
    }
  }
  for (const auto& [name, signature] : here) {
    if (there.count(name) == 0) {
      return str_cat("this one has a function \"", name, "\", ", readable_signature(signature),
                     ", which is not registered in the coordinator's");
    }
  }
  if (ours.build == theirs.build) return {};
  return str_cat("the coordinator's has build id ", theirs.build, ", this one ", ours.build);
}

rpc::Payload to_payload(const Greeting& greeting) {
  rpc::MessageWriter out;
  out.number(greeting.who.session);
  out.number(greeting.who.generation);
  out.number(greeting.who.origin);
  out.text(greeting.program.build);
  out.number(greeting.program.functions.size());
  for (const auto& [name, signature] : greeting.program.functions) {
    out.text(name);
    out.text(signature);
  }
  return rpc::Payload(out.str());
}

Greeting greeting_of(const rpc::Payload& payload) {
  const std::string text = payload.text();
  rpc::MessageReader in("[coordinator] ", text);
  Greeting out;
  out.who.session = in.number();
  out.who.generation = in.number();
  out.who.origin = in.number();
  out.program.build = in.text();
  for (uint64_t left = in.number_up_to(kMostFunctions); left > 0; --left) {
    std::string name = in.text();
    out.program.functions.emplace_back(std::move(name), in.text());
  }
  in.end();
  return out;
}

NewestCoordinator newest_of(const rpc::Payload& payload) {
  const std::string text = payload.text();
  rpc::MessageReader in("[coordinator] ", text);
  NewestCoordinator out{.generation = in.number()};
  out.origin = in.number();
  in.end();
  return out;
}

HelloAnswer hello_answer_of(const rpc::Payload& payload) {
  const std::string text = payload.text();
  rpc::MessageReader in("[coordinator] ", text);
  HelloAnswer out{.incarnation = in.number()};
  out.is_resumed = in.number_up_to(1) == 1;
  in.end();
  return out;
}

TaskService::TaskService(Options options)
    : options_(std::move(options)),
      incarnation_(random_number()),
      heard_(std::chrono::steady_clock::now()) {}

rpc::Payload TaskService::newest() const {
  const base::MutexLock lock(mutex_);
  rpc::MessageWriter out;
  out.number(generation_);
  out.number(claimed_origin_);
  return rpc::Payload(out.str());
}

void TaskService::hello(const Greeting& greeting, const rpc::RpcReply& reply) {
  const std::string difference = first_difference(program_identity(), greeting.program);
  COHORT_CHECK_STATE(difference.empty(), options_.name,
                     " runs another program than the coordinator: ", difference,
                     ". Start all tasks from the same build");
  const CoordinatorIdentity& who = greeting.who;
  // One step with what is forgotten: the same chief's next greeting, which forgets nothing, must
  // not be answered before it, nor must the next chief's.
  const base::MutexLock lock(mutex_);
  if (session_ != who.session && who.generation <= generation_) {
    throw superseded_error(who.generation, generation_);
  }
  const bool is_resumed = who.origin != 0 && origin_ == who.origin;
  const bool is_anew = !is_resumed && origin_ != who.session;
  if (is_anew) origin_ = who.session;
  session_ = who.session;
  generation_ = who.generation;
  claimed_origin_ = who.origin != 0 ? who.origin : who.session;
  heard_ = std::chrono::steady_clock::now();
  rpc::MessageWriter out;
  out.number(incarnation_);
  out.number(is_resumed ? 1 : 0);
  const auto then = [reply, answer = rpc::Payload(out.str())] { reply.send(answer); };
  if (!options_.on_greeting) return then();
  options_.on_greeting(who.generation, is_anew, then);
}

TaskReport TaskService::report() const {
  TaskReport out = options_.report ? options_.report() : TaskReport();
  out.incarnation = incarnation_;
  out.memory_bytes = resident_bytes();
  return out;
}

void TaskService::check_session(uint64_t session, uint64_t generation) {
  const base::MutexLock lock(mutex_);
  if (session == session_ && session != 0) {
    heard_ = std::chrono::steady_clock::now();
    return;
  }
  if (generation <= generation_) throw superseded_error(generation, generation_);
  throw Error(ErrorCode::kAborted,
              str_cat(options_.name, " was restarted, and not connected to since"));
}

void TaskService::end() {
  const base::MutexLock lock(mutex_);
  is_over_ = true;
  changed_.notify_all();
}

std::map<std::string, rpc::RpcHandler> TaskService::methods() {
  const auto session_of = [](const rpc::Payload& payload) {
    const std::string text = payload.text();
    rpc::MessageReader in("[coordinator] ", text);
    const uint64_t session = in.number();
    in.end();
    return session;
  };
  return {
      {"task.newest", [this](const rpc::RpcRequest& /*request*/,
                             const rpc::RpcReply& reply) { reply.send(newest()); }},
      {"task.hello",
       [this](const rpc::RpcRequest& request, const rpc::RpcReply& reply) {
         hello(greeting_of(request.payload), reply);
       }},
      {"task.ping",
       [this, session_of](const rpc::RpcRequest& request, const rpc::RpcReply& reply) {
         check_session(session_of(request.payload), request.caller.generation);
         rpc::MessageWriter out;
         write_report(out, report());
         reply.send(rpc::Payload(out.str()));
       }},
      {"task.end", [this, session_of](const rpc::RpcRequest& request, const rpc::RpcReply& reply) {
         check_session(session_of(request.payload), request.caller.generation);
         reply.send(rpc::Payload());
         end();
       }}};
}

void TaskService::wait_for_end() {
  const base::MutexLock lock(mutex_);
  while (!is_over_) {
    const auto limit = heard_ + options_.coordinator_lease;
    if (session_ == 0 && !options_.ends_alone) {
      changed_.wait_for(mutex_, options_.coordinator_lease);
    } else if (std::chrono::steady_clock::now() < limit) {
      changed_.wait_until(mutex_, limit);
    } else {
      COHORT_LOG(kWarning, options_.name, ": no message from the coordinator for ",
                 options_.coordinator_lease.count() / 1000,
                 " s; this task takes the job for ended, and ends");
      return;
    }
  }
}

}  // namespace cohort::internal::coordinator
