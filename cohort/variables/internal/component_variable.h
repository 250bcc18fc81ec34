// SPDX-License-Identifier: Apache-2.0
//
// One component of a variable alone, as components() hands it out.
#pragma once

#include <memory>
#include <vector>

#include "cohort/variables/component.h"

namespace cohort::internal::variables {

/// Reads and writes nothing but its own component, in whatever context.
class ComponentVariable final : public LocalImpl {
 public:
  ComponentVariable(Description description, std::shared_ptr<LocalImpl> whole, int replica);

  Tensor value() const override { return own().tensor; }
  using LocalImpl::write;
  Tensor write(Write kind, const Tensor& x) override;
  void write(Write kind, const PerReplica<Tensor>& x) override;
  void scatter(Scatter kind, const IndexedSlices& slices) override;
  Variable container() override { return Variable(whole_); }
  const void* identity() const override { return &own(); }

  Component& leaf() override { return own(); }
  Component& leaf_of(int) override { return own(); }

 private:
  Component& own() const { return whole_->leaf_of(replica_); }

  const std::shared_ptr<LocalImpl> whole_;
  const int replica_;
};

}  // namespace cohort::internal::variables
