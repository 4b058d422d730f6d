#include "search/cost/conventions.h"

#include "common/operators/attention.h"
#include "common/operators/elementwise.h"
#include "common/operators/experts.h"

namespace ff {
namespace {

constexpr int64_t f32_bytes = 4;

// [samples, heads, queries, keys]
int64_t scores(const MultiHeadAttention& attention, const Block& part) {
  return part.volume() * attention.group * attention.keys_of(part);
}

// For each element that is turned.
double rotation_bytes(const OperatorDefinition& attention, bool backward, const FrameworkConventions& conventions) {
  switch (conventions.rotation) {
    case FrameworkConventions::Rotation::none: return 0;
    case FrameworkConventions::Rotation::kernel: return 2.0 * static_cast<double>(size_of(attention.outputs()[0].type));
    case FrameworkConventions::Rotation::complex_product: return complex_rotation_bytes;
    case FrameworkConventions::Rotation::halves:
      return backward ? halves_rotation_backward_bytes : halves_rotation_forward_bytes;
  }
  return 0;
}

// Does an activation write it, and does nothing but one operator read it?
bool is_activation_of_gate(const Graph& graph, TensorId input) {
  const Tensor& tensor = graph.tensors[input];
  if (tensor.producer < 0 || tensor.uses.count() != 1) return false;
  const auto* activation = dynamic_cast<const Elementwise*>(graph.operators[tensor.producer].definition.get());
  using Function = Elementwise::Function;
  constexpr Function functions[] = {Function::relu, Function::sigmoid, Function::gelu, Function::gelu_tanh,
                                    Function::silu};
  return activation &&
         std::find(std::begin(functions), std::end(functions), activation->function) != std::end(functions);
}

// Of a product in a gated layer: which of its inputs the activation writes; -1: none.
int activated_input(const Graph& graph, const Operator& op) {
  const auto* product = dynamic_cast<const Elementwise*>(op.definition.get());
  if (!product || product->function != Elementwise::Function::mul) return -1;
  for (const int input : op.inputs.indices())
    if (is_activation_of_gate(graph, op.inputs[input])) return input;
  return -1;
}

void fuse_gates(Graph& graph, const FrameworkConventions& conventions) {
  int functions = 0;  // the marked operators are others than those they were alike with
  for (const Operator& op : graph.operators) functions = std::max(functions, op.function + 1);
  const auto marked = [](const Operator& op, Elementwise::GateKernel kernel, int input) {
    auto definition = std::make_shared<Elementwise>(dynamic_cast<const Elementwise&>(*op.definition));
    definition->gate_kernel = kernel;
    definition->activated_input = input;
    return definition;
  };
  for (Operator& op : graph.operators) {
    const int input = activated_input(graph, op);
    if (input < 0) continue;
    const bool of_experts = dynamic_cast<const Elementwise&>(*op.definition).of_experts;
    if (!(of_experts ? conventions.fused_expert_gates : conventions.fused_gates)) continue;
    Operator& activation = graph.operators[graph.tensors[op.inputs[input]].producer];
    activation.definition = marked(activation, Elementwise::GateKernel::activation, 0);
    op.definition = marked(op, Elementwise::GateKernel::product, input);
    activation.function += functions;
    op.function += functions * (1 + input);
  }
}

bool is_product_of_matrices(const Operator& op) {
  return op.definition->type() == "linear" || op.definition->type() == "expert_linear";
}

}  // namespace

Vector<GatedProducts> gated_products(const Graph& graph) {
  Vector<GatedProducts> result;
  for (const Operator& op : graph.operators) {
    const int input = activated_input(graph, op);
    if (input < 0 || op.inputs.count() != 2) continue;
    const OperatorId activation = graph.tensors[op.inputs[input]].producer;
    const OperatorId gate = graph.tensors[graph.operators[activation].inputs[0]].producer,
                     up = graph.tensors[op.inputs[1 - input]].producer;
    if (gate < 0 || up < 0 || !is_product_of_matrices(graph.operators[gate]) ||
        !is_product_of_matrices(graph.operators[up]) ||
        graph.operators[gate].inputs[0] != graph.operators[up].inputs[0])
      continue;
    result.push_back({graph.operators[gate].inputs[0], std::min(gate, up), std::max(gate, up)});
  }
  return result;
}

bool is_projection(const OperatorDefinition& definition) {
  return definition.type() == "linear" || definition.type() == "multi_head_attention";
}

bool is_norm(const OperatorDefinition& definition) {
  return definition.type() == "layer_norm" || definition.type() == "rms_norm";
}

Vector<std::optional<Fp8Use>> fp8_operators(const Graph& graph, const FrameworkConventions& conventions) {
  Vector<std::optional<Fp8Use>> result(graph.operators.size());
  if (!conventions.fp8) return result;
  const auto is_read_by_loss_or_router = [&](const Operator& op) {
    return std::any_of(op.outputs.begin(), op.outputs.end(), [&](TensorId output) {
      return std::any_of(graph.tensors[output].uses.begin(), graph.tensors[output].uses.end(),
                         [&](const TensorUse& use) {
                           const OperatorDefinition& reader = *graph.operators[use.consumer].definition;
                           return reader.is_loss() || reader.type() == "top_k_gating";
                         });
    });
  };
  for (const OperatorId id : graph.operator_ids()) {
    const Operator& op = graph.operators[id];
    if ((!is_projection(*op.definition) && !is_product_of_matrices(op)) || is_read_by_loss_or_router(op)) continue;
    const OperatorId producer = graph.tensors[op.inputs[0]].producer;
    const bool behind_norm = producer >= 0 && is_norm(*graph.operators[producer].definition);
    result[id] = Fp8Use{behind_norm ? fp8_conversion_behind_norm_bytes : fp8_conversion_bytes};
  }
  for (const GatedProducts& gate : gated_products(graph))
    if (result[gate.second]) result[gate.second]->input_bytes = 0;
  return result;
}

Vector<bool> fp8_weights(const Graph& graph, const FrameworkConventions& conventions) {
  Vector<bool> result(graph.parameters.size(), false);
  const Vector<std::optional<Fp8Use>> in_fp8 = fp8_operators(graph, conventions);
  for (const OperatorId op : graph.operator_ids())
    if (in_fp8[op])
      for (const ParameterId parameter : graph.operators[op].parameters)
        result[parameter] = graph.parameters[parameter].spec.shape.count() > 1;
  return result;
}

Vector<bool> weights_gathered_in_fp8(const Graph& graph, const FrameworkConventions& conventions) {
  return conventions.fp8_weights ? fp8_weights(graph, conventions) : Vector<bool>(graph.parameters.size(), false);
}

int64_t length_replication(const OperatorDefinition& definition, const Block& part,
                           const FrameworkConventions& conventions) {
  if (!conventions.replicates_length || definition.outputs().empty()) return 1;
  const Shape& shape = definition.outputs()[0].shape;  // [sample, length, channel]
  if (shape.count() != 3) return 1;
  const Block block = definition.output_block(0, part);
  if (block[2].size() != shape[2] || block[1].size() == 0) return 1;
  return std::max<int64_t>(1, shape[1] / block[1].size() / conventions.context);
}

int64_t logits_of_loss(const OperatorDefinition& definition, const Block& part,
                       const FrameworkConventions& conventions) {
  const Block logits = definition.input_block(0, part);
  const Shape& shape = definition.inputs()[0].shape;
  const int64_t own = logits.volume();
  return conventions.gathers_logits && own > 0 ? own / logits[shape.count() - 1].size() * shape.back() : own;
}

int64_t framework_workspace_bytes(const OperatorDefinition& definition, const Block& part,
                                  const FrameworkConventions& conventions) {
  if (const auto* attention = dynamic_cast<const MultiHeadAttention*>(&definition)) {
    const int64_t bytes = size_of(definition.outputs()[0].type), projected = attention->projected(part).size() * bytes;
    if (conventions.stored_attention)
      return projected + (conventions.recomputes_attention ? 0 : scores(*attention, part) * bytes);
    // Of padded sequences backward reads the gathered output, and the projection after attention the scattered one.
    const int64_t scattered = conventions.gathers_padded ? attention->output_block(0, part).volume() * bytes : 0;
    const int64_t keys = conventions.recomputes_keys ? attention->projected(part).key_elements() * bytes : 0;
    return projected - keys + scattered + part.volume() * attention->group * f32_bytes;
  }
  if (definition.is_loss() && definition.counts_correct())
    return conventions.unfused_loss ? logits_of_loss(definition, part, conventions) * f32_bytes : 0;
  if (conventions.eager_norms && definition.type() == "rms_norm")
    return definition.workspace_bytes(part) + eager_norm_kept_bytes * definition.input_block(0, part).volume() *
                                                  length_replication(definition, part, conventions);
  return definition.workspace_bytes(part);
}

int64_t framework_scratch_bytes(const OperatorDefinition& definition, const Block& part,
                                const FrameworkConventions& conventions) {
  if (const auto* attention = dynamic_cast<const MultiHeadAttention*>(&definition)) {
    const int64_t bytes = size_of(definition.outputs()[0].type), projected = attention->projected(part).size() * bytes;
    const int64_t matrices = conventions.recomputes_attention ? 3 : 2;
    return projected + 2 * attention->exchanged_bytes(part) +
           (conventions.stored_attention ? matrices * scores(*attention, part) * bytes : 0);
  }
  if (!definition.is_loss() || !definition.counts_correct()) return 0;
  const int64_t own = definition.input_block(0, part).volume(), all = logits_of_loss(definition, part, conventions);
  const int64_t gathered = all == own ? 0 : 2 * all;  // in bf16
  return gathered + (conventions.unfused_loss ? 2 * all * f32_bytes : 0);
}

double framework_attention_bytes(const OperatorDefinition& definition, const Block& part, bool backward,
                                 const FrameworkConventions& conventions) {
  const auto* attention = dynamic_cast<const MultiHeadAttention*>(&definition);
  if (!attention) return 0;
  const MultiHeadAttention::Projected widths = attention->projected(part);
  double arrays = 0;  // elements
  if (conventions.gathers_padded) {
    const double projected = static_cast<double>(widths.size()),
                 output = static_cast<double>(attention->output_block(0, part).volume());
    arrays += backward ? scattered_arrays * projected + gathered_arrays * output
                       : gathered_arrays * projected + scattered_arrays * output;
  }
  double bytes = arrays * static_cast<double>(size_of(definition.outputs()[0].type));
  if (attention->rotary()) {
    const double turned = static_cast<double>(attention->turned(widths));
    bytes += turned * rotation_bytes(definition, backward, conventions);
    if (backward && conventions.recomputes_keys) bytes += turned * rotation_bytes(definition, false, conventions);
  }
  return bytes;
}

Graph with_conventions(Graph graph, const FrameworkConventions& conventions) {
  fuse_gates(graph, conventions);
  for (Operator& op : graph.operators)
    if (const auto* combine = dynamic_cast<const Combine*>(op.definition.get());
        combine && conventions.fused_expert_gates) {
      auto weighted = std::make_shared<Combine>(*combine);
      weighted->weighted_by_experts = true;
      op.definition = std::move(weighted);
    }
  if (!conventions.exchanges_keys) return graph;
  for (Operator& op : graph.operators)
    if (const auto* attention = dynamic_cast<const MultiHeadAttention*>(op.definition.get())) {
      auto exchanging = std::make_shared<MultiHeadAttention>(*attention);
      exchanging->exchange_keys();
      op.definition = std::move(exchanging);
    }
  return graph;
}

}  // namespace ff
