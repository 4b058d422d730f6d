#include "common/version.h"

#include "version_commit.h"  // written by cmake/version.cmake when a commit is built first

namespace ff {

std::string version_text() {
  const std::string commit = FF_COMMIT;
  return std::string(FF_VERSION) + (commit.empty() ? "" : " (commit " + commit + ")");
}

}  // namespace ff
