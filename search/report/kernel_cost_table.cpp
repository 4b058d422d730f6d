#include "search/report/kernel_cost_table.h"

#include <cstdio>

#include "search/report/plan_text.h"

namespace ff {

Vector<ExplainedKernel> explained_kernels(const Problem& problem, const Strategy& strategy) {
  TaskCostModel costs(problem.graph, problem.topology, problem.kernels);
  Vector<ExplainedKernel> result;
  for (const PlanGroup& group : plan_groups(problem.graph, strategy)) {
    const OperatorId op = group.operators[0];
    const Operator& first = problem.graph.operators[op];
    const Configuration& configuration = strategy[op];
    const Block part = first.definition->part(configuration.degrees, 0);
    const int model = problem.topology.devices[configuration.devices[0]].model;
    const int64_t tasks = group.operators.count() * configuration.parts() * problem.settings.micro_batches;
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      if (phase == Phase::backward && !first.has_backward) continue;
      const KernelUse& use = costs.use_of(op);
      const KernelCost cost = problem.kernels.kernel(*first.definition, part, phase, first.has_backward, use, model);
      result.push_back({group.name, phase, tasks, cost.ns, cost.source,
                        problem.kernels.explanation(*first.definition, part, phase, first.has_backward, use, model)});
    }
  }
  return result;
}

std::string kernel_cost_text(const Vector<ExplainedKernel>& kernels, const Topology& topology) {
  std::string text = "kernel costs, of the first part of each group\n";
  for (const ExplainedKernel& kernel : kernels) {
    char line[160];
    std::snprintf(line, sizeof line, "  %-28s %-8s %6lld tasks of %10.1f us\n", kernel.operators.c_str(),
                  kernel.phase == Phase::forward ? "forward" : "backward", static_cast<long long>(kernel.tasks),
                  to_us(kernel.duration));
    text += line;
    for (size_t begin = 0; begin < kernel.how.size();) {  // a line a term
      const size_t end = std::min(kernel.how.find("; ", begin), kernel.how.size());
      text += "      " + kernel.how.substr(begin, end - begin) + "\n";
      begin = end + 2;
    }
  }
  for (const DeviceModel& model : topology.models)
    if (!model.source.empty()) text += "  " + model.name + ": " + model.source + "\n";
  return text;
}

Json kernel_cost_json(const Vector<ExplainedKernel>& kernels) {
  Json json = Json::array();
  for (const ExplainedKernel& kernel : kernels)
    json.push_back({{"operators", kernel.operators},
                    {"phase", kernel.phase == Phase::forward ? "forward" : "backward"},
                    {"tasks", kernel.tasks},
                    {"us", to_us(kernel.duration)},
                    {"source", kernel.source == CostSource::profile    ? "profile"
                               : kernel.source == CostSource::measured ? "measured"
                                                                       : "analytic"},
                    {"how", kernel.how}});
  return json;
}

}  // namespace ff
