// What the CUDA backend does besides kernels, against the CPU backend.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "common/graph.h"
#include "common/kernels/batched_updates.h"
#include "tests/gpu/gpu_or_skip.h"

using namespace ff;

namespace {

// Memory of a backend with these values.
class Values {
 public:
  Values(Backend& backend, const Vector<float>& values)
      : backend_(backend), size_(static_cast<int64_t>(values.size())) {
    memory_ = static_cast<float*>(backend.allocate(size_ * element_bytes));
    backend.store_from_host(values.data(), memory_, {size_});
  }
  ~Values() { backend_.release(memory_); }
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;

  float* data() { return memory_; }
  Vector<float> read() {
    Vector<float> values(size_);
    backend_.load_to_host(memory_, values.data(), {size_});
    return values;
  }

 private:
  Backend& backend_;
  int64_t size_;
  float* memory_;
};

Vector<float> numbers(int64_t count, float scale) {
  Vector<float> values(count);
  for (size_t i = 0; i < values.size(); ++i) values[i] = scale * static_cast<float>(i + 1);
  return values;
}

Vector<float> waves(int64_t count, float step) {
  Vector<float> values(count);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(step * static_cast<float>(i));
  return values;
}

Graph one_operator(const std::string& type, const std::string& inputs, const std::string& attributes,
                   const std::string& read = R"("x")") {
  return parse_graph(
      parse_json(R"({"format":"ffgraph/1","name":"g","batch_size":30,"inputs":[)" + inputs +
                     R"(,{"name":"label","shape":["batch"],"dtype":"i32"}],"operators":[{"name":"tested","type":")" +
                     type + R"(","inputs":[)" + read + R"(],"attributes":)" + attributes +
                     R"(},{"name":"f","type":"flatten","inputs":["tested"]},
          {"name":"l","type":"softmax_cross_entropy","inputs":["f","label"]}]})",
                 "g"));
}

}  // namespace

TEST_CASE("how many GPUs there are, or why there is none") {
  int count = 0;
  std::string reason;
  try {
    count = cuda_device_count();
  } catch (const MachineError& error) {
    reason = error.what();
  }
  if (count > 0) {
    CHECK_THROWS_WITH(make_cuda_backend(1000), Catch::StartsWith("no GPU 1000: this machine has "));
    CHECK(describe_cuda_device(0).memory_bytes > 0);
  } else {
    CHECK_THAT(reason, Catch::StartsWith("no GPU: "));
    CHECK_THROWS_WITH(make_cuda_backend(0), reason);
  }
}

TEST_CASE("a backend that ends leaves no error to the next one") {
  for (int i = 0; i < 2; ++i) {
    const auto gpu = gpu_or_skip();
    if (!gpu) return;
    Values zeros(*gpu, {0, 0, 0, 0});
    CHECK_NOTHROW(gpu->add(zeros.data(), zeros.data(), 4));
    gpu->wait();
  }
}

TEST_CASE("blocks of any rank are copied and added on the GPU as on the CPU") {
  const auto gpu = gpu_or_skip();
  if (!gpu) return;
  const auto cpu = make_cpu_backend();
  std::mt19937 random(1);
  const auto between = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int number = 0; number < 300; ++number) {
    Block region, source, destination;
    const bool tight = number % 3 == 0;  // loops become one where both sides are contiguous
    for (int64_t axis = between(1, Block::max_rank); axis > 0; --axis) {
      const int64_t begin = between(3, 6), end = begin + between(1, 6);
      region.append({begin, end});
      source.append(tight && axis > 1 ? Interval{begin, end} : Interval{begin - between(0, 2), end + between(0, 2)});
      destination.append(tight && axis > 1 ? Interval{begin, end}
                                           : Interval{begin - between(0, 2), end + between(0, 2)});
    }
    const Vector<float> from = numbers(source.volume(), 1), to = numbers(destination.volume(), -0.5f);
    Vector<Vector<float>> copied, added;
    for (Backend* backend : {static_cast<Backend*>(gpu.get()), cpu.get()}) {
      Values a(*backend, from), b(*backend, to), c(*backend, to);
      backend->copy_block(a.data(), source, b.data(), destination, region);
      backend->add_block(a.data(), source, c.data(), destination, region);
      copied.push_back(b.read());
      added.push_back(c.read());
    }
    REQUIRE(copied[0] == copied[1]);
    REQUIRE(added[0] == added[1]);
  }
}

TEST_CASE("bf16 is converted, copied and added on the GPU as on the CPU") {
  const auto gpu = gpu_or_skip();
  if (!gpu) return;
  const auto cpu = make_cpu_backend();
  // [5, 7, 6] words of which each is two bf16: [5, 7, 12].
  const Block whole(Shape{5, 7, 12}), region{{1, 4}, {2, 7}, {3, 10}};
  Vector<float> values = numbers(whole.volume(), 0.37f);
  values[3] = std::numeric_limits<float>::quiet_NaN();
  values[4] = std::numeric_limits<float>::max();
  values[5] = -1.0f / 3;
  Vector<Vector<float>> results[2];
  int number = 0;
  for (Backend* backend : {static_cast<Backend*>(gpu.get()), cpu.get()}) {
    const Vector<float> zeros(values.size() / 2, 0.0f);
    Values source(*backend, values), narrow(*backend, zeros), part(*backend, zeros), wide(*backend, values),
        rounded(*backend, values);
    const int64_t elements = values.count();
    backend->convert(source.data(), DataType::f32, narrow.data(), DataType::bf16, elements);
    backend->convert(narrow.data(), DataType::bf16, wide.data(), DataType::f32, elements);
    backend->round_to_bf16(source.data(), rounded.data(), elements);
    backend->copy_block(narrow.data(), whole, part.data(), whole, region, DataType::bf16);
    backend->add_block(narrow.data(), whole, part.data(), whole, region, DataType::bf16);
    for (Values* one : {&narrow, &part, &wide, &rounded}) results[number].push_back(one->read());
    ++number;
  }
  for (const int i : results[0].indices())
    CHECK(std::memcmp(results[0][i].data(), results[1][i].data(), results[0][i].size() * sizeof(float)) == 0);
}

TEST_CASE("images go to the GPU channels-last and come back") {
  const auto gpu = gpu_or_skip();
  if (!gpu) return;
  const Shape shape{3, 37, 41, 5};
  const Vector<float> host = numbers(volume(shape), 1);
  Values memory(*gpu, Vector<float>(host.size()));
  gpu->store_from_host(host.data(), memory.data(), shape);
  const Vector<float> stored = memory.read();
  CHECK(stored[0] == host[0]);
  CHECK(stored[1] == host[41 * 5]);  // the next channel of the same pixel
  CHECK(stored[37] == host[1]);      // the next column
  Vector<float> back(host.size());
  gpu->load_to_host(memory.data(), back.data(), shape);
  CHECK(back == host);
}

TEST_CASE("zeros, sums and updates on the GPU equal the CPU's") {
  const auto gpu = gpu_or_skip();
  if (!gpu) return;
  const auto cpu = make_cpu_backend();
  for (OptimizerSettings settings : {OptimizerSettings{0.1, 0.9, 0.01}, OptimizerSettings{0.1, 0, 0.01},
                                     default_optimizer(OptimizerKind::adam), default_optimizer(OptimizerKind::adamw)}) {
    settings.epsilon = 1e-3;
    const int states = state_buffers(settings);
    Vector<Vector<float>> results;
    Vector<double> squares;
    for (Backend* backend : {static_cast<Backend*>(gpu.get()), cpu.get()}) {
      Values parameter(*backend, numbers(10007, 0.01f)), gradient(*backend, numbers(10007, -0.002f)),
          first(*backend, numbers(10007, 0.003f)), second(*backend, Vector<float>(10007, 0.004f));
      backend->fill_zero(first.data(), 5000 * element_bytes);
      backend->add(parameter.data(), gradient.data(), 7000);
      backend->scale(gradient.data(), 9000, 0.75f);
      squares.push_back(backend->sum_of_squares(gradient.data(), 10007));
      backend->update(parameter.data(), gradient.data(),
                      {states > 0 ? first.data() : nullptr, states > 1 ? second.data() : nullptr}, 10007,
                      optimizer_step(settings, 3, 3));
      for (Values* values : {&parameter, &gradient, &first, &second}) results.push_back(values->read());
    }
    CHECK(squares[0] == Approx(squares[1]).epsilon(1e-6));
    for (size_t v = 0; v < 4; ++v)
      for (size_t i = 0; i < results[v].size(); ++i) REQUIRE(results[v][i] == Approx(results[v + 4][i]).epsilon(1e-6));
  }
}

// More than one launch's table has, of one block and of several, and empty ones. What is between them stays.
TEST_CASE("many parameters are scaled, summed and updated at once on the GPU as on the CPU") {
  const auto gpu = gpu_or_skip();
  if (!gpu) return;
  const auto cpu = make_cpu_backend();
  for (OptimizerSettings settings :
       {OptimizerSettings{0.1, 0.9, 0.01}, OptimizerSettings{0.1}, default_optimizer(OptimizerKind::adamw)}) {
    settings.epsilon = 1e-3;
    const int states = state_buffers(settings);
    constexpr int64_t elements = 60'000;
    Vector<Vector<float>> results;
    Vector<double> squares;
    for (Backend* backend : {static_cast<Backend*>(gpu.get()), cpu.get()}) {
      Values parameter(*backend, numbers(elements, 1e-4f)), gradient(*backend, numbers(elements, -2e-5f)),
          first(*backend, numbers(elements, 3e-5f)), second(*backend, numbers(elements, 4e-5f));
      std::mt19937 random(1);
      Vector<ElementRun> runs;
      Vector<UpdateOperands> operands;
      for (int64_t begin = 0;;) {
        const int64_t length = static_cast<int64_t>(random() % (operands.size() % 20 == 7 ? 6000 : 90));
        if (begin + length > elements) break;
        runs.push_back({gradient.data() + begin, length});
        operands.push_back({parameter.data() + begin,
                            gradient.data() + begin,
                            {states > 0 ? first.data() + begin : nullptr, states > 1 ? second.data() + begin : nullptr},
                            length});
        begin += length + static_cast<int64_t>(random() % 3);
      }
      REQUIRE(operands.size() > 160);
      scale_all(*backend, runs, 0.75f);
      squares.push_back(sum_of_all_squares(*backend, runs));
      update_all(*backend, operands, optimizer_step(settings, 3, 3));
      for (Values* values : {&parameter, &gradient, &first, &second}) results.push_back(values->read());
    }
    CHECK(squares[0] == Approx(squares[1]).epsilon(1e-6));
    for (size_t v = 0; v < 4; ++v)
      for (size_t i = 0; i < results[v].size(); ++i) REQUIRE(results[v][i] == Approx(results[v + 4][i]).epsilon(1e-5));
  }
}

TEST_CASE("dropout drops the same elements on the GPU as on the CPU, on any part") {
  const auto gpu = gpu_or_skip();
  if (!gpu) return;
  const auto cpu = make_cpu_backend();
  const Graph graph =
      one_operator("dropout", R"({"name":"x","shape":["batch",7,9,5],"dtype":"f32"})", R"({"rate":0.3})");
  const OperatorDefinition& dropout = *graph.operators[0].definition;
  for (int64_t part = 0; part < 8; ++part) {
    const Block block = dropout.part({2, 2, 2, 1}, part);
    Vector<Vector<float>> results;
    for (Backend* backend : {static_cast<Backend*>(gpu.get()), cpu.get()}) {
      const auto kernel = backend->make_kernel({dropout, block, {true}, "tested", 5});
      Values input(*backend, numbers(block.volume(), 1)), output(*backend, numbers(block.volume(), 0));
      KernelArguments arguments;
      arguments.iteration = part;
      arguments.inputs = {input.data()};
      arguments.outputs = {output.data()};
      kernel->forward(arguments);
      results.push_back(output.read());
    }
    REQUIRE(results[0] == results[1]);
  }
}

TEST_CASE("a dropout kernel moved to other samples and another operator draws as one made for them") {
  const auto gpu = gpu_or_skip();
  if (!gpu) return;
  const auto cpu = make_cpu_backend();
  const Graph graph =
      one_operator("dropout", R"({"name":"x","shape":["batch",7,9,5],"dtype":"f32"})", R"({"rate":0.3})");
  const OperatorDefinition& dropout = *graph.operators[0].definition;
  const Block first = dropout.part({2, 2, 1, 1}, 0), other = dropout.part({2, 2, 1, 1}, 2);
  REQUIRE((first[0].begin != other[0].begin && first[1] == other[1]));
  for (const bool backward : {false, true}) {
    Vector<Vector<float>> results;
    for (Backend* backend : {static_cast<Backend*>(gpu.get()), cpu.get()}) {
      const auto moved = backend->make_kernel({dropout, first, {true}, "before", 5}),
                 made = backend->make_kernel({dropout, other, {true}, "tested", 5});
      Values source(*backend, numbers(other.volume(), 1));
      for (Kernel* kernel : {moved.get(), made.get()}) {
        Values output(*backend, numbers(other.volume(), 0)), gradient(*backend, numbers(other.volume(), 0));
        KernelArguments arguments;
        arguments.iteration = 3;
        arguments.inputs = {source.data()};
        arguments.outputs = {output.data()};
        arguments.output_gradients = {source.data()};
        arguments.input_gradients = {gradient.data()};
        if (kernel == moved.get()) {
          kernel->forward(arguments);
          results.push_back(output.read());  // the other part's
          kernel->set_part(other, "tested");
        }
        kernel->forward(arguments);
        if (backward) kernel->backward(arguments);
        results.push_back((backward ? gradient : output).read());
      }
    }
    CHECK(results[1] == results[2]);
    CHECK(results[4] == results[5]);
    CHECK(results[1] == results[5]);
    CHECK(results[0] == results[3]);
    CHECK(results[0] != results[1]);
  }
}

// Kernels load and store four neighbours at once where addresses allow it: a tensor may begin anywhere else.
TEST_CASE("GPU kernels take tensors that begin at any element") {
  const auto gpu = gpu_or_skip();
  if (!gpu) return;
  const auto cpu = make_cpu_backend();
  for (const auto& [type, columns] : Vector<std::pair<std::string, int64_t>>{{"gelu", 701},
                                                                             {"add", 700},
                                                                             {"softmax", 701},
                                                                             {"softmax", 1203},
                                                                             {"layer_norm", 700},
                                                                             {"rms_norm", 701},
                                                                             {"dropout", 701}}) {
    const std::string input = R"({"name":"x","shape":["batch",)" + std::to_string(columns) + R"(],"dtype":"f32"})";
    const Graph graph = one_operator(type, input, type.ends_with("norm") ? R"({"affine":false})" : "{}",
                                     type == "add" ? R"("x","x")" : R"("x")");
    const OperatorDefinition& definition = *graph.operators[0].definition;
    const Block whole = definition.output_block(0, definition.whole());
    for (int offset = 0; offset < 16; ++offset) {
      const int from = offset % 4, to = offset / 4;
      Vector<Vector<float>> results[2];
      int number = 0;
      for (Backend* backend : {static_cast<Backend*>(gpu.get()), cpu.get()}) {
        const auto kernel = backend->make_kernel({definition, definition.whole(), {true, true}, "tested", 5});
        const Vector<float> values = waves(whole.volume() + 4, 0.7f);
        Values source(*backend, values), gradient(*backend, waves(whole.volume() + 4, 1.1f)), result(*backend, values),
            output(*backend, values);
        KernelArguments arguments;
        arguments.inputs = {source.data() + from};
        arguments.input_gradients = {result.data() + to};
        if (type == "add") {
          arguments.inputs.push_back(gradient.data() + to);
          arguments.input_gradients.push_back(nullptr);
        }
        arguments.outputs = {output.data() + to};
        arguments.output_gradients = {gradient.data() + from};
        kernel->forward(arguments);
        kernel->backward(arguments);
        results[number++] = {output.read(), result.read()};
      }
      INFO(type << " from element " << from << " to " << to);
      for (const int i : results[0].indices())
        for (size_t j = 0; j < results[0][i].size(); ++j)
          REQUIRE(results[0][i][j] == Approx(results[1][i][j]).epsilon(2e-5).margin(1e-5));
    }
  }
}

TEST_CASE("an index out of range is reported when the GPU is waited for, and only once") {
  const auto gpu = gpu_or_skip();
  if (!gpu) return;
  const Graph graph =
      one_operator("embedding", R"({"name":"x","shape":["batch"],"dtype":"i32"})", R"({"vocabulary":3,"channels":4})");
  const OperatorDefinition& embedding = *graph.operators[0].definition;
  const auto kernel = gpu->make_kernel({embedding, embedding.whole(), {false}, "tested", 1});
  Vector<float> tokens(30);
  const int32_t wrong = 3;
  std::memcpy(&tokens[20], &wrong, sizeof wrong);
  Values table(*gpu, numbers(12, 1)), input(*gpu, tokens), output(*gpu, numbers(120, 1));
  KernelArguments arguments;
  arguments.inputs = {input.data()};
  arguments.parameters = {table.data()};
  arguments.outputs = {output.data()};
  kernel->forward(arguments);
  CHECK_THROWS_WITH(gpu->wait(), "tested: found the token 3, expected one from 0 to 2");
  CHECK_NOTHROW(gpu->wait());
}

TEST_CASE("the GPU's stopwatch measures work that is submitted while it runs") {
  const auto gpu = gpu_or_skip();
  if (!gpu) return;
  Values source(*gpu, numbers(1 << 20, 1)), destination(*gpu, numbers(1 << 20, 1));
  gpu->start_stopwatch();
  gpu->add(source.data(), destination.data(), 1 << 20);
  CHECK(gpu->stop_stopwatch_us() > 0);
  CHECK(destination.read()[1] == 4);
}

TEST_CASE("the same work gives the same bits on the GPU", "[convolution]") {
  const auto gpu = gpu_or_skip();
  if (!gpu) return;
  const Graph graph = one_operator("conv2d", R"({"name":"x","shape":["batch",8,20,20],"dtype":"f32"})",
                                   R"({"out_channels":16,"kernel":3,"padding":1})");
  const OperatorDefinition& conv = *graph.operators[0].definition;
  const auto kernel = gpu->make_kernel({conv, conv.whole(), {true}, "tested", 1});
  Values input(*gpu, numbers(30 * 8 * 400, 1e-4f)), gradient(*gpu, numbers(30 * 16 * 400, -1e-4f)),
      weight(*gpu, numbers(16 * 72, 1e-2f)), bias(*gpu, numbers(16, 1));
  Vector<Vector<float>> results;
  for (int repetition = 0; repetition < 2; ++repetition) {
    Values output(*gpu, numbers(30 * 16 * 400, 0)), input_gradient(*gpu, numbers(30 * 8 * 400, 0)),
        weight_gradient(*gpu, numbers(16 * 72, 0)), bias_gradient(*gpu, numbers(16, 0));
    KernelArguments arguments;
    arguments.inputs = {input.data()};
    arguments.parameters = {weight.data(), bias.data()};
    arguments.outputs = {output.data()};
    arguments.output_gradients = {gradient.data()};
    arguments.input_gradients = {input_gradient.data()};
    arguments.parameter_gradients = {weight_gradient.data(), bias_gradient.data()};
    kernel->forward(arguments);
    kernel->backward(arguments);
    for (Values* values : {&output, &input_gradient, &weight_gradient, &bias_gradient})
      results.push_back(values->read());
  }
  for (size_t i = 0; i < 4; ++i) CHECK(results[i] == results[i + 4]);
}
