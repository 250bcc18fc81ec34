// SPDX-License-Identifier: Apache-2.0
//
// A node of a functional model that is no layer of it; internal.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cohort/keras/internal/tensor_functions.h"
#include "cohort/keras/layer.h"

namespace cohort::keras::internal {

/// Called once. Its arguments are Keras's, in their order: null where a tensor is to stand, else
/// what the operation is told, a number in place of a tensor, or a list of nulls. `options` is what
/// its config says besides the name, of functions of tensor_functions.h. Threads: immutable.
class Operation : public NestLayer {
 public:
  /// Errors: Unimplemented for a class of Keras's that is not known here, and for arguments that
  ///         are neither tensors nor, where it takes these, numbers.
  Operation(std::string kind, std::vector<Config> arguments, std::string name = {},
            Config options = {});

  std::string class_name() const override { return kind_; }
  bool may_have_weights() const override { return false; }
  /// Quietly none behind it.
  bool supports_masking() const override { return true; }
  Element compute_mask(const Element&, const Element&) const override { return {}; }
  Element call_nest(const Element& inputs, const CallArgs&) override;
  ElementSpec compute_output_spec(const ElementSpec& inputs) const override;
  Config get_config() const override;
  Config serialize() const override;

  /// What a config has as its arguments, with `tensors` where they stand.
  Config::List arguments_with(const Config::List& tensors) const;
  /// Arithmetic or a part of a tensor: what operations.h draws.
  bool is_arithmetic() const { return function_ == nullptr; }

 private:
  std::size_t tensors() const;
  Tensor compute(const std::vector<Tensor>& x) const;
  std::vector<Tensor> with_numbers(const std::vector<Tensor>& x) const;

  const std::string kind_;
  const std::vector<Config> arguments_;
  const TensorFunction* const function_;  // of others null
  const Config options_;
};

/// Of an entry of a model's config; nullptr: it is a layer.
/// Errors: as the constructor, and Unimplemented for one that is called twice.
std::shared_ptr<Operation> operation_of(const Config& entry);

}  // namespace cohort::keras::internal
