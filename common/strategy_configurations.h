// "configurations" of a strategy file: how operators are split and where their tasks run, as people read and edit it.
//
//   [{"operators": ["layer[1-24].*", "loss"], "degrees": {"sample": 128, "channel": 8}, "devices": "0-1023"}, ...]
//
// A configuration is given once for all operators that have it, a transformer of any depth on any number of devices in
// one screen. Old files have an object with an entry for each operator, by its name.
#pragma once

#include "common/strategy.h"

namespace ff {

struct Configurations {
  Strategy strategy;
  Vector<ConfigurationOrigin> origins;  // by OperatorId; empty where the file says nothing of them
};

// Checks every degree and device against graph and topology. Throws InputError.
Configurations parse_configurations(const JsonPlace& place, const Graph& graph, const Topology& topology);
// One of them: degrees, shares where there are any, devices.
Configuration parse_configuration(const JsonPlace& place, const Operator& op, const Topology& topology);
// {"degrees": ..., "shares": ..., "devices": ...}, without shares where there are none.
Json configuration_to_json(const Operator& op, const Configuration& configuration);
Json configurations_to_json(const Graph& graph, const Strategy& strategy, const Vector<ConfigurationOrigin>& origins);

// Their values: ranges of device numbers, or a list of numbers and names; a degree for each dimension that is split.
// Throw InputError.
Vector<DeviceId> parse_devices(const JsonPlace& place, const Topology& topology);
Degrees parse_degrees(const JsonPlace& place, const Operator& op);

// "sample 4 x channel 2 (3:1)", the shares after the degree; "whole".
std::string degrees_text(const Operator& op, const Degrees& degrees);
// A list of device numbers: as ranges where that is shorter, else as an array.
Json devices_to_json(const Vector<DeviceId>& devices);

}  // namespace ff
