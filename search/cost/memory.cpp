#include "search/cost/memory.h"

#include <algorithm>

namespace ff {
namespace {

int64_t bytes_of(const Block& block) { return block.volume() * element_bytes; }

}  // namespace

MemoryModel::MemoryModel(TaskGraphBuilder& builder, int device_count)
    : builder_(builder), graph_(builder.graph()), edges_of_tensor_(graph_.tensors.size()), groups_of_(graph_.operators.size()),
      items_around_(graph_.operators.size()), part_bytes_(graph_.operators.size()), block_numbers_(graph_.parameters.size()),
      bytes_(static_cast<size_t>(device_count)) {
  for (size_t e = 0; e < builder.edges().size(); ++e) edges_of_tensor_[builder.edges()[e].tensor].push_back(static_cast<int>(e));
  for (size_t g = 0; g < builder.groups().size(); ++g)
    for (OperatorId op : builder.groups()[g].operators) groups_of_[op].push_back(static_cast<int>(g));
  for (OperatorId op = 0; op < static_cast<OperatorId>(graph_.operators.size()); ++op) {
    std::vector<Item>& items = items_around_[op];
    items.push_back({Item::Kind::operation, op});
    for (size_t e = 0; e < builder.edges().size(); ++e)
      if (builder.edges()[e].producer == op || builder.edges()[e].consumer == op) items.push_back({Item::Kind::edge, static_cast<int>(e)});
    std::vector<TensorId> tensors = graph_.operators[op].inputs;
    tensors.insert(tensors.end(), graph_.operators[op].outputs.begin(), graph_.operators[op].outputs.end());
    std::sort(tensors.begin(), tensors.end());
    tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
    for (TensorId tensor : tensors)
      if (graph_.tensors[tensor].has_gradient) items.push_back({Item::Kind::tensor, tensor});
    for (int g : groups_of_[op]) items.push_back({Item::Kind::group, g});
  }
}

size_t MemoryModel::number(Item item) const {
  const size_t index = static_cast<size_t>(item.index), operators = graph_.operators.size(), edges = builder_.edges().size();
  switch (item.kind) {
    case Item::Kind::operation: return index;
    case Item::Kind::edge: return operators + index;
    case Item::Kind::tensor: return operators + edges + index;
    case Item::Kind::group: return operators + edges + graph_.tensors.size() + index;
  }
  return 0;
}

MemoryModel::Share MemoryModel::share(Item item, const Strategy& strategy) {
  switch (item.kind) {
    case Item::Kind::operation: return operator_share(item.index, strategy);
    case Item::Kind::edge: return edge_share(item.index, strategy);
    case Item::Kind::tensor: return tensor_share(item.index, strategy);
    case Item::Kind::group: return group_share(item.index, strategy);
  }
  return {};
}

int MemoryModel::block_number(ParameterId parameter, const Block& block) {
  std::vector<int64_t> corners;
  for (int axis = 0; axis < block.rank(); ++axis) corners.insert(corners.end(), {block[axis].begin, block[axis].end});
  auto& numbers = block_numbers_[parameter];
  return numbers.emplace(std::move(corners), static_cast<int>(numbers.size())).first->second;
}

const MemoryModel::PartBytes& MemoryModel::part_bytes(OperatorId id, const std::vector<int>& degrees) {
  const auto [it, added] = part_bytes_[id].try_emplace(degrees);
  PartBytes& result = it->second;
  if (!added) return result;
  const Operator& op = graph_.operators[id];
  const OperatorDefinition& definition = *op.definition;
  result.inputs.resize(op.inputs.size());
  result.outputs.resize(op.outputs.size());
  result.parameters.resize(op.parameters.size());
  int64_t parts = 1;
  for (int degree : degrees) parts *= degree;
  for (int64_t number = 0; number < parts; ++number) {
    const Block part = definition.part(degrees, number);
    int64_t own = definition.workspace_bytes(part) + (op.has_backward ? 2 : 1) * definition.statistics_bytes(part);
    for (size_t o = 0; o < op.outputs.size(); ++o) {
      result.outputs[o].push_back(bytes_of(definition.output_block(static_cast<int>(o), part)));
      own += result.outputs[o].back();
    }
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const int64_t bytes = bytes_of(definition.input_block(static_cast<int>(i), part));
      result.inputs[i].push_back(bytes);
      if (graph_.tensors[op.inputs[i]].producer < 0) own += bytes;
      if (op.has_backward && graph_.input_has_gradient(id, static_cast<int>(i))) own += bytes;
    }
    for (size_t p = 0; p < op.parameters.size(); ++p) {
      const Block block = definition.parameter_block(static_cast<int>(p), part);
      const int copies = !definition.parameters()[p].trained ? 1 : op.has_backward ? 3 : 2;  // weight, velocity, gradient
      result.parameters[p].emplace_back(block_number(op.parameters[p], block), copies * bytes_of(block));
    }
    result.own.push_back(own);
  }
  return result;
}

MemoryModel::Share MemoryModel::operator_share(OperatorId op, const Strategy& strategy) {
  const PartBytes& bytes = part_bytes(op, strategy[op].degrees);
  Share share;
  for (size_t part = 0; part < bytes.own.size(); ++part) share.emplace_back(strategy[op].devices[part], bytes.own[part]);
  return share;
}

// What is packed and staged to be sent and received, and inputs that are not the producer's own buffer.
MemoryModel::Share MemoryModel::edge_share(int e, const Strategy& strategy) {
  const Edge& edge = builder_.edges()[e];
  const Configuration &producer = strategy[edge.producer], &consumer = strategy[edge.consumer];
  const bool has_gradient = graph_.operators[edge.consumer].has_backward && graph_.input_has_gradient(edge.consumer, edge.input);
  const std::vector<int64_t>& input_bytes = part_bytes(edge.consumer, consumer.degrees).inputs[edge.input];
  std::vector<int64_t> inputs = input_bytes;
  Share share;
  for (const auto pairs = builder_.pairs(e, strategy); const BlockPair& pair : *pairs) {
    const DeviceId source = producer.devices[pair.producer_part], destination = consumer.devices[pair.consumer_part];
    if (source == destination) {
      if (pair.whole_input && pair.whole_output) inputs[pair.consumer_part] = 0;
      continue;
    }
    const int directions = has_gradient ? 2 : 1;  // what the sender packs of an activation the receiver of the gradient stages, and vice versa
    if (!pair.whole_output) share.emplace_back(source, directions * pair.bytes);
    if (!pair.whole_input) share.emplace_back(destination, directions * pair.bytes);
  }
  for (size_t part = 0; part < inputs.size(); ++part)
    if (inputs[part] > 0) share.emplace_back(consumer.devices[part], inputs[part]);
  return share;
}

// Gradients of outputs that are not one consumer's own contribution.
MemoryModel::Share MemoryModel::tensor_share(TensorId id, const Strategy& strategy) {
  const Tensor& tensor = graph_.tensors[id];
  if (!tensor.has_gradient) return {};
  const Configuration& producer = strategy[tensor.producer];
  std::vector<int> contributions(producer.devices.size(), 0);
  std::vector<bool> own(producer.devices.size(), false);
  for (int e : edges_of_tensor_[id]) {
    const Edge& edge = builder_.edges()[e];
    if (!graph_.operators[edge.consumer].has_backward || !graph_.input_has_gradient(edge.consumer, edge.input)) continue;
    const std::vector<DeviceId>& consumers = strategy[edge.consumer].devices;
    for (const auto pairs = builder_.pairs(e, strategy); const BlockPair& pair : *pairs) {
      ++contributions[pair.producer_part];
      if (pair.whole_input && pair.whole_output && producer.devices[pair.producer_part] == consumers[pair.consumer_part]) own[pair.producer_part] = true;
    }
  }
  const std::vector<int64_t>& bytes = part_bytes(tensor.producer, producer.degrees).outputs[tensor.output];
  Share share;
  for (size_t part = 0; part < bytes.size(); ++part)
    if (contributions[part] != 1 || !own[part]) share.emplace_back(producer.devices[part], bytes[part]);
  return share;
}

// One copy of a parameter's block serves all parts on a device.
MemoryModel::Share MemoryModel::group_share(int g, const Strategy& strategy) {
  const ParameterGroup& group = builder_.groups()[g];
  std::vector<std::tuple<DeviceId, ParameterId, int, int64_t>> blocks;
  for (OperatorId op : group.operators) {
    const PartBytes& bytes = part_bytes(op, strategy[op].degrees);
    for (size_t p = 0; p < bytes.parameters.size(); ++p) {
      const ParameterId parameter = graph_.operators[op].parameters[p];
      if (std::find(group.parameters.begin(), group.parameters.end(), parameter) == group.parameters.end()) continue;
      for (size_t part = 0; part < bytes.parameters[p].size(); ++part)
        blocks.emplace_back(strategy[op].devices[part], parameter, bytes.parameters[p][part].first, -bytes.parameters[p][part].second);
    }
  }
  std::sort(blocks.begin(), blocks.end());  // of one block the user with a gradient comes first
  Share share;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto& [device, parameter, block, bytes] = blocks[i];
    const bool again = i > 0 && device == std::get<0>(blocks[i - 1]) && parameter == std::get<1>(blocks[i - 1]) && block == std::get<2>(blocks[i - 1]);
    if (!again) share.emplace_back(device, -bytes);
  }
  return share;
}

void MemoryModel::add(const Share& share, int64_t sign) {
  for (const auto& [device, bytes] : share) bytes_[device] += sign * bytes;
}

std::vector<int64_t> MemoryModel::bytes(const Strategy& strategy) {
  reset(strategy);
  return bytes_;
}

void MemoryModel::reset(const Strategy& strategy) {
  shares_.clear();
  undo_.clear();
  std::fill(bytes_.begin(), bytes_.end(), 0);
  const auto append = [&](Item::Kind kind, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      shares_.push_back(share({kind, static_cast<int>(i)}, strategy));
      add(shares_.back(), 1);
    }
  };
  append(Item::Kind::operation, graph_.operators.size());
  append(Item::Kind::edge, builder_.edges().size());
  append(Item::Kind::tensor, graph_.tensors.size());
  append(Item::Kind::group, builder_.groups().size());
}

const std::vector<int64_t>& MemoryModel::change(OperatorId op, const Strategy& changed) {
  undo_.clear();
  for (Item item : items_around_[op]) {
    Share& current = shares_[number(item)];
    add(current, -1);
    undo_.emplace_back(number(item), std::move(current));
    current = share(item, changed);
    add(current, 1);
  }
  return bytes_;
}

void MemoryModel::undo() {
  for (auto& [item, share] : undo_) {
    add(shares_[item], -1);
    shares_[item] = std::move(share);
    add(shares_[item], 1);
  }
  undo_.clear();
}

}  // namespace ff
