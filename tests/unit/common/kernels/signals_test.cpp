#include "common/signals.h"

#include <sys/time.h>

#include <catch2/catch.hpp>
#include <csignal>

#include "common/kernels/cpu/kernels.h"
#include "common/vector.h"

using namespace ff;

namespace {

volatile std::sig_atomic_t signals = 0;

void count(int) { signals = signals + 1; }

}  // namespace

TEST_CASE("signals do not harm a matrix product that they interrupt") {
  handle_signal(SIGALRM, count);
  const itimerval often{{0, 300}, {0, 300}}, never{};
  const Vector<float> a(64 * 400, 1.0f), b(400 * 120, 2.0f), expected(64 * 120, 800.0f);
  setitimer(ITIMER_REAL, &often, nullptr);
  for (int i = 0; signals < 500 && i < 200000; ++i) {
    Vector<float> c(64 * 120);
    cpu::multiply_matrices('N', 'N', 64, 120, 400, a.data(), 400, b.data(), 120, 0.0f, c.data(), 120);
    if (c != expected) FAIL("a product is wrong after " << signals << " signals");
  }
  setitimer(ITIMER_REAL, &never, nullptr);
  std::signal(SIGALRM, SIG_DFL);
  CHECK(signals > 0);
}
