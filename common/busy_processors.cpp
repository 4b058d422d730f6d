#include "common/busy_processors.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <fstream>
#include <sstream>

namespace ff {
namespace {

double process_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::string percent(double fraction) { return std::to_string(static_cast<int>(fraction * 100 + 0.5)) + " %"; }

}  // namespace

double ProcessorTime::others_share() const { return all > 0 ? std::max(0.0, (busy - own) / all) : 0; }
double ProcessorTime::stolen_share() const { return all > 0 ? stolen / all : 0; }

ProcessorTime& ProcessorTime::operator+=(const ProcessorTime& other) {
  all += other.all;
  busy += other.busy;
  stolen += other.stolen;
  own += other.own;
  return *this;
}

ProcessorTime ProcessorTime::operator-(const ProcessorTime& begin) const {
  return {all - begin.all, busy - begin.busy, stolen - begin.stolen, own - begin.own};
}

ProcessorTime processor_time(const std::set<int>& processors, const std::string& root) {
  ProcessorTime time;
  const double second = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));  // of a tick
  std::ifstream file(root + "/proc/stat");
  for (std::string line; std::getline(file, line);) {
    int processor = -1;
    // user, nice, system, idle, waiting for input or output, interrupts, soft interrupts, stolen; guests are in user
    std::array<double, 8> ticks{};
    if (line.rfind("cpu", 0) != 0 || line[3] == ' ') continue;
    std::istringstream text(line.substr(3));
    text >> processor;
    for (double& one : ticks) text >> one;
    if (processors.count(processor) == 0) continue;
    for (const double one : ticks) time.all += one * second;
    time.busy += (ticks[0] + ticks[1] + ticks[2]) * second;
    time.stolen += ticks[7] * second;
  }
  if (time.all > 0) time.own = process_seconds();
  return time;
}

std::string busy_note(const ProcessorTime& time, size_t processors, double spread) {
  constexpr double much_others = 0.1, much_stolen = 0.02, least_s = 0.15;  // the kernel counts in ticks of 10 ms
  const bool others = time.others_share() > much_others, stolen = time.stolen_share() > much_stolen;
  if (time.all < least_s || (!others && !stolen)) return "";
  std::string text = "the machine was busy while this was measured: ";
  const std::string of = processors == 1 ? "the processor" : "the " + std::to_string(processors) + " processors";
  if (others) text += "other processes had " + percent(time.others_share());
  if (others && stolen) text += ", other virtual machines ";
  else if (stolen) text += "other virtual machines had ";
  if (stolen) text += percent(time.stolen_share());
  text += " of the time of " + of;
  if (spread >= 0) text += "; the middle half of the repetitions spans " + percent(spread) + " of their median";
  return text + "; the figures will not hold when it is idle: measure again then";
}

}  // namespace ff
