#include "tests/support/random_annotations.h"

#include <algorithm>

#include "tests/support/random_network.h"

namespace ff {
namespace {

// What is said of an operator: a random configuration's, as a whole or one dimension of it.
Json said(const Operator& op, const Configuration& configuration, int devices, RandomSource& random) {
  const auto& dimensions = op.definition->dimensions();
  const int d = static_cast<int>(random.between(0, dimensions.count() - 1));
  switch (random.between(0, 3)) {
    case 0: return {{"split", {{dimensions[d].name, configuration.degrees[d]}}}};
    case 1: return {{"replicate", true}};
    case 2: {
      Json list = Json::array();
      for (int part = 0; part < configuration.degrees[d]; ++part) list.push_back(random.between(0, devices - 1));
      return {{"shard", {{"dimension", dimensions[d].name}, {"devices", list}}}};
    }
    default: {
      Json degrees = Json::object();
      for (const int i : dimensions.indices()) degrees[dimensions[i].name] = configuration.degrees[i];
      return {{"degrees", degrees}, {"devices", configuration.devices}};
    }
  }
}

}  // namespace

Json random_annotations(const Graph& graph, int devices, RandomSource& random) {
  const Strategy strategy = random_strategy(graph, devices, random);
  Json list = Json::array();
  const int64_t one_in = random.between(1, 6);
  for (const OperatorId op : graph.operator_ids()) {
    if (random.between(1, one_in) > 1) continue;
    const Operator& described = graph.operators[op];
    Json annotation;
    if (random.between(0, 4) == 0 && !described.parameters.empty()) {
      annotation = {{"parameters", graph.parameters[described.parameters[0]].name}, {"replicate", true}};
      // It is about all operators that share the parameter.
      if (graph.parameters[described.parameters[0]].uses.size() > 1) continue;
    } else if (random.between(0, 3) == 0) {
      annotation = {{"tensors", graph.tensors[described.outputs[0]].name}, {"replicate", true}};
    } else {
      annotation = {{"operators", described.name}};
      annotation.update(said(described, strategy[op], devices, random));
    }
    list.push_back(annotation);
  }
  return {{"format", "ffannotations/1"}, {"annotations", list}};
}

}  // namespace ff
