// "0.1.0 (commit 1a2b3c4d5e6f)": the version of this build, and the commit of its source as git knows it.
#pragma once

#include <string>

namespace ff {

std::string version_text();

}  // namespace ff
