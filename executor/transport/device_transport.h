// What transports of a GPU's memory have in common: ranks, control data and host memory are those of another transport.
#pragma once

#include <cstdlib>

#include "executor/transport/transport.h"

namespace ff {

class DeviceTransport : public Transport {
 public:
  explicit DeviceTransport(Transport& host) : host_(host) {}

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  std::string host() const override { return host_.host(); }
  NodePlace place() const override { return host_.place(); }
  bool follows_backend() const override { return true; }
  int largest_tag() const override { return host_.largest_tag(); }
  Transport& for_host_memory() override { return host_.for_host_memory(); }

  void barrier() override { host_.barrier(); }
  Vector<std::string> gather(const std::string& bytes) override { return host_.gather(bytes); }
  std::string broadcast(const std::string& bytes) override { return host_.broadcast(bytes); }
  [[noreturn]] void abort(int exit_code) override {
    host_.abort(exit_code);
    std::_Exit(exit_code);
  }

 protected:
  Transport& host_;
};

}  // namespace ff
