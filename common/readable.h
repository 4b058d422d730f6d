// Numbers as people read them, for the summaries of both programs.
#pragma once

#include <cstdint>
#include <string>

namespace ff {

std::string with_number(const char* pattern, double value);  // as printf
std::string bytes_text(int64_t bytes);                       // "12.3 MB", of 10^6 bytes
std::string time_text(int64_t ns);                           // "1.234 ms"

}  // namespace ff
