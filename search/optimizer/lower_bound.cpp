#include "search/optimizer/lower_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/micro_batches.h"
#include "search/cost/analytic.h"

namespace ff {

namespace {

constexpr Nanoseconds never = std::numeric_limits<Nanoseconds>::max();

// The least times of one operator under any configuration.
struct LeastTimes {
  double work_ns = 0;                     // forward and backward, of all parts
  Nanoseconds forward = 0, backward = 0;  // of the fastest part
};

class LeastTimesOf {
 public:
  LeastTimesOf(const Problem& problem, const SearchSpace& space, TaskCostModel& costs)
      : problem_(problem), space_(space), costs_(costs), conventions_(problem.kernels.conventions()) {
    double products = 0, attention = 0;  // in bf16, 1e12 operations per second
    for (const DeviceModel& model : problem.topology.models) {
      const KernelEfficiency& known = model.efficiency;
      fastest_.peak_tflops = std::max(fastest_.peak_tflops, model.peak_tflops);
      fastest_.peak_tf32_tflops = std::max(fastest_.peak_tf32_tflops, model.peak_tf32_tflops);
      fastest_.memory_gb_per_s = std::max(fastest_.memory_gb_per_s, model.memory_gb_per_s * known.memory);
      products = std::max(products, model.peak_bf16_tflops * known.sustained / known.slowest * most_of_products(known));
      double most_attention = known.attention.empty() ? 1 : 0;
      for (const KernelEfficiency::Attention& one : known.attention)
        most_attention = std::max(most_attention, most(one.by_length) * one.most_over_both());
      attention = std::max(attention, model.peak_bf16_tflops * most_attention / known.slowest);
      least_launch_us_ = std::min(least_launch_us_, model.launch_us);
    }
    if (products == 0) return;
    fastest_.peak_bf16_tflops = products;
    fastest_.efficiency.products = {{1}, {1}, {{1}}, 1};
    for (const bool causal : {false, true})
      fastest_.efficiency.attention.push_back({1, causal, {{1, attention / products}}, conventions_.flash_attention});
  }

  LeastTimes operator()(OperatorId op) {
    if (is_decided(op)) return of_known_degrees(op, false);
    const Sources sources = sources_of(op);
    if (sources == Sources::analytic) return analytic(op);
    LeastTimes least = of_known_degrees(op, true);
    if (sources == Sources::mixed) least.work_ns = std::min(least.work_ns, analytic(op).work_ns);
    return least;
  }

 private:
  double most_of_products(const KernelEfficiency& known) const {
    if (!known.products) return 1;
    double share = 0;
    for (const Vector<double>& row : known.products->shares)
      share = std::max(share, *std::max_element(row.begin(), row.end()));
    return share * std::max({1.0, known.products->accumulating, conventions_.fp8 ? known.products->fp8 : 0});
  }

  static double most(const KernelEfficiency::Table& table) {
    double share = table.empty() ? 1 : 0;
    for (const auto& [at, its] : table) share = std::max(share, its);
    return share;
  }

  // Where TF32 makes kernels faster on any device, or bf16.
  Precision precision_of(const OperatorDefinition& definition) const {
    if (definition.activation_type() == DataType::bf16) return Precision::bf16;
    const bool faster = fastest_.peak_tf32_tflops > fastest_.peak_tflops;
    return faster && problem_.kernels.precision() == Precision::tf32 ? Precision::tf32 : Precision::fp32;
  }

  // Where the times of an operator's kernels come from: all from the analytic model, none, or perhaps some.
  enum class Sources { analytic, mixed, other };
  Sources sources_of(OperatorId op) {
    const Degrees whole(problem_.whole().operators[op].definition->dimensions().size(), 1);
    bool all = true;
    for (const int model : problem_.topology.models.indices()) {
      if (problem_.kernels.measurable(model) || problem_.topology.models[model].scaled_from >= 0) return Sources::other;
      all = all && problem_.kernels.profile(model).entries.empty();
    }
    if (!all) return Sources::mixed;
    for (const int model : problem_.topology.models.indices())
      all = all && costs_.part_costs(op, whole, model)[0].forward.source == CostSource::analytic;
    return all ? Sources::analytic : Sources::mixed;
  }

  // Do annotations leave one choice of degrees?
  bool is_decided(OperatorId op) const {
    const Annotation* annotation = space_.annotations() ? space_.annotations()->find(op) : nullptr;
    return annotation &&
           std::none_of(annotation->degrees.begin(), annotation->degrees.end(), [](int degree) { return degree == 0; });
  }

  // As TaskCostModel counts it; of shared parameters only that there are any matters to the analytic model.
  KernelUse use_of(OperatorId op) const {
    const Graph& graph = problem_.whole();
    const Operator& described = graph.operators[op];
    KernelUse use{};
    for (const int input : described.inputs.indices())
      use.input_gradients = use.input_gradients || graph.input_has_gradient(op, input);
    for (const ParameterId parameter : described.parameters)
      if (graph.parameters[parameter].uses.size() > 1) use.shared_bytes = 1;
    return use;
  }

  // Time of one kernel without its launch, on a device with the best rate of each kind; 0 where the part has no such
  // kernel.
  double kernel_us(OperatorId op, const Block& part, Phase phase, bool flops, bool bytes) const {
    const OperatorDefinition& definition = *problem_.whole().operators[op].definition;
    const bool backward = phase == Phase::backward || phase == Phase::backward_statistics;
    const bool statistics = phase == Phase::forward_statistics || phase == Phase::backward_statistics;
    if (backward && !problem_.whole().operators[op].has_backward) return 0;
    if (statistics && definition.statistics_bytes(part, backward) == 0) return 0;
    DeviceModel model = fastest_;
    constexpr double unlimited = 1e300;
    if (!flops) model.peak_tflops = model.peak_tf32_tflops = model.peak_bf16_tflops = unlimited;
    if (!bytes) model.memory_gb_per_s = unlimited;
    return analytic_kernel_us(model, definition, part, phase, use_of(op), precision_of(definition), conventions_);
  }

  // Under the analytic model a kernel takes at least its floating-point operations over the peak rate (over the largest
  // share of it that kernels reach), its bytes over the memory's rate, and the launch. Each of the first two, summed
  // over the parts, is at least that of the whole operator, because the parts' outputs make up the whole output and
  // their inputs cover what it reads: overlapping inputs, replicated parameters and partial sums only add to it.
  // Windows with gaps between them are the exception, as parts skip bytes that the whole operator's block includes.
  // Where two halves do less than the whole, the term is left out. As there is at least one part, the sum is at least
  // one launch, too.
  //
  // Each kernel's time is rounded to whole nanoseconds, so the sum can be less by half a nanosecond for each part.
  LeastTimes analytic(OperatorId op) const {
    const OperatorDefinition& definition = *problem_.whole().operators[op].definition;
    const Nanoseconds launch = std::max<Nanoseconds>(1, static_cast<Nanoseconds>(least_launch_us_ * 1e3));
    const double rounding_ns = 0.5 * static_cast<double>(most_parts(op)) + 1;
    LeastTimes least;
    for (const Phase phase : {Phase::forward_statistics, Phase::forward, Phase::backward_statistics, Phase::backward}) {
      const bool backward = phase == Phase::backward || phase == Phase::backward_statistics;
      if (backward && !problem_.whole().operators[op].has_backward) continue;
      double us = 0;
      for (const bool flops : {true, false}) {
        const double whole = kernel_us(op, definition.whole(), phase, flops, !flops);
        if (whole > us && halves_do_all(op, phase, flops, whole)) us = whole;
      }
      const bool statistics = phase == Phase::forward_statistics || phase == Phase::backward_statistics;
      constexpr double longest_us = 1e12;  // as KernelCosts cuts times off
      const double ns = std::min(us, longest_us) * 1e3 - rounding_ns;
      if (statistics) {
        least.work_ns += std::max(0.0, ns);
      } else {
        least.work_ns += std::max(static_cast<double>(launch), ns);
        (backward ? least.backward : least.forward) = launch;
      }
    }
    return least;
  }

  bool halves_do_all(OperatorId op, Phase phase, bool flops, double whole_us) const {
    const Block whole = problem_.whole().operators[op].definition->whole();
    for (int d = 0; d < whole.rank(); ++d) {
      if (whole[d].size() < 2) continue;
      Block first = whole, second = whole;
      first[d].end = second[d].begin = whole[d].begin + whole[d].size() / 2;
      constexpr double rounding = 1 - 1e-12;
      if (kernel_us(op, first, phase, flops, !flops) + kernel_us(op, second, phase, flops, !flops) <
          rounding * whole_us)
        return false;
    }
    return true;
  }

  // No strategy splits an operator into more.
  int64_t most_parts(OperatorId op) const {
    int64_t most = int64_t{SearchSpace::most_slices} * problem_.topology.devices.count();
    for (const Degrees& degrees : space_.degrees(op)) most = std::max<int64_t>(most, parts_of(degrees));
    return most * problem_.settings.micro_batches;
  }

  // By the degrees of the search space; `any_degrees`: for others too, as far as known parts tell.
  LeastTimes of_known_degrees(OperatorId op, bool any_degrees) {
    const OperatorDefinition& definition = *problem_.whole().operators[op].definition;
    const double whole = static_cast<double>(std::max<int64_t>(1, definition.whole().volume()));
    LeastTimes least{1e300, never, never};
    for (const Degrees& of_one : space_.degrees(op)) {
      const Degrees degrees = expanded_degrees(definition, of_one, problem_.settings.micro_batches);
      if (!degrees.leave_none_empty(0, definition.dimensions()[0].size)) continue;
      Vector<TaskCostModel::PartCosts> by_model;
      for (int model : problem_.topology.models.indices()) by_model.push_back(costs_.part_costs(op, degrees, model));
      double work = 0;
      for (int part = 0; part < parts_of(degrees); ++part) {
        Nanoseconds forward = never, backward = never;
        for (const TaskCostModel::PartCosts& of_model : by_model) {
          forward = std::min(forward, of_model[part].all_forward());
          backward = std::min(backward, of_model[part].all_backward());
        }
        const double both = static_cast<double>(forward + backward);
        work += both;
        if (any_degrees) {
          const double share = static_cast<double>(definition.part(degrees, part).volume()) / whole;
          if (share > 0) least.work_ns = std::min(least.work_ns, both / share);
        }
        least.forward = std::min(least.forward, forward);
        least.backward = std::min(least.backward, backward);
      }
      least.work_ns = std::min(least.work_ns, work);
    }
    // Of a smaller part than all of these nothing is known but that its kernels take some time.
    if (any_degrees) least.forward = 1, least.backward = 1;
    return least;
  }

  const Problem& problem_;
  const SearchSpace& space_;
  TaskCostModel& costs_;
  DeviceModel fastest_;
  const FrameworkConventions conventions_;
  double least_launch_us_ = 1e300;
};

}  // namespace

Nanoseconds lower_bound(const Problem& problem, const SearchSpace& space, TaskCostModel& costs) {
  const Graph& graph = problem.whole();
  LeastTimesOf least_times(problem, space, costs);
  double total_work_ns = 0;
  // Longest path that goes forward through the graph, turns at one operator, and comes back along the edges that carry
  // a gradient.
  Vector<Nanoseconds> one_way(graph.operators.size(), 0), round_trip(graph.operators.size(), 0);
  Nanoseconds longest = 0;
  for (OperatorId op : graph.operator_ids()) {
    const Operator& described = graph.operators[op];
    Nanoseconds before = 0, around = 0;
    for (int input : described.inputs.indices()) {
      const OperatorId producer = graph.tensors[described.inputs[input]].producer;
      if (producer < 0 || !described.definition->every_part_reads(input)) continue;
      before = std::max(before, one_way[producer]);
      const bool returns = graph.input_has_gradient(op, input);
      around = std::max(around, returns ? round_trip[producer] : one_way[producer]);
    }
    const LeastTimes least = least_times(op);
    total_work_ns += least.work_ns;
    one_way[op] = before + least.forward;
    round_trip[op] = around + least.forward + (described.has_backward ? least.backward : 0);
    longest = std::max(longest, round_trip[op]);
  }
  const double work_ns = total_work_ns / static_cast<double>(problem.topology.devices.count());
  return std::max(static_cast<Nanoseconds>(std::floor(work_ns * (1 - 1e-12))), longest);
}

}  // namespace ff
