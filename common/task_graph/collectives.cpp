#include "common/task_graph/collectives.h"

#include <algorithm>
#include <map>
#include <set>

namespace ff {
namespace {

// On one axis: the producers' intervals, ascending and disjoint, and runs of them that consumers read together.
class AxisRuns {
 public:
  AxisRuns(const Vector<Block>& written, const Vector<Block>& read, int axis) {
    for (const Block& block : written) intervals_.push_back(block[axis]);
    std::sort(intervals_.begin(), intervals_.end(), [](Interval a, Interval b) { return a.begin < b.begin; });
    intervals_.erase(std::unique(intervals_.begin(), intervals_.end()), intervals_.end());
    Vector<std::pair<int64_t, int64_t>> reads;
    for (const Block& block : read)
      if (!block.empty()) reads.emplace_back(block[axis].begin, block[axis].end);
    sort_and_unique(reads);
    for (size_t r = 1; r < reads.size(); ++r) read_apart_ = read_apart_ && reads[r - 1].second <= reads[r].first;
    run_of_.assign(intervals_.size(), -1);
    Vector<std::pair<size_t, size_t>> runs;  // first and last interval
    for (const Block& block : read)
      if (!block.empty()) runs.emplace_back(index_of(block[axis].begin), index_of(block[axis].end - 1));
    sort_and_unique(runs);
    for (size_t r = 0; r < runs.size(); ++r) {
      disjoint_ = disjoint_ && (r == 0 || runs[r - 1].second < runs[r].first);
      for (size_t i = runs[r].first; i <= runs[r].second; ++i) run_of_[i] = static_cast<int>(r);
      extents_.push_back({intervals_[runs[r].first].begin, intervals_[runs[r].second].end});
    }
  }

  // Do consumers read the same run or different ones, never a part of one?
  bool disjoint() const { return disjoint_; }
  // Do consumers read the same interval or ones that do not overlap?
  bool read_apart() const { return read_apart_; }
  int run_of(int64_t position) const { return run_of_[index_of(position)]; }
  Interval extent(int run) const { return extents_[run]; }

 private:
  size_t index_of(int64_t position) const {
    const auto behind = std::upper_bound(intervals_.begin(), intervals_.end(), position,
                                         [](int64_t at, Interval interval) { return at < interval.begin; });
    return static_cast<size_t>(behind - intervals_.begin()) - 1;
  }

  Vector<Interval> intervals_;
  Vector<int> run_of_;  // [interval]; -1: read by nobody
  Vector<Interval> extents_;
  bool disjoint_ = true, read_apart_ = true;
};

// What all producers of an exchange write together.
Block extent_of(const Vector<AxisRuns>& axes, const Vector<int>& runs) {
  Block extent;
  for (int axis : axes.indices()) extent.append(axes[axis].extent(runs[axis]));
  return extent;
}

bool one_end_is_single(int64_t producers, int64_t consumers, bool sums) {
  return (sums ? consumers : producers) == 1 && std::max(producers, consumers) > 1;
}
bool ends_are_alike_or_large(int64_t producers, int64_t consumers, bool sums) {
  return (producers == consumers && producers >= static_cast<int64_t>(least_collective_size)) ||
         (!sums && producers * consumers >= large_exchange);
}

// Is there a collective for it, if the devices fit?
bool fits_collective(const Exchange& exchange, int writers) {
  const int producers = exchange.producers.count(), consumers = exchange.consumers.count();
  if (exchange.sums && producers != writers) return false;  // several sums
  if (exchange.reading == Exchange::Reading::other) return false;
  if (exchange.reading == Exchange::Reading::whole && (exchange.sums ? consumers : producers) == 1)
    return one_end_is_single(producers, consumers, exchange.sums);
  return ends_are_alike_or_large(producers, consumers, exchange.sums);
}

// The devices of these parts, ascending; none if several are on one.
Vector<DeviceId> devices_of(const Vector<int32_t>& parts, const Vector<DeviceId>& devices) {
  Vector<DeviceId> result;
  for (int32_t part : parts) result.push_back(devices[part]);
  sort_and_unique(result);
  if (result.size() < parts.size()) result.clear();
  return result;
}

// What a device has of these parts' bytes at most.
int64_t most_bytes(const Vector<int32_t>& parts, const Vector<DeviceId>& devices, const Vector<int64_t>& bytes) {
  std::map<DeviceId, int64_t> sums;
  int64_t most = 0;
  for (int32_t part : parts) most = std::max(most, sums[devices[part]] += bytes[part]);
  return most;
}

Vector<DeviceId> united(const Vector<int32_t>& producers, const Vector<DeviceId>& producer_devices,
                        const Vector<int32_t>& consumers, const Vector<DeviceId>& consumer_devices) {
  Vector<DeviceId> all;
  for (int32_t part : producers) all.push_back(producer_devices[part]);
  for (int32_t part : consumers) all.push_back(consumer_devices[part]);
  sort_and_unique(all);
  return all;
}

// With fewer holders than least_collective_size: none.
Collective collective_of(const EdgeExchanges& edge, const Exchange& exchange, const Vector<DeviceId>& producers,
                         const Vector<DeviceId>& consumers) {
  using Reading = Exchange::Reading;
  const Vector<DeviceId> from = devices_of(exchange.producers, producers),
                         to = devices_of(exchange.consumers, consumers);
  const auto all = [&] { return united(exchange.producers, producers, exchange.consumers, consumers); };
  if (exchange.reading == Reading::whole && !exchange.sums && exchange.producers.size() == 1)
    return {CollectiveKind::broadcast, to.empty() ? to : all(), producers[exchange.producers[0]], exchange.bytes};
  if (exchange.reading == Reading::whole && exchange.sums && exchange.consumers.size() == 1)
    return {CollectiveKind::reduce, from.empty() ? from : all(), consumers[exchange.consumers[0]], exchange.bytes};
  const int64_t copies = exchange.copies_sent();
  const int64_t most = std::max(copies * most_bytes(exchange.producers, producers, edge.producer_bytes),
                                most_bytes(exchange.consumers, consumers, edge.consumer_bytes));
  if (!from.empty() && from == to) {
    if (exchange.sums)
      return {exchange.reading == Reading::whole ? CollectiveKind::all_reduce : CollectiveKind::reduce_scatter, from,
              -1, exchange.bytes};
    if (exchange.reading == Reading::whole) return {CollectiveKind::all_gather, from, -1, exchange.bytes};
    return {CollectiveKind::all_to_all, from, -1, most};
  }
  const int64_t pairs = int64_t{exchange.producers.count()} * exchange.consumers.count();
  if (exchange.sums || pairs < large_exchange) return {CollectiveKind::all_to_all, {}, -1, 0};
  return {CollectiveKind::all_to_all, all(), -1, most};
}

}  // namespace

std::string_view to_string(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_gather: return "all-gather";
    case CollectiveKind::reduce_scatter: return "reduce-scatter";
    case CollectiveKind::all_to_all: return "all-to-all";
    case CollectiveKind::all_reduce: return "all-reduce";
    case CollectiveKind::broadcast: return "broadcast";
    case CollectiveKind::reduce: return "reduce";
  }
  return "";
}

CollectiveKind reversed(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_gather: return CollectiveKind::reduce_scatter;
    case CollectiveKind::reduce_scatter: return CollectiveKind::all_gather;
    case CollectiveKind::broadcast: return CollectiveKind::reduce;
    case CollectiveKind::reduce: return CollectiveKind::broadcast;
    default: return kind;
  }
}

bool may_be_collective(int64_t producers, int64_t consumers, bool sums) {
  return one_end_is_single(producers, consumers, sums) || ends_are_alike_or_large(producers, consumers, sums);
}

EdgeExchanges find_exchanges(const Graph& graph, const Edge& edge, const Degrees& producer_degrees,
                             const Degrees& consumer_degrees) {
  const OperatorDefinition& producer = *graph.operators[edge.producer].definition;
  const OperatorDefinition& consumer = *graph.operators[edge.consumer].definition;
  const int output = graph.tensors[edge.tensor].output, writers = producer.partial_results(producer_degrees);
  const int producers = parts_of(producer_degrees), consumers = parts_of(consumer_degrees);
  if (std::max(producers, consumers) < 2) return {};
  Vector<Block> written, read;
  for (int p = 0; p < producers; ++p)
    written.push_back(producer.output_block(output, producer.part(producer_degrees, p)));
  for (int c = 0; c < consumers; ++c)
    read.push_back(consumer.input_block(edge.input, consumer.part(consumer_degrees, c)));
  Vector<AxisRuns> axes;
  bool read_apart = true;
  for (int axis = 0; axis < written[0].rank(); ++axis) {
    axes.emplace_back(written, read, axis);
    if (!axes.back().disjoint()) return {};
    read_apart = read_apart && axes.back().read_apart();
  }

  EdgeExchanges result;
  std::map<Vector<int>, int32_t> numbers;  // by runs
  Vector<Block> extents;
  Vector<std::set<Vector<int64_t>>> read_once;  // [exchange]: where the blocks begin that its consumers read
  Vector<int64_t> read_bytes;                   // [exchange]
  const auto runs_of = [&](const Block& block) {
    Vector<int> runs;
    for (int axis : axes.indices()) runs.push_back(axes[axis].run_of(block[axis].begin));
    return runs;
  };
  for (int32_t c = 0; c < consumers; ++c) {
    const int64_t bytes = read[c].volume() * element_bytes;
    result.consumer_bytes.push_back(bytes);
    if (bytes == 0) {
      result.of_consumer.push_back(-1);
      continue;
    }
    const Vector<int> runs = runs_of(read[c]);
    const auto [it, added] = numbers.try_emplace(runs, result.exchanges.count());
    if (added) {
      extents.push_back(extent_of(axes, runs));
      read_bytes.push_back(0);
      read_once.emplace_back();
      Exchange& exchange = result.exchanges.emplace_back();
      exchange.sums = writers > 1;
      exchange.reading = Exchange::Reading::whole;
      exchange.bytes = extents.back().volume() * element_bytes;
    }
    Exchange& exchange = result.exchanges[it->second];
    exchange.consumers.push_back(c);
    read_bytes[it->second] += bytes;
    Vector<int64_t> begins;
    for (int axis : axes.indices()) begins.push_back(read[c][axis].begin);
    read_once[it->second].insert(begins);
    if (!(read[c] == extents[it->second])) exchange.reading = Exchange::Reading::other;
    result.of_consumer.push_back(it->second);
  }
  for (int32_t p = 0; p < producers; ++p) {
    result.producer_bytes.push_back(written[p].volume() * element_bytes);
    const auto it = numbers.find(runs_of(written[p]));
    result.of_producer.push_back(it == numbers.end() ? -1 : it->second);
    if (it != numbers.end()) result.exchanges[it->second].producers.push_back(p);
  }
  for (int e : result.exchanges.indices()) {
    Exchange& exchange = result.exchanges[e];
    if (exchange.reading == Exchange::Reading::other && read_apart && read_bytes[e] == exchange.bytes &&
        read_once[e].size() == exchange.consumers.size())
      exchange.reading = Exchange::Reading::disjoint;
    if (!fits_collective(exchange, writers)) return {};
  }
  return result;
}

Vector<Collective> collectives_of(const EdgeExchanges& edge, const Vector<DeviceId>& producers,
                                  const Vector<DeviceId>& consumers) {
  Vector<Collective> result;
  for (const Exchange& exchange : edge.exchanges) {
    result.push_back(collective_of(edge, exchange, producers, consumers));
    if (result.back().holders.size() < least_collective_size) return {};
  }
  return result;
}

}  // namespace ff
