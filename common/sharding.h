// Sharded state that differs between parameters: what the devices that hold the same parameters split among them, by
// patterns of operators (name_patterns.h). "*" stands for the operators that no other pattern names; without it the
// parameters of these are not sharded. Operators that share parameters have one sharding: what names one of them is for
// all.
#pragma once

#include "common/strategy.h"

namespace ff {

// By parameter group, for the task graph. Empty, as `sharding` is: all are alike. Throws InputError.
Vector<Synchronization> sharding_by_group(const Graph& graph, const Vector<OperatorSharding>& sharding);

// As users write it: one of the words of sharding_name, or "PATTERN=WORD,...", which the settings get as well. Throws
// InputError for what no graph can have.
void set_sharding(StrategySettings& settings, const std::string& text);
std::string written_sharding(const StrategySettings& settings);

// At commas outside brackets.
Vector<std::string> split_patterns(const std::string& text);

// The key `sharding` of a strategy file: a word, or an object of patterns with a word each.
void parse_sharding(const JsonPlace& place, const Graph& graph, StrategySettings& settings);
Json sharding_to_json(const StrategySettings& settings);

}  // namespace ff
