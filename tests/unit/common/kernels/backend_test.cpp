// What a backend does besides kernels: moving blocks, converting layouts, updating parameters.
#include <catch2/catch.hpp>
#include <random>

#include "common/graph.h"
#include "common/kernels/backend.h"
#include "common/operators/softmax.h"

using namespace ff;

namespace {

// Index of an element in the storage of a block: channels-last for rank 4.
size_t stored_index(const Block& block, const Vector<int64_t>& index) {
  const Vector<int> order = block.rank() == 4 ? Vector<int>{0, 2, 3, 1} : Vector<int>{0, 1, 2};
  int64_t at = 0;
  for (int i = 0; i < block.rank(); ++i) at = at * block[order[i]].size() + index[order[i]] - block[order[i]].begin;
  return static_cast<size_t>(at);
}

template <class Visit>
void for_each_index(const Block& block, const Visit& visit) {
  for (int64_t i = 0; i < block.volume(); ++i) {
    Vector<int64_t> index(block.rank());
    int64_t rest = i;
    for (int axis = block.rank() - 1; axis >= 0; --axis) {
      index[axis] = block[axis].begin + rest % block[axis].size();
      rest /= block[axis].size();
    }
    visit(index);
  }
}

}  // namespace

TEST_CASE("blocks are copied and added element by element") {
  const auto backend = make_cpu_backend();
  std::mt19937 random(1);
  const auto between = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int number = 0; number < 500; ++number) {
    Block region, source, destination;
    for (int64_t axis = between(1, 4); axis > 0; --axis) {
      const int64_t begin = between(3, 6), end = begin + between(1, number % 5 == 0 ? 40 : 4);
      region.append({begin, end});
      source.append({begin - between(0, 2), end + between(0, 2)});
      destination.append({begin - between(0, 2), end + between(0, 2)});
    }
    Vector<float> from(source.volume()), to(static_cast<size_t>(destination.volume()));
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i + 1);
    for (size_t i = 0; i < to.size(); ++i) to[i] = -static_cast<float>(i) - 0.5f;
    Vector<float> copied = to, added = to;
    backend->copy_block(from.data(), source, copied.data(), destination, region);
    backend->add_block(from.data(), source, added.data(), destination, region);
    Vector<float> expected_copy = to, expected_sum = to;
    for_each_index(region, [&](const Vector<int64_t>& index) {
      expected_copy[stored_index(destination, index)] = from[stored_index(source, index)];
      expected_sum[stored_index(destination, index)] += from[stored_index(source, index)];
    });
    REQUIRE(copied == expected_copy);
    REQUIRE(added == expected_sum);
  }
}

TEST_CASE("images are stored channels-last and come back") {
  const auto backend = make_cpu_backend();
  const Shape shape{2, 3, 4, 5};
  Vector<float> host(120), stored(120), back(120);
  for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(i);
  backend->store_from_host(host.data(), stored.data(), shape);
  CHECK(stored[0] == 0);
  CHECK(stored[1] == 20);  // the next channel of the same pixel
  CHECK(stored[3] == 1);   // the next column
  backend->load_to_host(stored.data(), back.data(), shape);
  CHECK(back == host);
}

TEST_CASE("SGD follows torch.optim.SGD") {
  const auto backend = make_cpu_backend();
  Vector<float> parameter{1, -2}, gradient{0.5f, 0.25f}, velocity{0, 0.1f};
  backend->update(parameter.data(), gradient.data(), {velocity.data()}, 2, optimizer_step({0.1, 0.9, 0.01}, 0, 0));
  CHECK(velocity[0] == Approx(0.5 + 0.01));
  CHECK(velocity[1] == Approx(0.9 * 0.1 + 0.25 - 0.02));
  CHECK(parameter[0] == Approx(1 - 0.1 * 0.51));
  CHECK(parameter[1] == Approx(-2 - 0.1 * 0.32));
  backend->update(parameter.data(), gradient.data(), {}, 2, optimizer_step({0.1}, 0, 0));
  CHECK(parameter[0] == Approx(1 - 0.051 - 0.05));
}

TEST_CASE("Adam and AdamW follow torch.optim, in double precision") {
  const auto backend = make_cpu_backend();
  for (const OptimizerKind kind : {OptimizerKind::adam, OptimizerKind::adamw}) {
    const OptimizerSettings settings{
        .learning_rate = 0.02, .weight_decay = 0.3, .kind = kind, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3};
    constexpr int elements = 37, updates = 5;
    Vector<float> parameter(elements), gradient(elements), first(elements, 0.0f), second(elements, 0.0f);
    for (int i = 0; i < elements; ++i) parameter[i] = 0.3f - 0.07f * static_cast<float>(i % 11);
    Vector<double> expected(parameter.begin(), parameter.end()), m(elements, 0.0), v(elements, 0.0);
    for (int update = 0; update < updates; ++update) {
      for (int i = 0; i < elements; ++i) gradient[i] = 0.01f * static_cast<float>((i * 7 + update * 5) % 23 - 11);
      backend->update(parameter.data(), gradient.data(), {first.data(), second.data()}, elements,
                      optimizer_step(settings, update, update));
      for (int i = 0; i < elements; ++i) {
        double g = gradient[i];
        if (kind == OptimizerKind::adamw) expected[i] *= 1 - 0.02 * 0.3;
        else g += 0.3 * expected[i];
        m[i] = 0.8 * m[i] + 0.2 * g;
        v[i] = 0.95 * v[i] + 0.05 * g * g;
        const double m_hat = m[i] / (1 - std::pow(0.8, update + 1)), v_hat = v[i] / (1 - std::pow(0.95, update + 1));
        expected[i] -= 0.02 * m_hat / (std::sqrt(v_hat) + 1e-3);
        CHECK(parameter[i] == Approx(expected[i]).epsilon(2e-6).margin(1e-7));
        CHECK(first[i] == Approx(m[i]).epsilon(2e-6).margin(1e-8));
        CHECK(second[i] == Approx(v[i]).epsilon(2e-6).margin(1e-9));
      }
    }
  }
}

TEST_CASE("sums of squares and scaling, for the clipping of gradients") {
  const auto backend = make_cpu_backend();
  Vector<float> values{3, -4, 12};
  CHECK(backend->sum_of_squares(values.data(), 3) == 169);
  CHECK(backend->sum_of_squares(values.data(), 0) == 0);
  backend->scale(values.data(), 2, 0.5f);
  CHECK(values == Vector<float>{1.5f, -2, 12});
}

TEST_CASE("dropout keeps its share, draws anew each iteration, and is the identity in evaluation") {
  const auto backend = make_cpu_backend();
  const Graph graph = parse_graph(parse_json(
      R"({"format":"ffgraph/1","name":"g","batch_size":100,"inputs":[{"name":"x","shape":["batch",500],"dtype":"f32"},
    {"name":"label","shape":["batch"],"dtype":"i32"}],"operators":[{"name":"d","type":"dropout","inputs":["x"],
    "attributes":{"rate":0.3}},
    {"name":"l","type":"softmax_cross_entropy","inputs":["d","label"]}]})",
      "g"));
  const OperatorDefinition& dropout = *graph.operators[0].definition;
  const auto kernel = backend->make_kernel({dropout, dropout.whole(), {true}, "d", 1});
  Vector<float> ones(50000, 1.0f), first(50000), second(50000);
  KernelArguments arguments;
  arguments.inputs = {ones.data()};
  arguments.outputs = {first.data()};
  kernel->forward(arguments);
  arguments.iteration = 1;
  arguments.outputs = {second.data()};
  kernel->forward(arguments);
  int kept = 0, both = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    kept += first[i] != 0;
    both += first[i] != 0 && second[i] != 0;
  }
  CHECK(kept == Approx(35000).epsilon(0.02));
  CHECK(both == Approx(24500).epsilon(0.03));  // independent draws
  arguments.training = false;
  kernel->forward(arguments);
  CHECK(second == ones);
}

TEST_CASE("a label out of range names the operator, the label and the classes") {
  const auto backend = make_cpu_backend();
  const Graph graph = parse_graph(parse_json(
      R"({"format":"ffgraph/1","name":"g","batch_size":1,"inputs":[{"name":"x","shape":["batch",3],"dtype":"f32"},
    {"name":"label","shape":["batch"],"dtype":"i32"}],
    "operators":[{"name":"l","type":"softmax_cross_entropy","inputs":["x","label"]}]})",
      "g"));
  const OperatorDefinition& loss = *graph.operators[0].definition;
  const auto kernel = backend->make_kernel({loss, loss.whole(), {true, false}, "l", 1});
  float logits[3] = {1, 2, 3}, losses[1], correct[1];
  int32_t label = 3;
  KernelArguments arguments;
  arguments.inputs = {logits, &label};
  arguments.outputs = {losses, correct};
  CHECK_THROWS_WITH(kernel->forward(arguments), "l: found the label 3, expected one from 0 to 2");
  const auto last_class = backend->make_kernel({loss, loss.part({1, 3}, 2), {true, false}, "l", 1});
  float statistics[cross_entropy_statistics];
  arguments.statistics = statistics;
  CHECK_THROWS_WITH(last_class->forward_statistics(arguments), "l: found the label 3, expected one from 0 to 2");
  label = 0;  // of another part
  CHECK_NOTHROW(last_class->forward_statistics(arguments));
}

TEST_CASE("a token out of range names the operator, the token and the vocabulary, whatever rows a part has") {
  const auto backend = make_cpu_backend();
  const Graph graph = parse_graph(parse_json(
      R"({"format":"ffgraph/1","name":"g","batch_size":1,"inputs":[{"name":"x","shape":["batch"],"dtype":"i32"},
    {"name":"label","shape":["batch"],"dtype":"i32"}],
    "operators":[{"name":"e","type":"embedding","inputs":["x"],"attributes":{"vocabulary":4,"channels":2}},
    {"name":"l","type":"softmax_cross_entropy","inputs":["e","label"]}]})",
      "g"));
  const OperatorDefinition& embedding = *graph.operators[0].definition;
  for (int degree : {1, 2}) {
    const auto kernel = backend->make_kernel({embedding, embedding.part({1, 1, degree}, 0), {false}, "e", 1});
    float table[8] = {1, 2, 3, 4, 5, 6, 7, 8}, output[2];
    int32_t token = 4;
    KernelArguments arguments;
    arguments.inputs = {&token};
    arguments.parameters = {table};
    arguments.outputs = {output};
    CHECK_THROWS_WITH(kernel->forward(arguments), "e: found the token 4, expected one from 0 to 3");
    token = 3;  // of the other part, if there are two
    kernel->forward(arguments);
    CHECK(output[0] == (degree == 1 ? 7 : 0));
    CHECK(output[1] == (degree == 1 ? 8 : 0));
  }
}
