// SPDX-License-Identifier: Apache-2.0
//
// Recurrent layers: a Scan over the steps, whose body is a step of the cell. What a step needs of
// its input alone is computed for all of them ahead of it.
#include "cohort/keras/layers/recurrent.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "cohort/keras/onnx/convolution.h"

namespace cohort::keras::internal::onnx {
namespace {

constexpr int64_t kBackwardsToTheEnd = std::numeric_limits<int64_t>::min();

// A cell as nodes.
struct Cell {
  std::string of_inputs;  // what the input gives to each step, [b, t, ...]
  /// The new states, of which the first is the output.
  std::function<Names(const std::string& of_input, const Names& states)> step;
};

struct Gates {
  const Call& c;
  const RNNCellBase& cell;
  Config config;  // the cell's, or of ConvLSTM, whose cell is no class of Keras's, the layer's

  std::string weight(const char* name) const { return c.g.constant(weight_of(cell, name), name); }
  Tensor tensor(const char* name) const { return weight_of(cell, name); }
  bool has_bias() const { return config.boolean("use_bias"); }
  std::string gate(const std::string& x) const {
    return activate(c, config.at("recurrent_activation"), x);
  }
  std::string activation(const std::string& x) const {
    return activate(c, config.at("activation"), x);
  }
  Names parts(const std::string& x, int64_t count, int64_t axis = -1) const {
    return c.g.node("Split", {x}, static_cast<std::size_t>(count),
                    {{"axis", axis}, {"num_outputs", count}});
  }
  std::string of_inputs(const std::string& x, const Tensor& bias) const {
    const std::string y = c.g("MatMul", {x, weight("kernel")});
    return bias.defined() ? c.g("Add", {y, c.g.constant(bias, "bias")}) : y;
  }
  // Keras's order: input, forget, candidate, output.
  Names lstm_states(const std::string& z, const std::string& memory, int64_t axis = -1) const {
    const Names part = parts(z, 4, axis);
    const std::string kept = c.g("Mul", {gate(part[1]), memory});
    const std::string added = c.g("Mul", {gate(part[0]), activation(part[2])});
    const std::string next = c.g("Add", {kept, added});
    return {c.g("Mul", {gate(part[3]), activation(next)}), next};
  }
};

Cell simple_cell(const Gates& of, const std::string& x) {
  const std::string recurrent = of.weight("recurrent_kernel");
  const auto step = [of, recurrent](const std::string& z, const Names& h) -> Names {
    return {of.activation(of.c.g("Add", {z, of.c.g("MatMul", {h[0], recurrent})}))};
  };
  return {of.of_inputs(x, of.has_bias() ? of.tensor("bias") : Tensor()), step};
}

Cell lstm_cell(const Gates& of, const std::string& x) {
  const std::string recurrent = of.weight("recurrent_kernel");
  const auto step = [of, recurrent](const std::string& z, const Names& h) {
    return of.lstm_states(of.c.g("Add", {z, of.c.g("MatMul", {h[0], recurrent})}), h[1]);
  };
  return {of.of_inputs(x, of.has_bias() ? of.tensor("bias") : Tensor()), step};
}

// z * old + (1 - z) * candidate.
Names mixed(Writer& g, const std::string& z, const std::string& old, const std::string& candidate) {
  const std::string rest = g("Sub", {g.number(1), z});
  return {g("Add", {g("Mul", {z, old}), g("Mul", {rest, candidate})})};
}

Cell gru_cell(const Gates& of, const std::string& x) {
  const Tensor bias = of.has_bias() ? of.tensor("bias") : Tensor();
  const Tensor kernel = of.tensor("recurrent_kernel");
  if (of.config.boolean("reset_after")) {
    const std::string recurrent = of.c.g.constant(kernel, "recurrent_kernel");
    const std::string inner_bias =
        bias.defined() ? of.c.g.constant(bias[1], "recurrent_bias") : std::string();
    const auto step = [of, recurrent, inner_bias](const std::string& z, const Names& h) {
      Writer& g = of.c.g;
      std::string inner = g("MatMul", {h[0], recurrent});
      if (!inner_bias.empty()) inner = g("Add", {inner, inner_bias});
      const Names from_input = of.parts(z, 3), from_state = of.parts(inner, 3);
      const auto sum = [&](std::size_t i) { return g("Add", {from_input[i], from_state[i]}); };
      const std::string reset = g("Mul", {of.gate(sum(1)), from_state[2]});
      return mixed(g, of.gate(sum(0)), h[0], of.activation(g("Add", {from_input[2], reset})));
    };
    return {of.of_inputs(x, bias.defined() ? bias[0] : bias), step};
  }
  const int64_t units = kernel.size(0);
  const std::string gates = of.c.g.constant(kernel.narrow(1, 0, 2 * units), "recurrent_gates");
  const std::string last = of.c.g.constant(kernel.narrow(1, 2 * units, units), "recurrent_kernel");
  const auto step = [of, gates, last](const std::string& z, const Names& h) {
    Writer& g = of.c.g;
    const Names from_input = of.parts(z, 3);
    const Names from_state = of.parts(g("MatMul", {h[0], gates}), 2);
    const auto sum = [&](std::size_t i) { return g("Add", {from_input[i], from_state[i]}); };
    const std::string reset = g("Mul", {of.gate(sum(1)), h[0]});
    const std::string candidate =
        of.activation(g("Add", {from_input[2], g("MatMul", {reset, last})}));
    return mixed(g, of.gate(sum(0)), h[0], candidate);
  };
  return {of.of_inputs(x, bias), step};
}

// [k..., in, out] as [out, in, k...].
std::string filters(const Gates& of, const char* name) {
  const Tensor kernel = of.tensor(name);
  std::vector<int64_t> order = {kernel.dim() - 1, kernel.dim() - 2};
  for (int64_t i = 0; i < kernel.dim() - 2; ++i) order.push_back(i);
  return of.c.g.constant(kernel.permute(order), name);
}

// Of pictures as inputs and states: `shape` is that of [b, t, ...].
Cell conv_lstm_cell(const Gates& of, const std::string& x, const Shape& shape) {
  const std::size_t space = shape.size() - 3;
  const bool first = of.config.text("data_format") == "channels_first";
  const auto numbers = [&](const char* name) {
    std::vector<int64_t> out;
    for (const Config& one : of.config.at(name).list()) out.push_back(one.integer());
    return out;
  };
  const Window window{.sizes = numbers("kernel_size"),
                      .strides = numbers("strides"),
                      .dilations = numbers("dilation_rate"),
                      .padding = of.config.text("padding")};
  const Window same{
      .sizes = window.sizes, .strides = std::vector<int64_t>(space, 1), .padding = "same"};
  const auto start = shape.begin() + (first ? 3 : 2);
  const Shape sizes(start, start + static_cast<std::ptrdiff_t>(space));
  const auto convolved = [of, first, space](const std::string& rows, const std::string& kernel,
                                            const Attributes& how) {
    if (first) return of.c.g("Conv", {rows, kernel}, how);
    const std::string y = of.c.g("Conv", {channels_to_front(of.c, rows, space + 2), kernel}, how);
    return channels_to_back(of.c, y, space + 2);
  };
  const int64_t channels = first ? 1 : static_cast<int64_t>(space) + 1;
  std::string all =
      convolved(join_steps(of.c, x), filters(of, "kernel"), window_attributes(of.c, window, sizes));
  if (of.has_bias()) {
    Shape broad(space + 2, 1);
    broad[static_cast<std::size_t>(channels)] = -1;
    all = of.c.g("Add", {all, of.c.g.constant(of.tensor("bias").reshape(broad), "bias")});
  }
  const std::string recurrent = filters(of, "recurrent_kernel");
  const Attributes over_state = window_attributes(of.c, same, sizes);
  const auto step = [=](const std::string& z, const Names& h) {
    return of.lstm_states(of.c.g("Add", {z, convolved(h[0], recurrent, over_state)}), h[1],
                          channels);
  };
  return {split_steps(of.c, all, x), step};
}

struct Sequence {
  std::string x;  // [b, t, ...]
  Shape shape;
  std::string mask = {};
  Names states = {};  // before the first step; afterwards behind the last one
  bool backwards = false, zero_output_for_mask = false;
  Config of_layer = {};
};

Cell cell_of(const Call& c, const RNNCellBase& cell, const Sequence& s) {
  const std::string kind = cell.class_name();
  if (kind == "ConvLSTMCell") return conv_lstm_cell({c, cell, s.of_layer}, s.x, s.shape);
  const Gates of{c, cell, cell.get_config()};
  if (kind == "SimpleRNNCell") return simple_cell(of, s.x);
  if (kind == "LSTMCell") return lstm_cell(of, s.x);
  if (kind == "GRUCell") return gru_cell(of, s.x);
  c.refuse("with the cell " + kind);
}

struct Outputs {
  std::string all, last;
};

// [b, ...] as zeros, for a batch as large as that of x.
std::string zeros_for(const Call& c, const std::string& x, const Shape& state) {
  const std::vector<int64_t> sizes(state.begin() + 1, state.end());
  if (std::ranges::count(sizes, kUnknownDim) > 0) c.refuse("with states of unknown size");
  const std::string batch = slice(c, c.g("Shape", {x}), 0, 0, 1);
  const std::string shape = c.g("Concat", {batch, c.g.ints(sizes)}, {{"axis", int64_t{0}}});
  return c.g("Expand", {c.g.number(0), shape});
}

data::TensorSpec of_rank(std::size_t rank, DType dtype = kFloat32) {
  return {.shape = Shape(rank, kUnknownDim), .dtype = dtype};
}

// A step that does not count leaves the states, and gives the output before it again, or zeros.
Outputs run(const Call& c, const RNNCellBase& cell, Sequence& s) {
  Writer& g = c.g;
  const Cell nodes = cell_of(c, cell, s);
  const bool masked = !s.mask.empty();
  Shape one_step = s.shape;
  one_step.erase(one_step.begin() + 1);
  const std::vector<Shape> shapes = cell.state_shapes(one_step);
  const std::size_t rank = shapes[0].size();
  Names before = s.states;
  if (masked) before.push_back(zeros_for(c, s.x, shapes[0]));  // the output so far

  g.begin_body();
  Writer::Typed in, out;
  Names old;
  for (std::size_t i = 0; i < before.size(); ++i) {
    old.push_back(g.fresh("state"));
    in.emplace_back(old.back(), of_rank(rank));
  }
  const std::string z = g.fresh("step"), counts = g.fresh("counts");
  in.emplace_back(z, of_rank(rank));
  if (masked) in.emplace_back(counts, of_rank(1, kBool));
  Names next = nodes.step(z, Names(old.begin(), old.begin() + std::ssize(s.states)));
  std::string output = next[0];
  if (masked) {
    std::vector<int64_t> more;
    for (std::size_t axis = 1; axis < rank; ++axis) more.push_back(static_cast<int64_t>(axis));
    const std::string yes = g("Unsqueeze", {counts, g.ints(more)});
    output = g("Where", {yes, output, s.zero_output_for_mask ? g.number(0) : old.back()});
    for (std::size_t i = 0; i < next.size(); ++i) next[i] = g("Where", {yes, next[i], old[i]});
    next.push_back(output);
  }
  for (const std::string& state : next) {
    out.emplace_back(g("Identity", {state}), of_rank(rank));
  }
  out.emplace_back(g("Identity", {output}), of_rank(rank));
  const Body body = g.end_body(in, out);

  Names inputs = before;
  inputs.push_back(nodes.of_inputs);
  if (masked) inputs.push_back(s.mask);
  const std::vector<int64_t> along(masked ? 2 : 1, 1);
  const std::vector<int64_t> ways(along.size(), s.backwards ? 1 : 0);
  const Names all = g.node("Scan", inputs, next.size() + 1,
                           {{"body", body},
                            {"num_scan_inputs", static_cast<int64_t>(along.size())},
                            {"scan_input_axes", along},
                            {"scan_input_directions", ways},
                            {"scan_output_axes", std::vector<int64_t>{1}}});
  s.states.assign(all.begin(), all.begin() + std::ssize(s.states));
  return {all.back(), masked ? all[next.size() - 1] : all[0]};
}

// Cell by cell, each over the whole sequence.
Outputs run_all(const Call& c, const RNNCellBase& cell, Sequence& s) {
  if (cell.class_name() != "StackedRNNCells") return run(c, cell, s);
  Outputs out;
  Names states;
  auto given = s.states.begin();
  const std::vector<Layer>& cells = cell.sub_layers();
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto& own = dynamic_cast<const RNNCellBase&>(cells[i].base());
    const auto count = std::ssize(own.state_size());
    Sequence part = s;
    part.states.assign(given, given + count);
    given += count;
    part.zero_output_for_mask = s.zero_output_for_mask && i + 1 == cells.size();
    out = run(c, own, part);
    states.insert(states.end(), part.states.begin(), part.states.end());
    // The outputs come in the order in which the steps were made.
    s.backwards = false;
    if (part.backwards && !s.mask.empty()) {
      s.mask = slice(c, s.mask, 1, -1, kBackwardsToTheEnd, -1);
    }
    Shape step = s.shape;
    step.erase(step.begin() + 1);
    step = own.output_shape(step);
    step.insert(step.begin() + 1, s.shape[1]);
    s.x = out.all;
    s.shape = step;
  }
  s.states = states;
  return out;
}

struct Ran {
  Value output;
  Values states;
};

Ran run_layer(const Call& c, const RecurrentBase& layer, const Values& initial) {
  const SequenceModes& modes = layer.modes();
  if (modes.stateful) c.refuse("that is stateful");
  Sequence s{.x = c.x(),
             .shape = c.shape(),
             .mask = c.in[0].mask,
             .backwards = modes.go_backwards,
             .zero_output_for_mask = modes.zero_output_for_mask,
             .of_layer = layer.get_config()};
  for (const Value& state : initial) s.states.push_back(state.name);
  if (s.states.empty()) {
    Shape step = s.shape;
    step.erase(step.begin() + 1);
    for (const Shape& shape : layer.cell().state_shapes(step)) {
      s.states.push_back(zeros_for(c, s.x, shape));
    }
  }
  const Outputs out = run_all(c, layer.cell(), s);
  Ran ran;
  ran.output.name = modes.return_sequences ? out.all : out.last;
  if (modes.return_sequences) ran.output.mask = c.in[0].mask;
  for (const std::string& state : s.states) ran.states.push_back(only(state)[0]);
  return ran;
}

// As arguments of the call, or behind the input.
Values initial_states(const Call& c) {
  if (!c.told.initial_state.empty()) return c.told.initial_state;
  return {c.in.begin() + 1, c.in.end()};
}

Values recurrent(const Call& c) {
  const auto& layer = dynamic_cast<const RecurrentBase&>(c.layer);
  Ran ran = run_layer(c, layer, initial_states(c));
  Values out(1, ran.output);
  if (layer.modes().return_state) out.insert(out.end(), ran.states.begin(), ran.states.end());
  return out;
}

Values bidirectional(const Call& c) {
  const auto side = [&](std::size_t i) -> const RecurrentBase& {
    return dynamic_cast<const RecurrentBase&>(c.layer.sub_layers().at(i).base());
  };
  const Values given = initial_states(c);
  const auto half = given.begin() + std::ssize(given) / 2;
  const SequenceModes& modes = side(0).modes();
  const Ran forward = run_layer(c, side(0), {given.begin(), half});
  Ran backward = run_layer(c, side(1), {half, given.end()});
  std::string& back = backward.output.name;
  if (modes.return_sequences) back = slice(c, back, 1, -1, kBackwardsToTheEnd, -1);
  const Config& mode = c.config.at("merge_mode");
  const Names both = {forward.output.name, back};
  Values out(1, forward.output);
  if (mode.is_null()) {
    out.push_back(backward.output);
  } else if (mode.text() == "concat") {
    out[0].name = c.g("Concat", both, {{"axis", int64_t{-1}}});
  } else {
    out[0].name = c.g(mode.text() == "sum" ? "Sum" : mode.text() == "mul" ? "Mul" : "Mean", both);
  }
  if (!modes.return_state) return out;
  out.insert(out.end(), forward.states.begin(), forward.states.end());
  out.insert(out.end(), backward.states.begin(), backward.states.end());
  return out;
}

}  // namespace

void add_recurrent(Conversions& all) {
  for (const char* name :
       {"RNN", "SimpleRNN", "LSTM", "GRU", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"}) {
    all[name] = {recurrent, true};
  }
  all["Bidirectional"] = {bidirectional, true};
}

}  // namespace cohort::keras::internal::onnx
