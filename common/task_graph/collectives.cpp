#include "common/task_graph/collectives.h"

#include <algorithm>
#include <map>
#include <optional>

namespace ff {
namespace {

// On one axis: the producers' intervals, ascending and disjoint, and runs of them that consumers read together.
class AxisRuns {
 public:
  AxisRuns(const Vector<Block>& written, const Vector<Block>& read, int axis) {
    const auto distinct = [axis](const Vector<Block>& blocks) {
      Vector<Interval> intervals;
      for (const Block& block : blocks)
        if (intervals.empty() || !(block[axis] == intervals.back())) intervals.push_back(block[axis]);
      if (intervals.size() < 2) return intervals;
      std::sort(intervals.begin(), intervals.end(),
                [](Interval a, Interval b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
      intervals.erase(std::unique(intervals.begin(), intervals.end()), intervals.end());
      return intervals;
    };
    intervals_ = distinct(written);
    run_of_.assign(intervals_.size(), -1);
    const Vector<Interval> reads = distinct(read);
    size_t last = 0;  // interval of the run before
    for (size_t r = 0; r < reads.size(); ++r) {
      read_apart_ = read_apart_ && (r == 0 || reads[r - 1].end <= reads[r].begin);
      const size_t first = index_of(reads[r].begin), end = index_of(reads[r].end - 1);
      const int run = count() - 1;
      if (run >= 0 && run_of_[first] == run && last == end && extents_.back().begin == intervals_[first].begin)
        continue;
      disjoint_ = disjoint_ && (run < 0 || last < first);
      for (size_t i = first; i <= end; ++i) run_of_[i] = run + 1;
      extents_.push_back({intervals_[first].begin, intervals_[end].end});
      last = end;
    }
  }

  // Do consumers read the same run or different ones, never a part of one?
  bool disjoint() const { return disjoint_; }
  // Do consumers read the same interval or ones that do not overlap?
  bool read_apart() const { return read_apart_; }
  int run_of(int64_t position) const { return run_of_[index_of(position)]; }
  Interval extent(int run) const { return extents_[run]; }
  int count() const { return extents_.count(); }

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

// All axes: cells are products of runs, each an exchange.
struct Runs {
  Vector<AxisRuns> axes;
  int64_t cells = 1;
  bool read_apart = true;

  // -1: of a producer's block that nobody reads.
  int64_t cell_of(const Block& block) const {
    int64_t cell = 0;
    for (int axis : axes.indices()) {
      const int run = axes[axis].run_of(block[axis].begin);
      if (run < 0) return -1;
      cell = cell * axes[axis].count() + run;
    }
    return cell;
  }
  // What all producers of an exchange write together.
  Block extent_of(const Block& read) const {
    Block extent;
    for (int axis : axes.indices()) extent.append(axes[axis].extent(axes[axis].run_of(read[axis].begin)));
    return extent;
  }
};

// Nothing where consumers read parts of each other's runs, or there are more cells than parts: exchanges of one.
std::optional<Runs> find_runs(const Vector<Block>& written, const Vector<Block>& read) {
  Runs result;
  for (int axis = 0; axis < written[0].rank(); ++axis) {
    const AxisRuns& runs = result.axes.emplace_back(written, read, axis);
    if (!runs.disjoint() || runs.count() == 0) return std::nullopt;
    result.read_apart = result.read_apart && runs.read_apart();
    result.cells *= runs.count();
    if (result.cells >= std::max(written.count(), read.count())) return std::nullopt;
  }
  return result;
}

// Blocks that are equal or do not overlap: are they all different ones?
bool all_differ(const Vector<int32_t>& parts, const Vector<Block>& blocks) {
  Vector<Vector<int64_t>> begins;
  for (int32_t part : parts) {
    Vector<int64_t>& begin = begins.emplace_back();
    for (int axis = 0; axis < blocks[part].rank(); ++axis) begin.push_back(blocks[part][axis].begin);
  }
  sort_and_unique(begins);
  return begins.size() == parts.size();
}

bool one_end_is_single(int64_t producers, int64_t consumers, bool sums) {
  return (sums ? consumers : producers) == 1 && std::max(producers, consumers) > 1;
}
bool ends_are_alike_or_large(int64_t producers, int64_t consumers, bool sums, int least_size) {
  return (producers == consumers && producers >= least_size) || (!sums && producers * consumers >= large_exchange);
}

// Is there a collective for it, if the devices fit?
bool fits_collective(const Exchange& exchange, int writers, int least_size) {
  const int producers = exchange.producers.count(), consumers = exchange.consumers.count();
  if (exchange.sums && producers != writers) return false;  // several sums
  if (exchange.reading == Exchange::Reading::other) return false;
  return (exchange.reading == Exchange::Reading::whole && one_end_is_single(producers, consumers, exchange.sums)) ||
         ends_are_alike_or_large(producers, consumers, exchange.sums, least_size);
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

// With fewer holders than a collective has at least: none.
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

bool may_be_collective(int64_t producers, int64_t consumers, bool sums, int least_size) {
  return one_end_is_single(producers, consumers, sums) ||
         ends_are_alike_or_large(producers, consumers, sums, least_size);
}

EdgeExchanges find_exchanges(const EdgeBlocks& blocks, int least_size) {
  const auto& [written, read, writers, type] = blocks;
  const int producers = written.count(), consumers = read.count();
  if (std::max(producers, consumers) < least_size) return {};
  if (writers == 1 && written == read) return {};  // part by part
  Vector<Block> not_empty = read;
  std::erase_if(not_empty, [](const Block& block) { return block.empty(); });
  const std::optional<Runs> runs = find_runs(written, not_empty);
  if (!runs) return {};

  EdgeExchanges result;
  result.least_size = least_size;
  Vector<int32_t> numbers(runs->cells, -1);  // [cell]
  Vector<Block> extents;                     // [exchange]
  Vector<int64_t> read_bytes;
  for (int32_t c = 0; c < consumers; ++c) {
    const int64_t bytes = bytes_of(type, read[c]);
    result.consumer_bytes.push_back(bytes);
    if (bytes == 0) {
      result.of_consumer.push_back(-1);
      continue;
    }
    int32_t& number = numbers[runs->cell_of(read[c])];
    if (number < 0) {
      number = result.exchanges.count();
      extents.push_back(runs->extent_of(read[c]));
      read_bytes.push_back(0);
      Exchange& exchange = result.exchanges.emplace_back();
      exchange.sums = writers > 1;
      exchange.reading = Exchange::Reading::whole;
      exchange.bytes = bytes_of(type, extents.back());
    }
    Exchange& exchange = result.exchanges[number];
    exchange.consumers.push_back(c);
    read_bytes[number] += bytes;
    if (!(read[c] == extents[number])) exchange.reading = Exchange::Reading::other;
    result.of_consumer.push_back(number);
  }
  for (int32_t p = 0; p < producers; ++p) {
    result.producer_bytes.push_back(bytes_of(type, written[p]));
    const int64_t cell = runs->cell_of(written[p]);
    const int32_t number = cell < 0 ? -1 : numbers[cell];
    result.of_producer.push_back(number);
    if (number >= 0) result.exchanges[number].producers.push_back(p);
  }
  for (int e : result.exchanges.indices()) {
    Exchange& exchange = result.exchanges[e];
    if (exchange.reading == Exchange::Reading::other && runs->read_apart && read_bytes[e] == exchange.bytes &&
        all_differ(exchange.consumers, read))
      exchange.reading = Exchange::Reading::disjoint;
    if (!fits_collective(exchange, writers, least_size)) return {};
  }
  return result;
}

Vector<Collective> collectives_of(const EdgeExchanges& edge, const Vector<DeviceId>& producers,
                                  const Vector<DeviceId>& consumers) {
  Vector<Collective> result;
  for (const Exchange& exchange : edge.exchanges) {
    result.push_back(collective_of(edge, exchange, producers, consumers));
    if (result.back().holders.count() < edge.least_size) return {};
  }
  return result;
}

}  // namespace ff
