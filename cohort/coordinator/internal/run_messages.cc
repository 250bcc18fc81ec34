// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/internal/run_messages.h"

#include "cohort/base/strings.h"

namespace cohort::internal::coordinator {
namespace {

void write_recipe(ValueWriter& out, const ResourceRecipe& recipe) {
  out.number(recipe.id);
  out.byte(static_cast<uint8_t>(recipe.kind));
  out.text(recipe.function);
  out.number(recipe.dataset);
  write_nested(out, recipe.arguments);
}

ResourceRecipe recipe_of(ValueReader& in, BlobCursor& blobs) {
  ResourceRecipe out;
  out.id = in.number();
  const uint8_t kind = in.byte();
  if (kind > 1) in.fail("a kind of resource");
  out.kind = static_cast<ResourceRecipe::Kind>(kind);
  out.function = in.text();
  out.dataset = in.number();
  out.arguments = read_nested(in, blobs);
  return out;
}

CallAnswer call_answer_of(ValueReader& in, BlobCursor& blobs, const std::string& worker) {
  CallAnswer out;
  out.id = in.number();
  const uint8_t state = in.byte();
  if (state > 2) in.fail("a state of a call");
  out.state = static_cast<CallAnswer::State>(state);
  for (std::size_t left = in.count(); left > 0; --left) out.prepared.push_back(in.number());
  if (out.state == CallAnswer::State::kValue) out.value = read_nested(in, blobs);
  if (out.state == CallAnswer::State::kError) out.error = read_error(in, worker);
  return out;
}

void check_no_blobs_left(ValueReader& in, const BlobCursor& blobs) {
  in.end();
  if (blobs.left() > 0) in.fail("the end");
}

}  // namespace

rpc::Payload to_payload(const RunRequest& request) {
  ValueWriter out;
  out.number(request.session);
  out.number(request.sync_pushes.needed);
  out.byte(request.sync_pushes.drops_late ? 1 : 0);
  out.number(request.dropped.size());
  for (const uint64_t id : request.dropped) out.number(id);
  out.number(request.made.size());
  for (const ResourceRecipe& recipe : request.made) write_recipe(out, recipe);
  out.number(request.calls.size());
  for (const CallRequest& call : request.calls) {
    out.number(call.id);
    out.number(call.attempt);
    out.text(call.function);
    write_nested(out, call.arguments);
  }
  return to_payload(std::move(out).finish());
}

RunRequest run_request_of(const rpc::Payload& payload) {
  MessageParts parts(payload);
  ValueReader in(parts.head(), {});
  RunRequest out;
  out.session = in.number();
  out.sync_pushes.needed = in.number();
  const uint8_t drops_late = in.byte();
  if (drops_late > 1) in.fail("whether late pushes are dropped");
  out.sync_pushes.drops_late = drops_late == 1;
  for (std::size_t left = in.count(); left > 0; --left) out.dropped.push_back(in.number());
  for (std::size_t left = in.count(); left > 0; --left) {
    out.made.push_back(recipe_of(in, parts.blobs()));
  }
  for (std::size_t left = in.count(); left > 0; --left) {
    CallRequest call;
    call.id = in.number();
    call.attempt = in.number();
    call.function = in.text();
    call.arguments = read_nested(in, parts.blobs());
    out.calls.push_back(std::move(call));
  }
  check_no_blobs_left(in, parts.blobs());
  return out;
}

rpc::Payload to_payload(RunAnswer answer) {
  ValueWriter out;
  out.number(answer.nanoseconds);
  out.number(answer.calls.size());
  for (const CallAnswer& call : answer.calls) {
    out.number(call.id);
    out.byte(static_cast<uint8_t>(call.state));
    out.number(call.prepared.size());
    for (const uint64_t count : call.prepared) out.number(count);
    if (call.state == CallAnswer::State::kValue) write_nested(out, call.value);
    if (call.state == CallAnswer::State::kError) write_error(out, call.error);
  }
  return to_payload(std::move(out).finish());
}

RunAnswer run_answer_of(const rpc::Payload& payload, const std::string& worker) {
  MessageParts parts(payload);
  ValueReader in(parts.head(), {});
  RunAnswer out;
  out.nanoseconds = in.number();
  for (std::size_t left = in.count(); left > 0; --left) {
    out.calls.push_back(call_answer_of(in, parts.blobs(), worker));
  }
  check_no_blobs_left(in, parts.blobs());
  return out;
}

}  // namespace cohort::internal::coordinator
