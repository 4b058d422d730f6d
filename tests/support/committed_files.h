// Files of the repository that tests read. FF_SOURCE_DIR is its root.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include "common/topology.h"
#include "common/vector.h"

namespace ff {

inline std::string committed_text(const std::string& path) {
  std::ifstream stream(std::string(FF_SOURCE_DIR) + "/" + path);
  if (!stream) throw std::runtime_error("cannot read " + path);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

inline Vector<std::string> committed_json_files(const std::string& folder) {
  Vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(FF_SOURCE_DIR) + "/" + folder))
    if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

inline Topology committed_topology(const std::string& name) {
  return load_topology(std::string(FF_SOURCE_DIR) + "/topologies/" + name + ".json");
}

}  // namespace ff
