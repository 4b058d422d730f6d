// A transport that hands everything to its host: for tests, and to be derived from.
#pragma once

#include "executor/transport/device_transport.h"

namespace ff {

class ThroughTransport : public DeviceTransport {
 public:
  using DeviceTransport::DeviceTransport;
  std::string name() const override { return "through"; }
  bool follows_backend() const override { return false; }
  Request send(const void* memory, int64_t bytes, int destination, OperationLabel label) override {
    return host_.send(memory, bytes, destination, label);
  }
  Request receive(void* memory, int64_t bytes, int source, OperationLabel label) override {
    return host_.receive(memory, bytes, source, label);
  }
  bool test(Request& request) override { return host_.test(request); }
  void wait(Request& request) override { host_.wait(request); }
  void poll() override { host_.poll(); }
  Vector<GroupId> make_groups(const Vector<Vector<int>>& groups) override { return host_.make_groups(groups); }
  Request all_reduce(GroupId group, float* values, int64_t elements, OperationLabel label) override {
    return host_.all_reduce(group, values, elements, label);
  }
  Request collective(GroupId group, const CollectiveCall& call, OperationLabel label) override {
    return host_.collective(group, call, label);
  }
};

}  // namespace ff
