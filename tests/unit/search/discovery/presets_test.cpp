#include "search/discovery/presets.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "common/errors.h"
#include "common/topology.h"
#include "search/cost/communication.h"

namespace ff::discovery {
namespace {

Topology topology(const PresetSettings& settings) {
  return parse_topology(parse_json(topology_of_preset(settings).dump(), "preset"));
}

}  // namespace

TEST_CASE("presets: a DGX A100 or H100 is the one of the committed topologies") {
  for (const auto& [name, file] : {std::pair("dgx-a100-80gb", "dgx-a100-2"), {"dgx-h100", "dgx-h100-2"}}) {
    CAPTURE(name);
    const Topology preset = topology({.name = name, .nodes = 2}),
                   known = load_topology(FF_SOURCE_DIR "/topologies/" + std::string(file) + ".json");
    REQUIRE(preset.devices.size() == known.devices.size());
    CHECK(preset.models[0].name == known.models[0].name);
    CHECK(preset.models[0].peak_tflops == known.models[0].peak_tflops);
    CHECK(preset.models[0].memory_gb_per_s == known.models[0].memory_gb_per_s);
    CHECK(preset.models[0].memory_bytes == known.models[0].memory_bytes);
    REQUIRE(preset.channels.size() == known.channels.size());
    for (const int channel : known.channels.indices()) {
      CHECK(preset.channels[channel].bandwidth_gb_per_s == known.channels[channel].bandwidth_gb_per_s);
      CHECK(preset.channels[channel].latency_us == known.channels[channel].latency_us);
    }
  }
}

TEST_CASE("presets: every one in several sizes") {
  for (const std::string& name : preset_names())
    for (const int nodes : {1, 3})
      for (const int gpus : {0, 1, 4}) {
        CAPTURE(name, nodes, gpus);
        const Topology made = topology({name, nodes, gpus, 12.5});
        CHECK(made.devices.count() == nodes * (gpus > 0 ? gpus : 8));
        CHECK(made.models[0].memory_bytes >= 40'000'000'000);
      }
}

TEST_CASE("presets: a name that is not known") {
  try {
    topology_of_preset({.name = "dgx-h10"});
    FAIL();
  } catch (const InputError& error) {
    CHECK(std::string(error.what()) == "--preset: found \"dgx-h10\"; did you mean \"dgx-h100\"?");
  }
}

TEST_CASE("presets: A800 and H800 are A100 and H100 with fewer links, H200 is H100 with another memory") {
  const auto alike = [](const std::string& name, const std::string& of, double nvlink_share) {
    CAPTURE(name);
    const Topology made = topology({name, 1, 8, 0}), known = topology({of, 1, 8, 0});
    CHECK(made.models[0].peak_bf16_tflops == known.models[0].peak_bf16_tflops);
    CHECK(made.models[0].efficiency.products->share(4096, 1 << 24) ==
          known.models[0].efficiency.products->share(4096, 1 << 24));
    CHECK(made.models[0].efficiency.memory == known.models[0].efficiency.memory);
    REQUIRE(made.channels.size() == known.channels.size());
    for (const int channel : made.channels.indices()) {
      const Channel &own = made.channels[channel], &other = known.channels[channel];
      CHECK(own.bandwidth_gb_per_s == Approx(nvlink_share * other.bandwidth_gb_per_s));
      CHECK(own.all_reduce_gb_per_s == Approx(nvlink_share * other.all_reduce_gb_per_s));
    }
  };
  alike("dgx-a800", "dgx-a100-80gb", 2.0 / 3);
  alike("dgx-h800", "dgx-h100", 4.0 / 9);
  alike("hgx-h200", "dgx-h100", 1);
  CHECK(topology({"hgx-h200"}).models[0].memory_gb_per_s == 4800);
}

// Of topologies/microbenchmarks/nccl-h100-multinode-autoparallel.csv: rings of 8 GPUs a node, whose bandwidth large
// messages reach to 87 %.
TEST_CASE("presets: all-gathers among nodes take the times of NCCL's rings") {
  struct Measured {
    int nodes;
    double latency_us, algorithm_gb_per_s;
  };
  for (const Measured& measured : {Measured{2, 70, 409.6}, {4, 145.6, 396.4}, {8, 296.8, 390.1}, {16, 599.2, 387}}) {
    CAPTURE(measured.nodes);
    const Topology made = topology({"dgx-h100", measured.nodes, 0, 0});
    CommunicationModel communication(made);
    CommunicationCost cost;
    const int64_t bytes = int64_t{8} << 30;
    communication.collective(CollectiveKind::all_gather, made.by_links(), bytes, cost);
    const double us = static_cast<double>(cost.duration) / 1e3;
    const double gb_per_s = 0.87 * measured.algorithm_gb_per_s;
    CHECK(us == Approx(measured.latency_us + static_cast<double>(bytes) / gb_per_s / 1e3).epsilon(0.1));
  }
}

// Of the same file: latency and bandwidth of the protocols Simple and LL128, and what messages of so many bytes a GPU
// reach of the bandwidth.
TEST_CASE("presets: with a framework all-gathers take the times of NCCL's rings at all sizes") {
  struct Measured {
    int nodes;
    double simple_us, simple_gb_per_s, ll128_us, ll128_gb_per_s;
  };
  const auto reached = [](double mib_of_gpu) { return mib_of_gpu <= 8 ? 0.68 : mib_of_gpu >= 32 ? 0.87 : 0.79; };
  for (const Measured& measured : {Measured{2, 70, 409.6, 44.6, 313.2},
                                   {4, 145.6, 396.4, 79.2, 303.1},
                                   {8, 296.8, 390.1, 148.4, 298.3},
                                   {16, 599.2, 387, 286.8, 295.9},
                                   {32, 1204, 385.5, 563.6, 294.8}}) {
    const Topology made = topology({"dgx-h100", measured.nodes, 0, 0});
    CommunicationModel communication(made, /*nccl=*/true);
    for (const int mib_of_gpu : {1, 2, 4, 8, 16, 32, 128}) {
      CAPTURE(measured.nodes, mib_of_gpu);
      const int64_t bytes = int64_t{mib_of_gpu} * (8 << 20) * measured.nodes;
      CommunicationCost cost;
      communication.collective(CollectiveKind::all_gather, made.by_links(), bytes, cost);
      const auto us = [&](double latency_us, double gb_per_s) {
        return latency_us + static_cast<double>(bytes) / (reached(mib_of_gpu) * gb_per_s) / 1e3;
      };
      const double least_us =
          std::min(us(measured.simple_us, measured.simple_gb_per_s), us(measured.ll128_us, measured.ll128_gb_per_s));
      CHECK(static_cast<double>(cost.duration) / 1e3 == Approx(least_us).epsilon(mib_of_gpu > 1 ? 0.1 : 0.2));
    }
  }
}

TEST_CASE("presets: kernels reach a share of the peak rates") {
  for (const std::string& name : preset_names()) {
    CAPTURE(name);
    const DeviceModel model = topology({name, 1, 0, 0}).models[0];
    REQUIRE(model.efficiency.products);
    CHECK(model.efficiency.products->share(8192, 8192.0 * 8192) > 0.7);
    CHECK(model.efficiency.products->share(8192, 8192.0 * 8192) < 0.9);
    CHECK(model.efficiency.products->share(256, 256 * 256) < 0.1);
    CHECK(model.efficiency.sustained < 1);
    CHECK(model.efficiency.slowest > 1.01);
    CHECK(topology({name, 64, 0, 0}).models[0].efficiency.slowest > model.efficiency.slowest + 0.01);
    CHECK(model.efficiency.memory < 1);
    CHECK(model.efficiency.collectives > 0.1);
    // FlashAttention-2, -1, and -1 in Triton; cuDNN's on Hopper.
    const bool hopper = model.peak_bf16_tflops > 900;
    CHECK(model.efficiency.attention.size() == (hopper ? 4 + 2 + 4 + 4 : 4 + 2 + 4));
  }
}

}  // namespace ff::discovery
