// SPDX-License-Identifier: Apache-2.0
//
// An ONNX model that is being written: nodes, constants, inputs and outputs. Internal.
//
//   Writer g;
//   const std::string y = g("Relu", {g("MatMul", {x, g.constant(kernel, "kernel")})});
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "cohort/data/core/element_spec.h"
#include "cohort/keras/onnx/protobuf.h"
#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal::onnx {

/// What the file says that it needs: operators as of this version of the default set, which
/// onnxruntime has since 1.14.
constexpr int64_t kOpset = 18, kIrVersion = 8;

using Names = std::vector<std::string>;
/// Nodes that another one runs (Scan).
struct Body {
  Message graph;
};
using Attribute = std::variant<int64_t, double, std::string, std::vector<int64_t>, Body>;
using Attributes = std::vector<std::pair<const char*, Attribute>>;

/// Threads: bound to one.
class Writer {
 public:
  Writer() { bodies_.emplace_back(); }

  /// A node with one output, whose name it returns. An input "" is one that is left out.
  std::string operator()(const char* op, const Names& inputs, const Attributes& attributes = {});
  /// The same with several outputs.
  Names node(const char* op, const Names& inputs, std::size_t outputs,
             const Attributes& attributes = {});

  /// Values that stand in the file, equal ones once. Errors: Unimplemented for dtypes without a
  ///         counterpart.
  std::string constant(const Tensor& value, const std::string& hint = "constant");
  std::string number(double value);                      ///< A float32 without axes.
  std::string ints(const std::vector<int64_t>& values);  ///< int64 [n].
  std::string integer(int64_t value);                    ///< int64 without axes.
  std::string cast(const std::string& x, DType dtype);
  /// The same value under a name that fresh() gave.
  void rename(const std::string& x, const std::string& name);

  /// What names begin with from now on, a layer's; returns what it was.
  std::string enter(std::string scope) { return std::exchange(scope_, std::move(scope)); }
  const std::string& scope() const { return scope_; }
  /// A name that nothing has yet.
  std::string fresh(const std::string& hint);

  /// Nodes go into a body until end_body(). It sees all values that exist.
  void begin_body();
  /// `inputs` and `outputs`: names, and the types of what they stand for.
  using Typed = std::vector<std::pair<std::string, data::TensorSpec>>;
  Body end_body(const Typed& inputs, const Typed& outputs);

  /// Of the model. Errors: Unimplemented for strings.
  void add_input(const std::string& name, const data::TensorSpec& spec);
  void add_output(const std::string& name, const data::TensorSpec& spec);
  /// The file. Errors: Unimplemented for a model of 2 GB, for which messages end.
  std::string finish(const std::string& name) const;

 private:
  struct Nodes {
    std::vector<Message> messages;
  };

  std::string scope_;
  std::map<std::string, int> taken_;
  std::vector<Nodes> bodies_;  // the last is the one that nodes go into
  std::vector<Message> constants_, inputs_, outputs_;
  std::unordered_multimap<std::size_t, std::pair<Tensor, std::string>> known_;  // by their hash
};

}  // namespace cohort::keras::internal::onnx
