// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/trial.h"

#include "cohort/base/check.h"

namespace cohort::conformance {
namespace {

// A user's own ops, as in the example of cross_device_ops.h.
class OwnOps : public CrossDeviceOps {
 protected:
  Mirrored<Gradient> do_reduce(ReduceOp op, const PerReplica<Gradient>& value,
                               const Destinations& to,
                               const CommunicationOptions& options) override {
    return inner_.reduce(op, value, to, options);
  }

 private:
  ReductionToOneDevice inner_;
};

std::vector<Device> cpus(int count) {
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) devices.emplace_back("CPU:" + std::to_string(i));
  return devices;
}

Strategy make_strategy(Strategies one) {
  switch (one) {
    case kDefault:
      return get_strategy();
    case kOneDevice:
      return OneDeviceStrategy("CPU:0");
    case kOwnOps2:
      return MirroredStrategy({.devices = cpus(2), .cross_device_ops = std::make_shared<OwnOps>()});
    case kCentral2:
      return CentralStorageStrategy({.compute_devices = cpus(2)});
    default:
      return MirroredStrategy(cpus(replicas_of(one)));
  }
}

}  // namespace

Trial::Trial(Strategies one) : kind(one), strategy(make_strategy(one)), replicas(replicas_of(one)) {
  COHORT_CHECK_STATE(strategy.num_replicas_in_sync() == replicas,
                     "[conformance] expected a strategy of ", replicas, " replicas, got ",
                     strategy.num_replicas_in_sync());
}

Strategy Trial::another() const { return make_strategy(kind == kDefault ? kMirrored1 : kind); }

PerReplica<Tensor> Trial::values(std::vector<Tensor> of) const {
  COHORT_CHECK_ARG(of.size() >= static_cast<std::size_t>(replicas), "[conformance] expected ",
                   replicas, " values, got ", of.size());
  of.resize(static_cast<std::size_t>(replicas));
  return PerReplica<Tensor>(std::move(of));
}

Variable Trial::variable(InitialValue initial, VariableOptions options) const {
  const auto scope = strategy.scope();
  return Variable(std::move(initial), std::move(options));
}

void Trial::run(const std::function<void(int)>& body) const {
  strategy.run([&] { body(get_replica_context().replica_id_in_sync_group()); });
}

std::vector<Body>& all_bodies() {
  static std::vector<Body> bodies;
  return bodies;
}

bool add_body(const char* name, std::string (*play)(const Trial&), const char* file, int line) {
  const std::string_view text = name;
  all_bodies().push_back({text, text.substr(0, text.find('_')), play, file, line});
  return true;
}

}  // namespace cohort::conformance
