#pragma once

#include <string>

namespace ff {

// The message of the exception of type Error that `function` throws; "" when it throws none.
template <typename Error, typename Function>
std::string message_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace ff
