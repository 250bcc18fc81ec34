// SPDX-License-Identifier: Apache-2.0
//
// The gradients of all replicas of all workers, added up for each of them: what an update needs
// whose replicas have slots of their own, and so apply the whole sum each.
#pragma once

#include <vector>

#include "cohort/collectives/communicator.h"
#include "cohort/variables/internal/exchanged_rows.h"
#include "cohort/variables/internal/post.h"
#include "cohort/variables/internal/worker_agreement.h"

namespace cohort::internal::variables {

/// Threads: replica 0 calls exchange(); behind a meeting all replicas call post().
class SummedGradients {
 public:
  SummedGradients(const UpdateLayout& layout, collectives::Communicator& communicator);

  /// Order: operations of the communicator. Errors: as WorkerAgreement::conclude().
  void exchange(Posts posts, const update_rules::Rule& rule, double weight_decay);
  const Post& post() const { return post_; }

 private:
  const UpdateLayout& layout_;
  collectives::Communicator& communicator_;
  WorkerAgreement agreement_;
  const WorkerShares shares_;
  ExchangedRows rows_;
  std::vector<Tensor> dense_;  // [variable], padded
  Post post_;
};

}  // namespace cohort::internal::variables
