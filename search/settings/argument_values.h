// Values of frameworks' arguments.
#pragma once

#include <cstdint>
#include <string>

namespace ff {

// A whole number from 1 to 2^40. Throws InputError, which begins with `name`, for anything else.
int64_t number_of(const std::string& name, const std::string& text);

}  // namespace ff
