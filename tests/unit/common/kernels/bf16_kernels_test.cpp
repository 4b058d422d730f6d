// Kernels of operators in bf16 against loops in double precision on the same rounded operands: native ones where the
// processor has them, else those by conversion.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "common/graph.h"
#include "common/kernels/bf16.h"
#include "common/kernels/converted_kernel.h"
#include "common/operators/conversion.h"

using namespace ff;

namespace {

// Values that a bf16 has, so that operands are exact; `as_bf16` are the same as they lie.
struct RoundedValues {
  explicit RoundedValues(int64_t elements, double phase) {
    for (int64_t i = 0; i < elements; ++i) {
      as_bf16.push_back(bf16_of(static_cast<float>(std::sin(phase + 1.7 * static_cast<double>(i)))));
      values.push_back(static_cast<double>(f32_of(as_bf16.back())));
      as_f32.push_back(f32_of(as_bf16.back()));
    }
  }
  Vector<double> values;
  Vector<Bf16> as_bf16;
  Vector<float> as_f32;
};

// A sum of `terms` products below 1 in f32, rounded to bf16 unless it is a parameter's gradient.
void check_near(double found, double expected, int64_t terms, bool is_f32) {
  const double bound = static_cast<double>(terms) * 1e-6 + (is_f32 ? 0 : std::abs(expected) / 256);
  CHECK(std::abs(found - expected) <= bound);
}

double at(const Vector<Bf16>& values, int64_t i) { return static_cast<double>(f32_of(values[i])); }

// Operators 0: reads the graph's own input, f32; 1 and 2 read bf16.
Graph graph_of_products(const std::string& second) {
  return parse_graph(
      parse_json(R"({"format":"ffgraph/1","name":"g","batch_size":3,"inputs":[
      {"name":"x","shape":["batch",5,8],"dtype":"f32"},{"name":"y","shape":["batch",5],"dtype":"i32"}],"operators":[
      {"name":"first","type":"linear","inputs":["x"],"attributes":{"out_features":8}},)" +
                     second + R"(,{"name":"loss","type":"softmax_cross_entropy","inputs":["second","y"]}]})",
                 "g"),
      0, DataType::bf16);
}

class TypedKernel {
 public:
  TypedKernel(const OperatorDefinition& definition, const Block& part, const Vector<bool>& gradients)
      : backend_(make_cpu_backend(1)),
        scratch_(backend_->allocate(conversion_bytes(definition, part, true, gradients))),
        kernel_(make_typed_kernel(*backend_, {definition, part, gradients, "test", 1}, scratch_)) {
    CHECK(kernel_->workspace_bytes() == definition.workspace_bytes(part));
  }
  ~TypedKernel() {
    kernel_.reset();
    backend_->release(scratch_);
  }
  Kernel& kernel() { return *kernel_; }

 private:
  std::unique_ptr<Backend> backend_;
  void* scratch_;
  std::unique_ptr<Kernel> kernel_;
};

float* place(Vector<Bf16>& values) { return reinterpret_cast<float*>(values.data()); }
const float* place(const RoundedValues& values) { return reinterpret_cast<const float*>(values.as_bf16.data()); }

// rows 15, in 8, out as the operator says. `f32_input`: of the graph; `masters`: weights are f32 too.
void check_linear(const Operator& op, bool relu, bool bias, bool f32_input, bool masters) {
  CAPTURE(op.name, relu, bias, f32_input, masters);
  const OperatorDefinition& definition = *op.definition;
  const int64_t rows = 15, in = 8, out = definition.output_block(0, definition.whole())[2].size();
  const RoundedValues x(rows * in, 0.3), w(out * in, 0.9), b(out, 0.1), gradient(rows * out, 0.5);
  Vector<Bf16> y(rows * out, 0), dx(rows * in, 0);
  Vector<float> dw(out * in, 1.0f), db(out, 1.0f);
  TypedKernel typed(definition, definition.whole(), {!f32_input});
  KernelArguments arguments;
  arguments.inputs = {f32_input ? static_cast<const void*>(x.as_f32.data()) : x.as_bf16.data()};
  const auto parameter = [&](const RoundedValues& values) { return masters ? values.as_f32.data() : place(values); };
  arguments.parameters = {parameter(w)};
  arguments.parameter_gradients = {dw.data()};
  if (bias) arguments.parameters.push_back(parameter(b)), arguments.parameter_gradients.push_back(db.data());
  arguments.masters.assign(arguments.parameters.size(), masters ? uint8_t{1} : uint8_t{0});
  arguments.outputs = {place(y)};
  typed.kernel().forward(arguments);
  Vector<double> masked;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t o = 0; o < out; ++o) {
      double sum = bias ? b.values[o] : 0;
      for (int64_t i = 0; i < in; ++i) sum += x.values[r * in + i] * w.values[o * in + i];
      if (relu) sum = std::max(0.0, sum);
      check_near(at(y, r * out + o), sum, in + 1, false);
      masked.push_back(relu && at(y, r * out + o) <= 0 ? 0 : gradient.values[r * out + o]);
    }
  arguments.output_gradients = {place(gradient)};
  arguments.input_gradients = {f32_input ? nullptr : place(dx)};
  for (const bool accumulates : {false, true}) {
    arguments.accumulate.assign(arguments.parameters.size(), accumulates ? uint8_t{1} : uint8_t{0});
    typed.kernel().backward(arguments);
    const double times = accumulates ? 2 : 1;
    for (int64_t o = 0; o < out; ++o) {
      double of_bias = 0;
      for (int64_t r = 0; r < rows; ++r) of_bias += masked[r * out + o];
      if (bias) check_near(static_cast<double>(db[o]), times * of_bias, 2 * rows, true);
      for (int64_t i = 0; i < in; ++i) {
        double sum = 0;
        for (int64_t r = 0; r < rows; ++r) sum += masked[r * out + o] * x.values[r * in + i];
        check_near(static_cast<double>(dw[o * in + i]), times * sum, 2 * rows, true);
      }
    }
  }
  for (int64_t r = 0; r < (f32_input ? 0 : rows); ++r)
    for (int64_t i = 0; i < in; ++i) {
      double sum = 0;
      for (int64_t o = 0; o < out; ++o) sum += masked[r * out + o] * w.values[o * in + i];
      check_near(at(dx, r * in + i), sum, out, false);
    }
}

// By definition: the output and the two gradients are sums over (first element, second element, output element).
using Terms = std::function<void(const std::function<void(int64_t, int64_t, int64_t)>&)>;
void check_two_operands(const OperatorDefinition& definition, bool parameter, double scale, const Terms& terms) {
  CAPTURE(definition.type());
  const Block whole = definition.whole();
  const int64_t a_size = definition.input_block(0, whole).volume(), c_size = definition.output_block(0, whole).volume(),
                b_size = (parameter ? definition.parameter_block(0, whole) : definition.input_block(1, whole)).volume();
  const RoundedValues a(a_size, 0.3), b(b_size, 0.9), gradient(c_size, 0.5);
  Vector<Bf16> c(c_size, 0), da(a_size, 0), db(b_size, 0);
  Vector<float> dw(b_size, 1.0f);
  Vector<double> expected_c(c_size, 0.0), expected_da(a_size, 0.0), expected_db(b_size, 0.0);
  terms([&](int64_t i, int64_t j, int64_t k) {
    expected_c[k] += scale * a.values[i] * b.values[j];
    expected_da[i] += scale * gradient.values[k] * b.values[j];
    expected_db[j] += scale * gradient.values[k] * a.values[i];
  });
  TypedKernel typed(definition, whole, parameter ? Vector<bool>{true} : Vector<bool>{true, true});
  KernelArguments arguments;
  arguments.inputs = {a.as_bf16.data()};
  if (parameter) arguments.parameters = {place(b)}, arguments.parameter_gradients = {dw.data()};
  else arguments.inputs.push_back(b.as_bf16.data());
  arguments.outputs = {place(c)};
  typed.kernel().forward(arguments);
  arguments.output_gradients = {place(gradient)};
  arguments.input_gradients = {place(da)};
  if (!parameter) arguments.input_gradients.push_back(place(db));
  for (const bool accumulates : {false, true}) {
    if (parameter) arguments.accumulate = {accumulates ? uint8_t{1} : uint8_t{0}};
    typed.kernel().backward(arguments);
    for (const int64_t j : dw.indices())
      if (parameter) check_near(static_cast<double>(dw[j]), (accumulates ? 2 : 1) * expected_db[j], 2 * c_size, true);
  }
  for (const int64_t k : c.indices()) check_near(at(c, k), expected_c[k], 16, false);
  for (const int64_t i : da.indices()) check_near(at(da, i), expected_da[i], 16, false);
  for (const int64_t j : db.indices())
    if (!parameter) check_near(at(db, j), expected_db[j], 16, false);
}

// Beside the kernel in f32 on the same operands. In bf16 the output and the gradients of queries, keys, values and
// inputs are rounded, each by at most 2^-9 of its size; what is rounded is added up by products, whose result changes
// by as much of its norm, but for sums that cancel.
void check_attention(const std::string& attributes, bool bias, bool f32_input, bool masters, Interval queries) {
  CAPTURE(attributes, f32_input, masters, queries.begin, queries.end);
  const auto graph_in = [&](DataType type) {
    return parse_graph(parse_json(R"({"format":"ffgraph/1","name":"g","batch_size":3,"inputs":[
        {"name":"x","shape":["batch",5,8],"dtype":"f32"},{"name":"y","shape":["batch",5],"dtype":"i32"}],"operators":[
        {"name":"first","type":"linear","inputs":["x"],"attributes":{"out_features":8}},
        {"name":"second","type":"multi_head_attention","inputs":[")" +
                                      std::string(f32_input ? "x" : "first") + R"("],"attributes":{)" + attributes +
                                      R"(}},{"name":"loss","type":"softmax_cross_entropy","inputs":["second","y"]}]})",
                                  "g"),
                       0, type);
  };
  const Graph bf16 = graph_in(DataType::bf16), f32 = graph_in(DataType::f32);
  const OperatorDefinition &definition = *bf16.operators[1].definition, &reference = *f32.operators[1].definition;
  Block part = definition.whole();
  part[1] = queries;
  const int64_t elements = definition.input_block(0, part).volume(),
                outputs = definition.output_block(0, part).volume();
  const int parameters = definition.parameters().count();
  const RoundedValues x(elements, 0.3), gradient(outputs, 0.5);
  Vector<RoundedValues> weights;
  for (const int p : definition.parameters().indices())
    weights.emplace_back(definition.parameter_block(p, part).volume(), 0.1 + p);
  CHECK(parameters == (bias ? 2 : 1) * (attributes.find("key_value_heads") == std::string::npos ? 1 : 2));

  KernelArguments in_f32, in_bf16;
  Vector<float> y(outputs, 0), dx(elements, 0);
  Vector<Bf16> y_bf16(outputs, 0), dx_bf16(elements, 0);
  Vector<Vector<float>> gradients, gradients_bf16;
  for (const RoundedValues& weight : weights) {
    gradients.emplace_back(weight.values.size(), 1.0f);
    in_f32.parameters.push_back(weight.as_f32.data());
    in_bf16.parameters.push_back(masters ? weight.as_f32.data() : place(weight));
  }
  gradients_bf16 = gradients;
  for (const int p : gradients.indices()) {
    in_f32.parameter_gradients.push_back(gradients[p].data());
    in_bf16.parameter_gradients.push_back(gradients_bf16[p].data());
  }
  in_f32.masters.assign(parameters, 0), in_bf16.masters.assign(parameters, masters ? uint8_t{1} : uint8_t{0});
  in_f32.inputs = {x.as_f32.data()},
  in_bf16.inputs = {f32_input ? static_cast<const void*>(x.as_f32.data()) : x.as_bf16.data()};
  in_f32.outputs = {y.data()}, in_bf16.outputs = {place(y_bf16)};
  TypedKernel typed(definition, part, {!f32_input}), plain(reference, part, {!f32_input});
  typed.kernel().forward(in_bf16);
  plain.kernel().forward(in_f32);
  const auto check_alike = [](const auto& found, const auto& expected, const auto& value) {
    double difference = 0, size = 0;
    for (const int64_t i : expected.indices()) {
      const double wanted = static_cast<double>(expected[i]);
      difference += (value(found[i]) - wanted) * (value(found[i]) - wanted), size += wanted * wanted;
    }
    CHECK(size > 0);
    CHECK(std::sqrt(difference / size) <= 1.0 / 128);
  };
  const auto of_bf16 = [](Bf16 value) { return static_cast<double>(f32_of(value)); };
  check_alike(y_bf16, y, of_bf16);
  // The same outputs for both, so that backward is compared alone.
  for (const int64_t i : y.indices()) y[i] = f32_of(y_bf16[i]);
  in_f32.output_gradients = {gradient.as_f32.data()}, in_bf16.output_gradients = {place(gradient)};
  in_f32.input_gradients = {f32_input ? nullptr : dx.data()};
  in_bf16.input_gradients = {f32_input ? nullptr : place(dx_bf16)};
  for (const bool accumulates : {false, true}) {
    for (KernelArguments* arguments : {&in_f32, &in_bf16})
      arguments->accumulate.assign(parameters, accumulates ? uint8_t{1} : uint8_t{0});
    plain.kernel().backward(in_f32);
    typed.kernel().backward(in_bf16);
    for (const int p : gradients.indices())
      check_alike(gradients_bf16[p], gradients[p], [](float value) { return static_cast<double>(value); });
  }
  if (!f32_input) check_alike(dx_bf16, dx, of_bf16);
}

}  // namespace

TEST_CASE("linear in bf16") {
  for (const bool bias : {true, false})
    for (const bool relu : {true, false}) {
      const Graph graph = graph_of_products(
          std::string(R"({"name":"second","type":"linear","inputs":["first"],"attributes":{"out_features":7,"bias":)") +
          (bias ? "true" : "false") + (relu ? R"(,"activation":"relu"}})" : "}}"));
      for (const bool masters : {true, false}) check_linear(graph.operators[1], relu, bias, false, masters);
      check_linear(graph.operators[0], false, true, true, false);
    }
}

TEST_CASE("multi-head attention in bf16") {
  for (const bool masters : {true, false})
    for (const bool f32_input : {true, false})
      for (const Interval queries : {Interval{0, 5}, Interval{0, 2}, Interval{2, 5}}) {
        check_attention(R"("heads":2)", true, f32_input, masters, queries);
        check_attention(R"("heads":2,"causal":true)", true, f32_input, masters, queries);
        check_attention(R"("heads":4,"key_value_heads":2,"causal":true,"rotary_base":100,"bias":false)", false,
                        f32_input, masters, queries);
      }
}

// A table [4, 3] for tokens 2, 0, 2: by hand.
TEST_CASE("an embedding in bf16") {
  const Graph graph = parse_graph(parse_json(R"({"format":"ffgraph/1","name":"g","batch_size":3,"inputs":[
      {"name":"t","shape":["batch"],"dtype":"i32"},{"name":"y","shape":["batch"],"dtype":"i32"}],"operators":[
      {"name":"e","type":"embedding","inputs":["t"],"attributes":{"vocabulary":4,"channels":3}},
      {"name":"loss","type":"softmax_cross_entropy","inputs":["e","y"]}]})",
                                             "g"),
                                  0, DataType::bf16);
  const OperatorDefinition& embedding = *graph.operators[0].definition;
  const RoundedValues table(12, 0.2), gradient(9, 0.4);
  Vector<int32_t> tokens{2, 0, 2};
  for (const bool masters : {true, false}) {
    Vector<Bf16> output(9, 1);
    Vector<float> sums(12, 5.0f);
    TypedKernel typed(embedding, embedding.whole(), {false});
    KernelArguments arguments;
    arguments.inputs = {tokens.data()};
    arguments.parameters = {masters ? table.as_f32.data() : place(table)};
    arguments.masters = {masters ? uint8_t{1} : uint8_t{0}};
    arguments.outputs = {place(output)};
    typed.kernel().forward(arguments);
    for (int t = 0; t < 3; ++t)
      for (int c = 0; c < 3; ++c) CHECK(output[3 * t + c] == table.as_bf16[3 * tokens[t] + c]);
    arguments.output_gradients = {place(gradient)};
    arguments.input_gradients = {nullptr};
    arguments.parameter_gradients = {sums.data()};
    for (const int times : {1, 2}) {
      arguments.accumulate = {times == 2 ? uint8_t{1} : uint8_t{0}};
      typed.kernel().backward(arguments);
      for (int c = 0; c < 3; ++c) {
        CHECK(sums[c] == static_cast<float>(times) * gradient.as_f32[3 + c]);
        check_near(static_cast<double>(sums[6 + c]), times * (gradient.values[c] + gradient.values[6 + c]), 4, true);
        CHECK(sums[3 + c] == 0);
      }
    }
    tokens[1] = 4;
    CHECK_THROWS_AS(typed.kernel().forward(arguments), InputError);
    tokens[1] = 0;
  }
}

TEST_CASE("products of two tensors in bf16") {
  const auto second = [](const std::string& text) { return graph_of_products(R"({"name":"second",)" + text + "}"); };
  // [3, 5, 8] times itself, transposed: rows l and m of sample s.
  const Graph transposed =
      second(R"("type":"matmul","inputs":["first","first"],"attributes":{"transpose":true,"scale":0.5})");
  check_two_operands(*transposed.operators[1].definition, false, 0.5, [](const auto& add) {
    for (int64_t s = 0; s < 3; ++s)
      for (int64_t l = 0; l < 5; ++l)
        for (int64_t m = 0; m < 5; ++m)
          for (int64_t k = 0; k < 8; ++k) add((s * 5 + l) * 8 + k, (s * 5 + m) * 8 + k, (s * 5 + l) * 5 + m);
  });
  const Graph with_parameter =
      second(R"("type":"einsum","inputs":["first"],"attributes":{"equation":"BLK,KM->BLM","sizes":{"M":6}})");
  check_two_operands(*with_parameter.operators[1].definition, true, 1, [](const auto& add) {
    for (int64_t r = 0; r < 15; ++r)
      for (int64_t m = 0; m < 6; ++m)
        for (int64_t k = 0; k < 8; ++k) add(r * 8 + k, k * 6 + m, r * 6 + m);
  });
}
