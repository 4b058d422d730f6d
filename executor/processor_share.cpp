#include "executor/processor_share.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "common/json_file.h"

namespace ff {
namespace {

std::string plural(int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

// The ranks of the node on which threads have the least of a processor.
std::string shared_processors_note(const Vector<RankProcessors>& ranks, int node, double slowdown) {
  std::set<int> allowed;
  double quota = 0;
  int64_t count = 0;
  std::string host;
  for (const RankProcessors& rank : ranks) {
    if (rank.node != node) continue;
    ++count;
    host = rank.host;
    allowed.insert(rank.processors.allowed.begin(), rank.processors.allowed.end());
    quota = std::max(quota, rank.processors.quota);
  }
  const bool limited = quota > 0 && quota < static_cast<double>(allowed.size());
  return plural(count, "rank") + (count == 1 ? " has " : " share ") +
         (limited ? "a quota of " + number_text(quota) + " processors"
                  : plural(static_cast<int64_t>(allowed.size()), "processor")) +
         " on " + host + ", fewer than they have threads: they take turns, and an iteration takes up to " +
         number_text(slowdown) + " times as long as predicted, as predictions give every thread a processor of its own";
}

}  // namespace

Vector<double> processor_shares(const Vector<RankProcessors>& ranks) {
  std::map<std::pair<int, int>, int> users;  // of (node, processor)
  std::map<int, int> ranks_of_node;
  for (const RankProcessors& rank : ranks) {
    ++ranks_of_node[rank.node];
    for (const int processor : rank.processors.allowed) ++users[{rank.node, processor}];
  }
  Vector<double> shares;
  for (const RankProcessors& rank : ranks) {
    double share = 0;
    for (const int processor : rank.processors.allowed) share += 1.0 / users[{rank.node, processor}];
    if (rank.processors.quota > 0) share = std::min(share, rank.processors.quota / ranks_of_node[rank.node]);
    shares.push_back(std::min(share, rank.processors.time()));
  }
  return shares;
}

std::string processors_note(const Vector<RankProcessors>& ranks, const Vector<int>& cores) {
  constexpr double rounding = 1e-9;
  const Vector<double> shares = processor_shares(ranks);
  for (const int rank : ranks.indices())
    if (const int count = ranks[rank].processors.count(); cores[rank] > count)
      return "rank " + std::to_string(rank) + " on " + ranks[rank].host + " may use " + plural(count, "processor") +
             ", its device model has " + plural(cores[rank], "core") + ": it runs " + plural(count, "thread") +
             ", and takes longer than predicted (mpirun --bind-to none, or --cpus-per-task, gives it more)";
  double slowdown = 1;
  int node = -1;
  for (const int rank : ranks.indices())
    if (const double needed = cores[rank] / std::max(shares[rank], rounding); needed > slowdown + rounding)
      slowdown = needed, node = ranks[rank].node;
  return node < 0 ? "" : shared_processors_note(ranks, node, slowdown);
}

Vector<RankProcessors> gather_processors(Transport& transport) {
  const Processors mine = usable_processors();
  const Json own = {transport.place().node, transport.host(), mine.allowed, mine.quota, mine.of_task};
  Json all = Json::array();
  for (const std::string& bytes : transport.gather(own.dump())) all.push_back(Json::parse(bytes));
  Vector<RankProcessors> ranks;
  for (const Json& rank : Json::parse(transport.broadcast(all.dump())))
    ranks.push_back({rank[0], rank[1], {rank[2].get<std::set<int>>(), rank[3], rank[4]}});
  return ranks;
}

}  // namespace ff
