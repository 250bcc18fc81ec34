// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/communicator_group.h"

#include "cohort/collectives/communicator.h"
#include "cohort/collectives/worker_collectives.h"

namespace cohort::internal::collectives {
namespace {

class CommunicatorGroup final : public checkpoint::SavingGroup {
 public:
  explicit CommunicatorGroup(std::shared_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  int rank() const override { return communicator_->rank(); }
  int size() const override { return communicator_->size(); }
  void together(const char* operation, base::FunctionRef<void()> body) override {
    communicator_->take_turn(operation, body);
  }
  void broadcast(std::span<std::byte> bytes) override { communicator_->broadcast(bytes, 0); }
  std::vector<std::string> gather(const std::string& here) override {
    return gather_texts(*communicator_, "checkpoint", here);
  }
  int64_t sum(int64_t here) override { return sum_across(*communicator_, here); }

 private:
  const std::shared_ptr<Communicator> communicator_;
};

}  // namespace

std::shared_ptr<checkpoint::SavingGroup> saving_group_of(
    std::shared_ptr<Communicator> communicator) {
  if (communicator == nullptr || communicator->size() == 1) return nullptr;
  return std::make_shared<CommunicatorGroup>(std::move(communicator));
}

}  // namespace cohort::internal::collectives
