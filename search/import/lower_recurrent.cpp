// GRU and RNN, unrolled into products and gates, which share their weights. LSTM only where the operator lstm does not
// do: of several sequences of each sample (words of letters, chunks of a signal), with peepholes.
#include "search/import/lowering.h"

namespace ff::importing {
namespace {

// One direction's weights, as products want them: [in, gates * hidden] and so on; biases "" where there are none.
struct Direction {
  std::string weight, recurrent, bias, recurrent_bias;
  std::string peepholes{};  // [3 * hidden], for the gates i, o, f
};

struct State {
  std::string h{}, c{};  // c: of an LSTM
};

struct Layer {
  int64_t length, batch, hidden, directions, gates;
  std::string mode;
};

Layer layer_of(Lowering& l, int64_t gates) {
  const Shape x = l.shape(l.input(0)), w = l.shape(l.input(1)), r = l.shape(l.input(2));
  if (x.size() != 3 || w.size() != 3 || r.size() != 3 || w[1] != gates * r[2] || r[1] != gates * r[2] || w[2] != x[2])
    l.fail("has shapes " + to_string(x) + ", " + to_string(w) + ", " + to_string(r));
  for (const size_t i : {1u, 2u, 3u})
    if (l.node.has_input(i) && !l.constant(l.input(i))) l.fail("has weights that are no constants");
  if (l.model.integer(l.node, "layout", 0) != 0) l.fail("has layout 1, which is not understood");
  if (l.node.attributes.count("clip")) l.fail("has an attribute clip, which is not understood");
  if (l.node.has_input(4)) {
    const Constant* lengths = l.constant(l.input(4));
    if (!lengths) l.fail("has sequences of different lengths, which is not understood");
    for (int64_t i = 0; i < lengths->elements(); ++i)
      if (lengths->as_integers()[i] != x[0]) l.fail("has sequences of different lengths, which is not understood");
  }
  return {x[0], x[1], r[2], w[0], gates, l.model.text(l.node, "direction", "forward")};
}

Direction direction_of(Lowering& l, const Layer& layer, int64_t d) {
  const auto matrix = [&](size_t input) {
    const std::string own = l.slice(l.input(input), 0, d, d + 1);
    const Shape shape = l.shape(own);
    return l.transpose(l.reshape(own, {shape[1], shape[2]}), {1, 0});
  };
  Direction result{matrix(1), matrix(2), "", ""};
  if (l.node.op == "LSTM" && l.node.has_input(7))
    result.peepholes = l.reshape(l.slice(l.input(7), 0, d, d + 1), {3 * layer.hidden});
  if (!l.node.has_input(3)) return result;
  const int64_t size = layer.gates * layer.hidden;
  const std::string both = l.reshape(l.slice(l.input(3), 0, d, d + 1), {2 * size});
  for (const int half : {0, 1}) {
    const std::string bias = l.slice(both, 0, half * size, (half + 1) * size);
    if (!is_zero(*l.constant(bias))) (half ? result.recurrent_bias : result.bias) = bias;
  }
  return result;
}

std::string linear(Lowering& l, const std::string& x, const std::string& weight, const std::string& bias) {
  return bias.empty() ? l.emit("MatMul", {x, weight}) : l.emit("Linear", {x, weight, bias});
}

// One step: from what the input gives [batch, gates * hidden] and the state before to the state.
using Step = State (*)(Lowering&, const Layer&, const Direction&, const std::string&, const State&);

// c' = f c + i tanh(g), h' = o tanh(c'). Gates come as i, o, f, g; peepholes add c to i and f, c' to o.
State lstm_step(Lowering& l, const Layer& layer, const Direction& d, const std::string& x, const State& before) {
  const int64_t n = layer.hidden;
  const std::string all = l.emit("Add", {x, linear(l, before.h, d.recurrent, d.recurrent_bias)});
  const auto gate = [&](int64_t i, const char* function, const std::string& seen) {
    std::string sum = l.slice(all, 1, i * n, (i + 1) * n);
    if (!d.peepholes.empty() && i < 3)
      sum = l.emit("Add", {sum, l.emit("Mul", {seen, l.slice(d.peepholes, 0, i * n, (i + 1) * n)})});
    return l.emit(function, {sum});
  };
  State after;
  after.c = l.emit("Add", {l.emit("Mul", {gate(2, "Sigmoid", before.c), before.c}),
                           l.emit("Mul", {gate(0, "Sigmoid", before.c), gate(3, "Tanh", "")})});
  after.h = l.emit("Mul", {gate(1, "Sigmoid", after.c), l.emit("Tanh", {after.c})});
  return after;
}

// h' = (1 - z) n + z h, as n + z (h - n). Gates come as z, r, n.
State gru_step(Lowering& l, const Layer& layer, const Direction& d, const std::string& x, const State& before) {
  const int64_t n = layer.hidden;
  const std::string& h = before.h;
  const auto part = [&](const std::string& value, int axis, int64_t begin, int64_t end) {
    return value.empty() ? "" : l.slice(value, axis, begin * n, end * n);
  };
  const bool reset_after = l.model.integer(l.node, "linear_before_reset", 0) != 0;
  std::string of_gates, candidate;
  if (reset_after) {
    const std::string all = linear(l, h, d.recurrent, d.recurrent_bias);
    of_gates = part(all, 1, 0, 2);
    candidate = part(all, 1, 2, 3);
  } else {
    of_gates = linear(l, h, part(d.recurrent, 1, 0, 2), part(d.recurrent_bias, 0, 0, 2));
  }
  const std::string gates = l.emit("Sigmoid", {l.emit("Add", {part(x, 1, 0, 2), of_gates})});
  const std::string z = part(gates, 1, 0, 1), r = part(gates, 1, 1, 2);
  if (reset_after) candidate = l.emit("Mul", {r, candidate});
  else candidate = linear(l, l.emit("Mul", {r, h}), part(d.recurrent, 1, 2, 3), part(d.recurrent_bias, 0, 2, 3));
  const std::string next = l.emit("Tanh", {l.emit("Add", {part(x, 1, 2, 3), candidate})});
  return {l.emit("Add", {next, l.emit("Mul", {z, l.emit("Sub", {h, next})})})};
}

// The activation's names, which the reader keeps as one text with commas.
State rnn_step(Lowering& l, const Layer&, const Direction& d, const std::string& x, const State& before) {
  const std::string names = l.model.text(l.node, "activations", "Tanh");
  const std::string name = names.substr(0, names.find(','));
  if ((name != "Tanh" && name != "Relu") || (names != name && names != name + "," + name))
    l.fail("has the activations " + names + ", expected Tanh or Relu");
  return {l.emit(name, {l.emit("Add", {x, linear(l, before.h, d.recurrent, d.recurrent_bias)})})};
}

void unroll(Lowering& l, const Layer& layer, Step step) {
  Vector<std::string> all, last, last_c;
  for (int64_t d = 0; d < layer.directions; ++d) {
    const Direction direction = direction_of(l, layer, d);
    const std::string x = linear(l, l.input(0), direction.weight, direction.bias);  // [length, batch, gates * hidden]
    const Vector<std::string> steps =
        layer.length == 1 ? Vector<std::string>{x}
                          : l.emit_all("Split", {x}, {{"axis", int64_t{0}}}, static_cast<int>(layer.length));
    State state;
    const auto initial = [&](size_t input) {
      const Constant* constant = l.node.has_input(input) ? l.constant(l.input(input)) : nullptr;
      return !l.node.has_input(input) || (constant && is_zero(*constant))
                 ? ""
                 : l.reshape(l.slice(l.input(input), 0, d, d + 1), {layer.batch, layer.hidden});
    };
    state.h = initial(5);
    if (l.node.op == "LSTM") state.c = initial(6);
    Vector<std::string> states(layer.length);
    for (int64_t t = 0; t < layer.length; ++t) {
      const int64_t at = layer.mode == "reverse" || d == 1 ? layer.length - 1 - t : t;
      const std::string own = l.reshape(steps[at], {layer.batch, layer.gates * layer.hidden});
      for (std::string* zeros : {&state.h, &state.c})
        if (zeros->empty() && (zeros == &state.h || l.node.op == "LSTM"))
          *zeros = l.emit("Mul", {l.slice(own, 1, 0, layer.hidden), l.number(0)});
      state = step(l, layer, direction, own, state);
      states[at] = l.reshape(state.h, {layer.batch, 1, layer.hidden});
    }
    last.push_back(l.reshape(state.h, {layer.batch, 1, layer.hidden}));
    if (l.node.op == "LSTM") last_c.push_back(l.reshape(state.c, {layer.batch, 1, layer.hidden}));
    all.push_back(l.reshape(l.concat(states, 1), {layer.batch, layer.length, 1, layer.hidden}));
  }
  l.give(0, l.transpose(l.concat(all, 2), {1, 2, 0, 3}));
  l.give(1, l.transpose(l.concat(last, 1), {1, 0, 2}));
  if (!last_c.empty()) l.give(2, l.transpose(l.concat(last_c, 1), {1, 0, 2}));
}

}  // namespace

bool lower_gru(Lowering& l) {
  const std::string activations = l.model.text(l.node, "activations", "");
  if (!activations.empty() && activations != "Sigmoid,Tanh" && activations != "Sigmoid,Tanh,Sigmoid,Tanh")
    l.fail("has the activations " + activations + ", expected Sigmoid and Tanh");
  unroll(l, layer_of(l, 3), gru_step);
  return true;
}

// Of as many sequences as samples and without peepholes, it is an operator of ours.
bool lower_lstm(Lowering& l) {
  const Shape x = l.shape(l.input(0));
  const bool several = l.model.inputs.empty() || x.size() != 3 ||
                       x[1] != l.model.shapes.at(l.model.inputs[0].name)[l.model.inputs[0].sample_axis];
  if (x.size() != 3 || (!several && !l.node.has_input(7))) return false;
  const std::string activations = l.model.text(l.node, "activations", "");
  if (!activations.empty() && activations != "Sigmoid,Tanh,Tanh" &&
      activations != "Sigmoid,Tanh,Tanh,Sigmoid,Tanh,Tanh")
    l.fail("has the activations " + activations + ", expected Sigmoid, Tanh, Tanh");
  if (l.model.integer(l.node, "input_forget", 0) != 0)
    l.fail("has the attribute input_forget, which is not understood");
  if (l.node.has_input(7) && !l.constant(l.input(7))) l.fail("has peepholes that are no constants");
  unroll(l, layer_of(l, 4), lstm_step);
  return true;
}

bool lower_rnn(Lowering& l) {
  unroll(l, layer_of(l, 1), rnn_step);
  return true;
}

}  // namespace ff::importing
