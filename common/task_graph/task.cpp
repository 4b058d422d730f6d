#include "common/task_graph/task.h"

#include "common/errors.h"

namespace ff {

static_assert([] {
  for (size_t kind = 0; kind < task_kind_count; ++kind)
    if (task_kinds[kind].kind != static_cast<TaskKind>(kind)) return false;
  return true;
}());

void check_room_in_keys(const std::string& of, const std::string& what, int64_t count, int64_t most) {
  if (count > most)
    throw InputError(of + ": " + std::to_string(count) + " " + what + ", but a task graph numbers " +
                     std::to_string(most) + " at most");
}

}  // namespace ff
