// SPDX-License-Identifier: Apache-2.0
#include "roster.h"

#include <algorithm>

namespace cohort::bench {
namespace {

constexpr int kAnyReplicas = 1 << 10;

ContenderSpec native(const Places& places, const std::string& name, Family family,
                     std::vector<std::string> models) {
  ContenderSpec spec{name, family, "", {places.program, "--contender", name}, {}, models};
  spec.max_replicas = kAnyReplicas;
  return spec;
}

struct PeerRow {
  const char* name;
  Family family;
  const char* environment;
  const char* script;
  const char* kind;
  std::vector<std::string> models;
  int replicas;
};

std::vector<PeerRow> peer_rows() {
  const std::vector<std::string> both = {"mlp", "cnn", "tiny", "large"},
                                 fit = {"mlp", "mlp_fit", "cnn", "tiny", "large"},
                                 dense = {"mlp", "tiny", "large"};
  return {
      {"jax_jit", Family::kJax, "xla", "jax_peer.py", "jit", both, 1},
      {"jax_spmd", Family::kJax, "xla", "jax_peer.py", "spmd", both, 2},
      {"keras_fit", Family::kKeras, "xla", "tensorflow_peer.py", "fit", fit, 1},
      {"keras_fit50", Family::kKeras, "xla", "tensorflow_peer.py", "fit50", fit, 1},
      {"tf_function", Family::kKeras, "xla", "tensorflow_peer.py", "function", both, 1},
      // XLA's convolutions are twice as slow as TensorFlow's own, so not for the cnn.
      {"tf_function_xla", Family::kKeras, "xla", "tensorflow_peer.py", "function_xla", dense, 1},
      {"tf_mirrored", Family::kKeras, "xla", "tensorflow_peer.py", "mirrored", both, 2},
      {"tf_multi_worker", Family::kKeras, "xla", "tensorflow_peer.py", "multi_worker", both, 2},
      {"torch_eager", Family::kTorch, "torch", "torch_peer.py", "eager", both, 1},
      {"torch_fused", Family::kTorch, "torch", "torch_peer.py", "fused", both, 1},
      {"torch_compiled", Family::kTorch, "torch", "torch_peer.py", "compiled", dense, 1},
      {"torch_ddp", Family::kTorch, "torch", "torch_peer.py", "ddp", both, 2},
  };
}

ContenderSpec peer(const Places& places, const PeerRow& row) {
  ContenderSpec spec{row.name, row.family, "", {}, {}, row.models, row.replicas, row.replicas};
  spec.command = peer_command(places, row.environment, row.script);
  spec.command.push_back(row.kind);
  spec.environment = peer_variables(places);
  spec.missing = missing_environment(places, row.environment);
  return spec;
}

}  // namespace

const char* family_name(Family family) {
  switch (family) {
    case Family::kCohort:
      return "cohort";
    case Family::kCohortPart:
      return "cohort_part";
    case Family::kLimit:
      return "limit";
    case Family::kLibtorch:
      return "libtorch";
    case Family::kJax:
      return "jax";
    case Family::kKeras:
      return "keras";
    case Family::kTorch:
      return "torch";
  }
  return "unknown";
}

bool ContenderSpec::takes_part(const Case& c) const {
  return std::find(models.begin(), models.end(), c.model) != models.end() &&
         c.replicas >= min_replicas && c.replicas <= max_replicas;
}

std::vector<ContenderSpec> roster(const Places& places, bool peers) {
  const std::vector<std::string> models = {"mlp", "cnn", "tiny", "large"};
  ContenderSpec alone = native(places, "cohort_alone", Family::kCohortPart, models);
  alone.min_replicas = 2;
  alone.same_work = false;
  ContenderSpec workers = native(places, "cohort_workers", Family::kCohort, models);
  workers.min_replicas = workers.max_replicas = 2;
  ContenderSpec lockstep = native(places, "lockstep", Family::kLimit, {"mlp", "tiny", "large"});
  lockstep.min_replicas = 2;
  lockstep.same_work = false;
  std::vector<ContenderSpec> all = {
      native(places, "cohort", Family::kCohort, models),
      native(places, "cohort_fit", Family::kCohort, {"mlp_fit"}),
      native(places, "cohort_step", Family::kCohortPart, {"mlp_fit"}),
      alone,
      workers,
      lockstep,
      native(places, "libtorch", Family::kLibtorch, models),
      native(places, "libtorch_malloc", Family::kLibtorch, models),
  };
  if (!peers) return all;
  for (const PeerRow& row : peer_rows()) all.push_back(peer(places, row));
  return all;
}

}  // namespace cohort::bench
