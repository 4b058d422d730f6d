#include "common/task_graph/issue_order.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "common/micro_batches.h"
#include "common/number_ranges.h"
#include "common/task_graph/sharded_units.h"
#include "common/task_graph/wiring.h"

namespace ff {
namespace {

// The name of a task that is no transfer: PREFIX/NUMBER, of updates and copies of parameters PREFIX/NUMBER@DEVICE.
struct NameParts {
  uint64_t prefix;  // which one, by kind and operator or group
  int number;       // part, group of parts, or the number of a unit's first piece
  DeviceId device;  // of updates and copies of parameters; else -1
};

NameParts name_parts(const Task& task) {
  const bool on_each = task.kind == TaskKind::update || task.kind == TaskKind::parameter_copy;
  return {prefix_of(task.key), part_of(task.key), on_each ? task.device : -1};
}

// "conv1->pool1:0/activation"
std::string name_of_way(const TaskGraphBuilder& builder, const Task& task) {
  const Edge& edge = builder.edges()[task.edge];
  const std::string input = builder.graph().operators[edge.consumer].name + ":" + std::to_string(edge.input);
  const std::string& tensor = builder.graph().tensors[edge.tensor].name;
  const bool forward = direction_of(task.kind) == Direction::forward;
  return (forward ? tensor + "->" + input : input + "->" + tensor) + "/" + std::string(to_string(task.kind));
}

std::string name_prefix(const TaskGraphBuilder& builder, const Task& task) {
  if (task.kind == TaskKind::barrier) return std::string(to_string(task.kind));
  if (is_edge_collective(task.kind)) return name_of_way(builder, task);
  const bool of_operator = is_compute(task.kind) || is_reduction(task.kind);
  const int subject = subject_of(task.key);
  return (of_operator ? builder.graph().operators[subject].name : builder.groups()[subject].name) + "/" +
         std::string(to_string(task.kind));
}

// What a transfer of parameters goes to or comes from.
Task owners_update(const TaskGraph& graph, const Task& transfer) {
  const DeviceId owner = graph.units[transfer.unit].owner;
  Task update{make_task_key(TaskKind::update, subject_of(transfer.key), part_of(transfer.key), owner),
              TaskKind::update};
  update.device = owner;
  return update;
}

// The task that produces a transfer's data, of an edge.
Task producer_of(const TaskGraphBuilder& builder, const Task& transfer) {
  const Edge& edge = builder.edges()[transfer.edge];
  const Direction direction = direction_of(transfer.kind);
  const OperatorId op = sender_of(edge, direction);
  const int part = direction == Direction::forward ? other_of(transfer.key) : part_of(transfer.key);
  return {make_task_key(compute_kind(direction), op, part, 0), compute_kind(direction)};
}

// With on-demand buffers these are issued right before the task that reads what they bring, so that it lies in memory
// for a short time; all other transfers right after the task that produces what they send.
bool is_issued_for_reader(TaskKind kind, TransferBuffers buffers) {
  return buffers == TransferBuffers::on_demand &&
         (kind == TaskKind::activation || kind == TaskKind::activation_collective ||
          kind == TaskKind::parameter_gradient);
}

// The first task that reads what a transfer of an activation brings. Of statistics tasks only their operator knows
// whether there are some.
Task reader_of(const TaskGraphBuilder& builder, const Task& transfer, bool statistics) {
  const TaskKind kind = statistics ? TaskKind::forward_statistics : TaskKind::forward;
  return {make_task_key(kind, builder.edges()[transfer.edge].consumer, part_of(transfer.key), 0), kind};
}

// An issue order as a file has it: where in the order is a task?
class NamedPlaces {
 public:
  NamedPlaces(const TaskGraphBuilder& builder, const Vector<std::string>& names) : builder_(builder) {
    for (const std::string& name : names)
      if (!add(name)) {
        count_ = -1;
        return;
      }
  }

  int64_t count() const { return count_; }  // -1: some entry is not of the notation

  // -1: it is not named.
  int64_t of(const Task& task) {
    const NameParts parts = name_parts(task);
    auto [known, added] = known_.try_emplace(parts.prefix, nullptr);
    if (added)
      if (const auto it = entries_.find(name_prefix(builder_, task)); it != entries_.end()) known->second = &it->second;
    if (!known->second) return -1;
    const Entries& entries = *known->second;
    if (const auto single = entries.singles.find({parts.number, parts.device}); single != entries.singles.end())
      return single->second;
    for (const Entry& entry : entries.ranges)
      if (const int64_t place = entry.place_of(parts); place >= 0) return entry.begin + place;
    return -1;
  }

 private:
  struct Entry {
    int64_t begin, count;  // of its tasks in the order
    NumberRanges numbers;
    std::optional<NumberRanges> devices;

    int64_t place_of(const NameParts& task) const {
      if (devices.has_value() != (task.device >= 0)) return -1;
      if (!devices) return numbers.find(task.number);
      // One number with many devices is that of all of them; else they go in pairs.
      if (numbers.count() == 1) return numbers.at(0) == task.number ? devices->find(task.device) : -1;
      return numbers.find(task.number, [&](int64_t place) { return devices->at(place) == task.device; });
    }
  };
  struct Entries {
    std::map<std::pair<int64_t, int64_t>, int64_t> singles;  // by number and device: place
    Vector<Entry> ranges;
  };

  bool add(const std::string& name) {
    const size_t slash = name.rfind('/');
    if (slash == std::string::npos) return false;
    const size_t at = std::min(name.find('@', slash), name.size());
    auto numbers = NumberRanges::parse(std::string_view(name).substr(slash + 1, at - slash - 1));
    auto devices = std::optional<NumberRanges>();
    if (at < name.size()) devices = NumberRanges::parse(std::string_view(name).substr(at + 1));
    if (!numbers || (at < name.size() && !devices)) return false;
    const int64_t count = devices ? devices->count() : numbers->count();
    if (numbers->count() != count && numbers->count() != 1) return false;
    Entries& entries = entries_[name.substr(0, slash)];
    if (count == 1) entries.singles.emplace(std::pair(numbers->at(0), devices ? devices->at(0) : -1), count_);
    else entries.ranges.push_back({count_, count, std::move(*numbers), std::move(devices)});
    count_ = std::min(count_ + count, most);
    return true;
  }

  static constexpr int64_t most = int64_t{1} << 40;  // more than there are tasks
  const TaskGraphBuilder& builder_;
  int64_t count_ = 0;
  std::unordered_map<std::string, Entries> entries_;    // by prefix
  std::unordered_map<uint64_t, const Entries*> known_;  // by NameParts::prefix
};

// Tasks of one prefix, one after the other, as few entries.
void append_entries(const std::string& prefix, const Vector<NameParts>& tasks, Vector<std::string>& entries) {
  const auto entry = [&](size_t begin, size_t end) {
    Vector<int64_t> numbers, devices;
    for (size_t i = begin; i < end; ++i) {
      numbers.push_back(tasks[i].number);
      devices.push_back(tasks[i].device);
    }
    const bool one_number = std::all_of(numbers.begin(), numbers.end(), [&](int64_t n) { return n == numbers[0]; });
    if (tasks[begin].device < 0) entries.push_back(prefix + "/" + number_ranges(numbers));
    else if (one_number) entries.push_back(prefix + "/" + std::to_string(numbers[0]) + "@" + number_ranges(devices));
    else entries.push_back(prefix + "/" + number_ranges(numbers) + "@" + number_ranges(devices));
  };
  if (tasks[0].device < 0) return entry(0, tasks.size());
  // Updates of one unit on several devices are an entry, and so are those of successive units on one device each.
  size_t begin = 0;
  for (size_t at = 0; at < tasks.size();) {
    size_t end = at;
    while (end < tasks.size() && tasks[end].number == tasks[at].number) ++end;
    if (end - at > 1) {
      if (begin < at) entry(begin, at);
      entry(at, end);
      begin = end;
    }
    at = end;
  }
  if (begin < tasks.size()) entry(begin, tasks.size());
}

Vector<int> without_transfers(const TaskGraph& graph, const Vector<int>& order) {
  Vector<int> tasks;
  tasks.reserve(order.size());
  for (const int task : order)
    if (!is_transfer(graph.tasks[task].kind)) tasks.push_back(task);
  return tasks;
}

}  // namespace

Vector<OperatorId> last_operators(const TaskGraphBuilder& builder) {
  Vector<OperatorId> last_of_group;
  for (const ParameterGroup& group : builder.groups()) {
    const auto last = std::find_if(group.operators.begin(), group.operators.end(),
                                   [&](OperatorId op) { return builder.graph().operators[op].has_backward; });
    last_of_group.push_back(last == group.operators.end() ? -1 : *last);
  }
  return last_of_group;
}

std::string task_name(const TaskGraphBuilder& builder, const TaskGraph& tasks, int index) {
  const Task& task = tasks.tasks[index];
  if (is_parameter_transfer(task.kind))  // "fc1/parameter_gradient/0@3-0": of unit 0, from device 3 to device 0
    return name_prefix(builder, task) + "/" + std::to_string(part_of(task.key)) + "@" + std::to_string(task.device) +
           "-" + std::to_string(task.destination);
  if (is_transfer(task.kind)) {
    const std::string from = std::to_string(task.pair->producer_part), to = std::to_string(task.pair->consumer_part);
    return name_of_way(builder, task) + "/" + (task.kind == TaskKind::activation ? from + "-" + to : to + "-" + from);
  }
  const NameParts parts = name_parts(task);
  const std::string name = name_prefix(builder, task) + "/" + std::to_string(parts.number);
  return parts.device < 0 ? name : name + "@" + std::to_string(parts.device);
}

namespace {

// A task's position in the default order.
struct DefaultPlace {
  int pass;   // forward, backward, reductions after it, owners or updated shards
  int op;     // backward: counted from the end; owners, shards: the group
  int stage;  // of an operator
  int part;
  // 1: after the task that produces its data, -1: in front of the one that reads it; 2: after its transfer; -2:
  // recomputed in front of it; -3: weights gathered for it
  int transfer;
  TaskKey key;
  auto operator<=>(const DefaultPlace&) const = default;
};

constexpr int pass_after_backward = 2, last_pass = 3;

// Where parameters have owners: after all barriers, unit by unit.
DefaultPlace place_behind_barriers(const TaskGraph& graph, const Task& task) {
  if (task.kind == TaskKind::barrier) return {last_pass, -1, 0, part_of(task.key), 0, task.key};
  const int side = task.kind == TaskKind::parameter_gradient     ? -1
                   : task.kind == TaskKind::parameter_values     ? 1
                   : task.device == graph.units[task.unit].owner ? 0
                                                                 : 2;
  return {last_pass, subject_of(task.key), 0, part_of(task.key), side, task.key};
}

DefaultPlace default_place(const TaskGraphBuilder& builder, const TaskGraph& graph, const Task& task,
                           const Vector<OperatorId>& last_of_group, TransferBuffers buffers) {
  enum Stage { statistics, reductions, parts, collectives, synchronizations, updates };
  const auto place = [&](Direction direction, OperatorId op, Stage stage, int part) {
    const bool forward = direction == Direction::forward;
    return DefaultPlace{forward ? 0 : 1, forward ? op : -op, stage, part, 0, task.key};
  };
  if (task.kind == TaskKind::barrier || (task.unit >= 0 && graph.units[task.unit].owner != no_owner))
    return place_behind_barriers(graph, task);
  const auto in_front = [&](Direction direction, int transfer) {
    const bool may_have_statistics = builder.graph().operators[task.before_op].definition->may_have_statistics();
    DefaultPlace result = place(direction, task.before_op, may_have_statistics ? statistics : parts, task.before_part);
    result.transfer = transfer;
    return result;
  };
  if (task.kind == TaskKind::parameter_all_gather && task.before_op >= 0)
    return in_front(task.round % 2 == 0 ? Direction::forward : Direction::backward, -3);
  if (task.kind == TaskKind::parameter_all_gather || task.kind == TaskKind::parameter_copy)  // unit by unit
    return {last_pass, subject_of(task.key), 0, part_of(task.key), task.kind == TaskKind::parameter_copy, task.key};
  const Direction direction = direction_of(task.kind);
  if (is_statistics(task.kind)) return place(direction, task.op, statistics, task.part);
  if (is_reduction(task.kind)) return place(direction, task.op, reductions, task.part);
  if (task.kind == TaskKind::recompute) return in_front(Direction::backward, -2);  // behind what is gathered for it
  if (is_compute(task.kind)) return place(direction, task.op, parts, task.part);
  const auto beside = [&](OperatorId op, int part, bool in_front) {
    const bool may_have_statistics = builder.graph().operators[op].definition->may_have_statistics();
    DefaultPlace result = place(direction, op, in_front && may_have_statistics ? statistics : parts, part);
    result.transfer = in_front ? -1 : 1;
    return result;
  };
  const bool for_reader = is_issued_for_reader(task.kind, buffers);
  if (is_transfer(task.kind) && for_reader) return beside(builder.edges()[task.edge].consumer, part_of(task.key), true);
  if (is_edge_collective(task.kind) && buffers == TransferBuffers::on_demand) {
    const Vector<int32_t>& consumers = graph.collectives[task.collective].exchange().consumers;
    const auto [first, last] = std::minmax_element(consumers.begin(), consumers.end());
    return beside(builder.edges()[task.edge].consumer, for_reader ? *first : *last, for_reader);
  }
  if (is_transfer(task.kind)) {
    const TaskKey producer = producer_of(builder, task).key;
    DefaultPlace behind = place(direction, subject_of(producer), parts, part_of(producer));
    behind.transfer = 1;
    return behind;
  }
  if (is_edge_collective(task.kind))
    return place(direction, sender_of(builder.edges()[task.edge], direction), collectives, 0);
  const OperatorId last = last_of_group[subject_of(task.key)];
  DefaultPlace result = place(Direction::backward, last, task.kind == TaskKind::update ? updates : synchronizations, 0);
  if (graph.reduces_after_backward(task)) result.pass = pass_after_backward;
  return result;
}

// Are tasks in the default order? Without sorting them, which takes long for the millions of a large cluster.
bool are_in_default_order(const TaskGraphBuilder& builder, const TaskGraph& graph, const Vector<int>& tasks,
                          TransferBuffers buffers) {
  const Vector<OperatorId> last_of_group = last_operators(builder);
  std::optional<DefaultPlace> before;
  for (const int t : tasks) {
    const DefaultPlace place = default_place(builder, graph, graph.tasks[t], last_of_group, buffers);
    if (before && !(*before < place)) return false;
    before = place;
  }
  return true;
}

}  // namespace

Vector<int> default_issue_order(const TaskGraphBuilder& builder, const TaskGraph& graph, TransferBuffers buffers) {
  const Vector<OperatorId> last_of_group = last_operators(builder);
  Vector<std::pair<DefaultPlace, int>> places;
  places.reserve(graph.tasks.size());
  for (const int t : graph.tasks.indices())
    places.emplace_back(default_place(builder, graph, graph.tasks[t], last_of_group, buffers), t);
  std::sort(places.begin(), places.end());
  Vector<int> order;
  order.reserve(places.size());
  for (const auto& [place, task] : places) order.push_back(task);
  return order;
}

namespace {

// When tasks are issued in a pipeline: with the pass that they belong to (PipelineSchedule).
class PipelinePlaces {
 public:
  PipelinePlaces(const TaskGraphBuilder& builder, const TaskGraph& graph, const Strategy& strategy,
                 const PipelineSchedule& schedule, TransferBuffers buffers)
      : builder_(builder), graph_(graph), strategy_(strategy), schedule_(schedule), buffers_(buffers),
        last_of_group_(last_operators(builder)) {}

  struct Place {
    int64_t start;
    DefaultPlace in_pass;
    auto operator<=>(const Place&) const = default;
  };
  Place of(const Task& task) const {
    Place place{start_of(task), default_place(builder_, graph_, task, last_of_group_, buffers_)};
    // Behind the updates of its group, so that it goes on while others are updated.
    if (task.kind == TaskKind::parameter_all_gather && task.before_op < 0) {
      Task update = task;
      update.kind = TaskKind::update;
      place.in_pass = default_place(builder_, graph_, update, last_of_group_, buffers_);
      place.in_pass.transfer = 1;
    }
    return place;
  }

 private:
  int64_t start_of(OperatorId op, Direction direction, int32_t part) const {
    return schedule_.start_of(op, direction, micro_batch_of_part(builder_, strategy_, op, part));
  }

  int64_t start_of(const Task& task) const {
    if (task.kind == TaskKind::recompute) return start_of(task.before_op, Direction::backward, task.before_part);
    if (is_compute(task.kind)) return start_of(task.op, direction_of(task.kind), task.part);
    if (is_reduction(task.kind)) {  // groups of parts are those of one micro-batch
      const int groups = builder_.graph().operators[task.op].definition->statistics_groups(strategy_[task.op].degrees);
      return schedule_.start_of(task.op, direction_of(task.kind), task.part / (groups / builder_.micro_batches()));
    }
    if (is_edge_transfer(task.kind) || is_edge_collective(task.kind)) return start_of_exchange(task);
    if (task.kind == TaskKind::synchronization) return start_of_reduction(task);
    if (task.kind == TaskKind::parameter_all_gather && task.before_op >= 0)
      return start_of(task.before_op, task.round % 2 == 0 ? Direction::forward : Direction::backward, task.before_part);
    return PipelineSchedule::after_all;
  }

  int64_t start_of_exchange(const Task& task) const {
    const Edge& edge = builder_.edges()[task.edge];
    const Direction direction = direction_of(task.kind);
    const bool of_consumers = direction == Direction::backward || is_issued_for_reader(task.kind, buffers_);
    const OperatorId op = of_consumers ? edge.consumer : edge.producer;
    if (is_edge_transfer(task.kind))
      return start_of(op, direction, of_consumers ? task.pair->consumer_part : task.pair->producer_part);
    const Exchange& exchange = graph_.collectives[task.collective].exchange();
    const auto [first, last] = std::minmax_element((of_consumers ? exchange.consumers : exchange.producers).begin(),
                                                   (of_consumers ? exchange.consumers : exchange.producers).end());
    return start_of(op, direction, of_consumers && direction == Direction::forward ? *first : *last);
  }

  int64_t start_of_reduction(const Task& task) const {
    const int group = graph_.units[task.unit].group;
    if (graph_.units[task.unit].owner != no_owner || graph_.reduces_after_backward(task))
      return PipelineSchedule::after_all;
    int micro_batch = builder_.micro_batches() - 1;
    if (const ShardRounds rounds = shard_rounds(builder_, group); rounds.gradients)
      micro_batch = rounds.micro_batch(task.round, Direction::backward);
    int64_t last = PipelineSchedule::before_all;
    for (const OperatorId op : builder_.groups()[group].operators) {
      const Operator& user = builder_.graph().operators[op];
      if (user.has_backward)
        last = std::max(
            last, schedule_.start_of(op, Direction::backward, has_micro_batches(*user.definition) ? micro_batch : -1));
    }
    return last;
  }

  const TaskGraphBuilder& builder_;
  const TaskGraph& graph_;
  const Strategy& strategy_;
  const PipelineSchedule& schedule_;
  const TransferBuffers buffers_;
  const Vector<OperatorId> last_of_group_;
};

}  // namespace

bool is_allowed(const TaskGraph& graph, const Vector<int>& order) {
  Vector<int> place(graph.tasks.size());
  for (const int i : order.indices()) place[order[i]] = i;
  for (const int t : graph.tasks.indices())
    for (int32_t s = graph.successor_begin[t]; s < graph.successor_begin[t + 1]; ++s)
      if (place[graph.successors[s]] < place[t]) return false;
  return true;
}

Vector<int> pipeline_issue_order(const TaskGraphBuilder& builder, const TaskGraph& graph, const Strategy& strategy,
                                 const PipelineSchedule& schedule, TransferBuffers buffers) {
  const PipelinePlaces places_of(builder, graph, strategy, schedule, buffers);
  Vector<PipelinePlaces::Place> places;
  places.reserve(graph.tasks.size());
  int64_t latest = PipelineSchedule::before_all;  // start, but for what comes after all
  for (const Task& task : graph.tasks) {
    const int64_t start = places.emplace_back(places_of.of(task)).start;
    if (start != PipelineSchedule::after_all) latest = std::max(latest, start);
  }
  // By start, of which there are few, and then by place.
  const auto bucket = [&](int task) { return std::min(places[task].start, latest + 1) - PipelineSchedule::before_all; };
  Vector<int> end(latest + 3 - PipelineSchedule::before_all, 0);  // [bucket]
  for (const int t : places.indices()) ++end[bucket(t) + 1];
  std::partial_sum(end.begin(), end.end(), end.begin());
  Vector<int> order(places.size(), 0);
  for (const int t : places.indices()) order[end[bucket(t)]++] = t;
  int begin = 0;
  for (const int next : end) {
    std::sort(order.begin() + begin, order.begin() + next,
              [&](int one, int other) { return places[one].in_pass < places[other].in_pass; });
    begin = next;
  }
  return order;
}

Vector<int> on_demand_issue_order(const TaskGraph& graph, const Vector<int>& order) {
  const auto is_late = [&](int task) {
    return is_issued_for_reader(graph.tasks[task].kind, TransferBuffers::on_demand);
  };
  Vector<int> place(graph.tasks.size());
  for (int i : order.indices()) place[order[i]] = i;
  Vector<Vector<int>> in_front(graph.tasks.size()), behind(graph.tasks.size());
  for (int task : graph.tasks.indices())
    for (int32_t s = graph.successor_begin[task], first = -1; s < graph.successor_begin[task + 1]; ++s) {
      const int successor = graph.successors[s];
      if (const TaskKind kind = graph.tasks[successor].kind;
          kind == TaskKind::gradient || kind == TaskKind::parameter_values)
        behind[task].push_back(successor);
      if (!is_late(task) || (first >= 0 && place[first] < place[successor])) continue;
      if (first >= 0) in_front[first].pop_back();
      first = successor;
      in_front[first].push_back(task);
    }
  const auto sort = [&](Vector<int>& tasks) {
    std::sort(tasks.begin(), tasks.end(), [&](int a, int b) {
      const Task &one = graph.tasks[a], &other = graph.tasks[b];
      return std::pair(is_transfer(one.kind), one.key) < std::pair(is_transfer(other.kind), other.key);
    });
  };
  Vector<int> result;
  for (int task : order) {
    if (is_late(task) || is_transfer(graph.tasks[task].kind)) continue;
    sort(in_front[task]);
    sort(behind[task]);
    result.insert(result.end(), in_front[task].begin(), in_front[task].end());
    result.push_back(task);
    result.insert(result.end(), behind[task].begin(), behind[task].end());
  }
  return result;
}

NamedOrder order_by_names(const TaskGraphBuilder& builder, const TaskGraph& graph, const Vector<std::string>& names,
                          TransferBuffers buffers) {
  NamedPlaces named(builder, names);
  NamedOrder result;
  result.named = named.count();
  for (const Task& task : graph.tasks)
    if (!is_transfer(task.kind))
      result.counted += graph.devices.empty() || !is_collective(task.kind) ||
                        std::binary_search(graph.devices.begin(), graph.devices.end(), graph.holders(task)[0]);
  if (result.named < result.counted) return result;
  // Of a transfer: that of its producer, or reader, and on which side of it.
  Vector<std::tuple<int64_t, int, TaskKey, int>> places;
  for (const int t : graph.tasks.indices()) {
    const Task& task = graph.tasks[t];
    const bool transfer = is_transfer(task.kind);
    if (is_parameter_transfer(task.kind)) {
      const int64_t place = named.of(owners_update(graph, task));
      if (place < 0) return result;
      places.emplace_back(place, task.kind == TaskKind::parameter_gradient ? -1 : 1, task.key, t);
      continue;
    }
    const bool late = transfer && is_issued_for_reader(task.kind, buffers);
    int64_t place = named.of(late ? reader_of(builder, task, true) : transfer ? producer_of(builder, task) : task);
    if (late && place < 0) place = named.of(reader_of(builder, task, false));
    if (place < 0) return result;
    places.emplace_back(place, late ? -1 : transfer ? 1 : 0, task.key, t);
  }
  std::sort(places.begin(), places.end());
  Vector<int> order;
  for (const auto& [place, side, key, task] : places) order.push_back(task);
  if (is_allowed(graph, order)) result.order = std::move(order);
  return result;
}

Vector<int> issue_order_from_names(const TaskGraphBuilder& builder, const TaskGraph& graph,
                                   const Vector<std::string>& names, TransferBuffers buffers) {
  NamedOrder found = order_by_names(builder, graph, names, buffers);
  return found.counted == found.named ? std::move(found.order) : Vector<int>();
}

Vector<std::string> issue_order_names(const TaskGraphBuilder& builder, const TaskGraph& graph,
                                      const Vector<int>& order) {
  const Vector<int> tasks = without_transfers(graph, order);
  Vector<std::string> entries;
  Vector<NameParts> run;
  for (const int i : tasks.indices()) {
    const Task& task = graph.tasks[tasks[i]];
    run.push_back(name_parts(task));
    if (i + 1 < tasks.count() && name_parts(graph.tasks[tasks[i + 1]]).prefix == run[0].prefix) continue;
    append_entries(name_prefix(builder, task), run, entries);
    run.clear();
  }
  return entries;
}

Vector<std::string> issue_order_to_save(const TaskGraphBuilder& builder, const TaskGraph& graph,
                                        const Vector<int>& order, TransferBuffers buffers) {
  if (are_in_default_order(builder, graph, without_transfers(graph, order), buffers)) return {};
  return issue_order_names(builder, graph, order);
}

}  // namespace ff
