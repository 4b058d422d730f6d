// What a transport over MPI moves per second, and what programs do meanwhile. scripts/bench_network.py runs this on
// emulated clusters and prints a table.
//
//     mpirun -n N bench_transport [ROUNDS [LARGEST_MIB]]
//
// Rank r exchanges with rank (r + N/2) mod N, which is on the other host where there are two. Each line of the output
// is an object: what moves (one-way, both-ways, all-reduce of all ranks), bytes, the median time alone (alone_us), the
// time of kernels of 2 ms that take about as long together (computing_us), and of both at once (together_us): at best
// the greater of the two.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "common/errors.h"
#include "executor/calibration/values.h"
#include "executor/transport/mpi/mpi.h"

namespace ff {
namespace {

// Work of a fixed amount that stays in the cache.
class Kernel {
 public:
  Kernel() : values_(4096, 1.0f) {
    run();
    const double us = time_us([&] { run(); });
    passes_ = std::max(1, static_cast<int>(passes_ * 2000 / us));
    us_ = time_us([&] { run(); });
  }
  void run() {
    for (int pass = 0; pass < passes_; ++pass)
      for (float& value : values_) value = value * 0.999f + 0.001f;
  }
  double us() const { return us_; }

 private:
  Vector<float> values_;
  int passes_ = 1000;
  double us_ = 0;
};

class Benchmark {
 public:
  Benchmark(Transport& transport, int rounds, int64_t largest)
      : transport_(transport), rounds_(rounds), largest_(largest),
        peer_((transport.rank() + transport.size() / 2) % transport.size()), out_(largest / 4, 1.0f), in_(largest / 4) {
    Vector<int> all;
    for (int r = 0; r < transport.size(); ++r) all.push_back(r);
    group_ = transport.make_groups({all})[0];
  }

  void run() {
    const int size = transport_.size();
    const bool sends = transport_.rank() < size / 2;
    for (int64_t bytes = 64 << 10; bytes <= largest_; bytes *= 4) {
      measure("one-way", bytes, [&] {
        if (sends) requests_.push_back(transport_.send(out_.data(), bytes, peer_, 1));
        else requests_.push_back(transport_.receive(in_.data(), bytes, peer_, 1));
      });
      measure("both-ways", bytes, [&] {
        requests_.push_back(transport_.receive(in_.data(), bytes, peer_, 2));
        requests_.push_back(transport_.send(out_.data(), bytes, peer_, 2));
      });
      measure("all-reduce", bytes,
              [&] { requests_.push_back(transport_.all_reduce(group_, out_.data(), bytes / 4, 3)); });
    }
  }

 private:
  // The slowest rank's time counts: programs go on when all have ended.
  double slowest(double us) {
    const Vector<std::string> all = transport_.gather(std::string(reinterpret_cast<const char*>(&us), sizeof us));
    for (const std::string& one : all) us = std::max(us, *reinterpret_cast<const double*>(one.data()));
    const std::string told = transport_.broadcast(std::string(reinterpret_cast<const char*>(&us), sizeof us));
    return *reinterpret_cast<const double*>(told.data());
  }

  void wait() {
    for (Request& request : requests_) transport_.wait(request);
    requests_.clear();
  }

  void measure(const std::string& what, int64_t bytes, const std::function<void()>& start) {
    Vector<double> alone, together;
    for (int round = 0; round <= rounds_; ++round) {  // the first warms up
      transport_.barrier();
      const double us = slowest(time_us([&] {
        start();
        wait();
      }));
      if (round > 0) alone.push_back(us);
    }
    const int kernels = std::max(1, static_cast<int>(median(alone) / kernel_.us()));
    double computing = 0;
    for (int round = 0; round <= rounds_; ++round) {
      transport_.barrier();
      computing = slowest(time_us([&] {
        for (int k = 0; k < kernels; ++k) kernel_.run();
      }));
      transport_.barrier();
      const double us = slowest(time_us([&] {
        start();
        for (int k = 0; k < kernels; ++k) {
          kernel_.run();
          transport_.poll();
        }
        wait();
      }));
      if (round > 0) together.push_back(us);
    }
    if (transport_.rank() > 0) return;
    std::printf(
        "{\"what\": \"%s\", \"bytes\": %lld, \"alone_us\": %.1f, \"computing_us\": %.1f, "
        "\"together_us\": %.1f}\n",
        what.c_str(), static_cast<long long>(bytes), median(alone), computing, median(together));
    std::fflush(stdout);
  }

  Transport& transport_;
  const int rounds_;
  const int64_t largest_;
  const int peer_;
  GroupId group_ = -1;
  Kernel kernel_;
  Vector<float> out_, in_;
  Vector<Request> requests_;
};

}  // namespace
}  // namespace ff

int main(int count, char** arguments) {
  try {
    const auto transport = ff::make_mpi_transport();
    if (transport->size() % 2 == 1) throw ff::InputError("an even number of ranks is needed");
    ff::Benchmark(*transport, count > 1 ? std::atoi(arguments[1]) : 5,
                  int64_t{count > 2 ? std::atoi(arguments[2]) : 64} << 20)
        .run();
    transport->barrier();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_transport: %s\n", error.what());
    return 1;
  }
}
