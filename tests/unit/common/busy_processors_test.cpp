#include "common/busy_processors.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

namespace ff {

TEST_CASE("processor time is that of the given processors, in seconds") {
  const std::filesystem::path root = std::filesystem::temp_directory_path() / ("busy." + std::to_string(getpid()));
  std::filesystem::create_directories(root / "proc");
  std::ofstream(root / "proc/stat") << "cpu  900 0 0 900 0 0 0 0 0 0\n"
                                       "cpu0 100 20 30 400 50 6 7 8 90 0\n"
                                       "cpu1 500 0 0 500 0 0 0 0 0 0\n"
                                       "intr 1 2 3\n";
  const double second = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
  const ProcessorTime first = processor_time({0}, root);
  CHECK(first.all == Approx(621 * second));  // guests are counted in the time of their processes already
  CHECK(first.busy == Approx(150 * second));
  CHECK(first.stolen == Approx(8 * second));
  CHECK(first.own > 0);
  const ProcessorTime both = processor_time({0, 1}, root);
  CHECK(both.all == Approx(1621 * second));
  CHECK(both.busy == Approx(650 * second));
  CHECK(processor_time({7}, root).all == 0);
  CHECK(processor_time({0}, (root / "nothing").string()).own == 0);
  std::filesystem::remove_all(root);
}

TEST_CASE("this machine's processor time passes") {
  const ProcessorTime begin = processor_time({0, 1, 2, 3});
  double work = 1;
  ProcessorTime passed;
  while (passed.own < 0.05) {
    for (int i = 0; i < 100'000; ++i) work = work * 0.999 + 0.001;
    passed = processor_time({0, 1, 2, 3}) - begin;
  }
  CHECK(work > 0);
  CHECK(passed.all >= 0.03);  // of at least one processor, in ticks of 10 ms
  CHECK(passed.busy >= 0);
}

TEST_CASE("a note says what else ran, where that was much") {
  const auto note = [](double busy, double stolen, double own, size_t processors = 2, double spread = -1) {
    return busy_note({10, busy, stolen, own}, processors, spread);
  };
  CHECK(note(5, 0, 5) == "");
  CHECK(note(5.9, 0.1, 5) == "");
  CHECK(note(4, 0, 5) == "");  // own time on other processors
  CHECK(note(9.5, 0, 5) ==
        "the machine was busy while this was measured: other processes had 45 % of the time of the 2 processors; the "
        "figures will not hold when it is idle: measure again then");
  CHECK(
      note(5, 0.3, 5, 1, 0.126) ==
      "the machine was busy while this was measured: other virtual machines had 3 % of the time of the processor; the "
      "middle half of the repetitions spans 13 % of their median; the figures will not hold when it is idle: measure "
      "again then");
  CHECK(
      note(9.5, 0.3, 5) ==
      "the machine was busy while this was measured: other processes had 45 %, other virtual machines 3 % of the time "
      "of the 2 processors; the figures will not hold when it is idle: measure again then");
  CHECK(busy_note({0.1, 0.1, 0, 0}, 2) == "");  // a few ticks tell nothing
}

}  // namespace ff
