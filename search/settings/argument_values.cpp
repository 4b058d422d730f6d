#include "search/settings/argument_values.h"

#include <charconv>

#include "common/errors.h"

namespace ff {

int64_t number_of(const std::string& name, const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > (int64_t{1} << 40))
    throw InputError(name + ": found \"" + text + "\", expected a whole number from 1");
  return value;
}

}  // namespace ff
