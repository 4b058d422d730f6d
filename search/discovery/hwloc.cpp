#include "search/discovery/hwloc.h"

#include <hwloc.h>
#include <hwloc/distances.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "common/errors.h"
#include "search/discovery/shared_library.h"

namespace ff::discovery {
namespace {

// The functions of libhwloc that are used here: its header's inline functions would need the library at link time.
struct Api {
  SharedLibrary library{"libhwloc.so.15"};
  decltype(hwloc_get_api_version)* get_api_version;
  decltype(hwloc_topology_init)* topology_init;
  decltype(hwloc_topology_set_xml)* topology_set_xml;
  decltype(hwloc_topology_set_io_types_filter)* topology_set_io_types_filter;
  decltype(hwloc_topology_load)* topology_load;
  decltype(hwloc_topology_destroy)* topology_destroy;
  decltype(hwloc_get_type_depth)* get_type_depth;
  decltype(hwloc_get_nbobjs_by_depth)* get_nbobjs_by_depth;
  decltype(hwloc_get_obj_by_depth)* get_obj_by_depth;
  decltype(hwloc_bitmap_intersects)* bitmap_intersects;
  decltype(hwloc_distances_get_by_name)* distances_get_by_name;
  decltype(hwloc_distances_release)* distances_release;

  Api() {
    library.find("hwloc_get_api_version", get_api_version);
    library.find("hwloc_topology_init", topology_init);
    library.find("hwloc_topology_set_xml", topology_set_xml);
    library.find("hwloc_topology_set_io_types_filter", topology_set_io_types_filter);
    library.find("hwloc_topology_load", topology_load);
    library.find("hwloc_topology_destroy", topology_destroy);
    library.find("hwloc_get_type_depth", get_type_depth);
    library.find("hwloc_get_nbobjs_by_depth", get_nbobjs_by_depth);
    library.find("hwloc_get_obj_by_depth", get_obj_by_depth);
    library.find("hwloc_bitmap_intersects", bitmap_intersects);
    library.find("hwloc_distances_get_by_name", distances_get_by_name);
    library.find("hwloc_distances_release", distances_release);
  }
  std::string version() const {
    const unsigned version = get_api_version();
    return "(interface " + std::to_string(version >> 16) + "." + std::to_string(version >> 8 & 0xFF) + ")";
  }
};

// "100 Gb/sec (4X EDR)" in a file of /sys, in GB/s; 0 without it.
double gigabits_of_file(const std::string& path, double unit) {
  std::ifstream file(path);
  double number = 0;
  return file >> number && number > 0 ? number * unit / 8 : 0;
}

class Reader {
 public:
  Reader(const Api& api, const std::string& xml) : api_(api), xml_(xml) {
    if (api_.topology_init(&topology_) != 0) throw MachineError("hwloc: cannot make a topology");
    if (!xml.empty() && api_.topology_set_xml(topology_, xml.c_str()) != 0) refuse();
    api_.topology_set_io_types_filter(topology_, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (api_.topology_load(topology_) != 0) refuse();
  }
  ~Reader() { api_.topology_destroy(topology_); }
  Reader(const Reader&) = delete;

  Machine read() {
    machine_.source = "hwloc " + api_.version() + (xml_.empty() ? "" : ", " + file_name());
    const hwloc_obj_t root = api_.get_obj_by_depth(topology_, 0, 0);
    machine_.name = info(root, "DMIProductName");
    if (machine_.name.empty()) machine_.name = xml_.empty() ? host_name() : file_name();
    for_each(HWLOC_OBJ_PACKAGE, [&](hwloc_obj_t package) {
      if (machine_.processor.empty()) machine_.processor = info(package, "CPUModel");
    });
    if (machine_.processor.empty()) machine_.processor = info(root, "CPUModel");
    add_numa_nodes();
    for_each(HWLOC_OBJ_BRIDGE, [&](hwloc_obj_t bridge) {
      if (bridge->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST) add_devices(bridge, -1, numa_of(bridge), 0);
    });
    add_nvlinks();
    return std::move(machine_);
  }

 private:
  [[noreturn]] void refuse() const {
    api_.topology_destroy(topology_);  // a constructor that throws has no destructor
    if (xml_.empty()) throw MachineError("hwloc: cannot find out about this machine");
    throw InputError(xml_ + ": hwloc " + api_.version() +
                     " cannot read it, expected a file that lstopo wrote, of this version or an older one");
  }
  std::string file_name() const { return std::filesystem::path(xml_).filename(); }
  static std::string host_name() {
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    return host;
  }

  static std::string info(hwloc_obj_t object, const std::string& name) {
    for (unsigned i = 0; i < object->infos_count; ++i)
      if (name == object->infos[i].name) return object->infos[i].value;
    return "";
  }

  template <typename Visit>
  void for_each(hwloc_obj_type_t type, const Visit& visit) const {
    const int depth = api_.get_type_depth(topology_, type);
    const unsigned count = api_.get_nbobjs_by_depth(topology_, depth);
    for (unsigned i = 0; i < count; ++i) visit(api_.get_obj_by_depth(topology_, depth, i));
  }

  // Nodes without processors, such as a GPU's memory, are left out.
  void add_numa_nodes() {
    for_each(HWLOC_OBJ_NUMANODE, [&](hwloc_obj_t node) {
      NumaNode numa;
      numa.cores = within(HWLOC_OBJ_CORE, node, nullptr);
      if (numa.cores == 0) numa.cores = within(HWLOC_OBJ_PU, node, nullptr);
      within(HWLOC_OBJ_PACKAGE, node, &numa.package);
      numa.memory_bytes = static_cast<int64_t>(node->attr->numanode.local_memory);
      if (numa.cores == 0) return;
      machine_.numa.push_back(numa);
      numa_nodes_.push_back(node);
    });
    if (machine_.numa.empty()) throw InputError(machine_.source + ": has no NUMA node with processors");
  }

  // How many objects of a type share processors with this one; the last one's number.
  int within(hwloc_obj_type_t type, hwloc_obj_t object, int* number) const {
    int count = 0;
    for_each(type, [&](hwloc_obj_t other) {
      if (!object->cpuset || !other->cpuset || !api_.bitmap_intersects(object->cpuset, other->cpuset)) return;
      ++count;
      if (number) *number = static_cast<int>(other->logical_index);
    });
    return count;
  }

  int numa_of(hwloc_obj_t object) const {
    while (object && !object->cpuset) object = object->parent;
    for (const int node : numa_nodes_.indices())
      if (object && api_.bitmap_intersects(object->cpuset, numa_nodes_[node]->cpuset)) return node;
    return 0;
  }

  static bool is_gpu(hwloc_obj_t object) {
    constexpr unsigned display_controllers = 0x03, nvidia = 0x10de;
    return object->type == HWLOC_OBJ_PCI_DEVICE && object->attr->pcidev.class_id >> 8 == display_controllers &&
           object->attr->pcidev.vendor_id == nvidia;
  }
  static hwloc_obj_t software_device(hwloc_obj_t object, hwloc_obj_osdev_type_t type) {
    for (hwloc_obj_t child = object->io_first_child; child; child = child->next_sibling)
      if (child->type == HWLOC_OBJ_OS_DEVICE && child->attr->osdev.type == type) return child;
    return nullptr;
  }
  static hwloc_obj_t adapter_of(hwloc_obj_t object) {
    if (object->type != HWLOC_OBJ_PCI_DEVICE) return nullptr;
    const hwloc_obj_t fabric = software_device(object, HWLOC_OBJ_OSDEV_OPENFABRICS);
    return fabric ? fabric : software_device(object, HWLOC_OBJ_OSDEV_NETWORK);
  }
  static int devices_behind(hwloc_obj_t object) {
    if (is_gpu(object) || adapter_of(object)) return 1;
    int count = 0;
    for (hwloc_obj_t child = object->io_first_child; child; child = child->next_sibling) count += devices_behind(child);
    return count;
  }

  // `gb_per_s`: the slowest link since the parent; 0: not known.
  void add_devices(hwloc_obj_t object, int parent, int numa, double gb_per_s) {
    const bool on_pcie =
        object->type == HWLOC_OBJ_PCI_DEVICE ||
        (object->type == HWLOC_OBJ_BRIDGE && object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI);
    const double own = on_pcie ? static_cast<double>(object->attr->pcidev.linkspeed) : 0;
    if (own > 0) gb_per_s = gb_per_s > 0 ? std::min(gb_per_s, own) : own;
    if (is_gpu(object) || adapter_of(object)) {
      add_device(object, parent, numa, gb_per_s);
      return;
    }
    int branches = 0;
    for (hwloc_obj_t child = object->io_first_child; child; child = child->next_sibling)
      branches += devices_behind(child) > 0;
    if (on_pcie && branches > 1) {  // a host's bridge is part of the processor
      PcieVertex vertex;
      vertex.parent = parent;
      vertex.numa = numa;
      vertex.link = {gb_per_s, machine_.source + ": PCIe link"};
      machine_.pcie.push_back(vertex);
      parent = machine_.pcie.count() - 1;
      gb_per_s = 0;
    }
    for (hwloc_obj_t child = object->io_first_child; child; child = child->next_sibling)
      if (devices_behind(child) > 0) add_devices(child, parent, numa, gb_per_s);
  }

  void add_device(hwloc_obj_t object, int parent, int numa, double gb_per_s) {
    PcieVertex vertex;
    vertex.parent = parent;
    vertex.numa = numa;
    vertex.link = {gb_per_s, machine_.source + ": PCIe link"};
    if (is_gpu(object)) {
      vertex.kind = PcieVertex::Kind::gpu;
      vertex.gpu = gpu_of(object);
    } else {
      vertex.kind = PcieVertex::Kind::adapter;
      vertex.adapter = adapter(adapter_of(object));
    }
    vertices_[object->gp_index] = machine_.pcie.count();
    machine_.pcie.push_back(vertex);
  }

  Gpu gpu_of(hwloc_obj_t object) const {
    Gpu gpu;
    const auto& bus = object->attr->pcidev;
    char text[32];
    std::snprintf(text, sizeof text, "%04x:%02x:%02x.%x", static_cast<unsigned>(bus.domain), bus.bus, bus.dev,
                  bus.func);
    gpu.bus_id = text;
    for (hwloc_obj_t child = object->io_first_child; child; child = child->next_sibling) {
      if (child->type != HWLOC_OBJ_OS_DEVICE) continue;
      if (gpu.name.empty()) gpu.name = info(child, "GPUModel");
      const std::string size = info(child, "CUDAGlobalMemorySize");  // in KiB
      if (size.empty()) continue;
      gpu.memory_bytes = std::atoll(size.c_str()) * 1024;
      gpu.memory_source = machine_.source + ": CUDAGlobalMemorySize";
    }
    if (gpu.name.empty()) gpu.name = info(object, "PCIDevice");
    return gpu;
  }

  // hwloc knows adapters, not their rates: these are in /sys of this machine.
  Adapter adapter(hwloc_obj_t device) const {
    const std::string name = device->name ? device->name : "adapter";
    if (!xml_.empty()) return {name, {}};
    if (device->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS) {
      const std::string path = "/sys/class/infiniband/" + name + "/ports/1/rate";
      return {name, {gigabits_of_file(path, 1), path}};
    }
    const std::string path = "/sys/class/net/" + name + "/speed";  // in Mb/s
    return {name, {gigabits_of_file(path, 1e-3), path}};
  }

  // The vertex of a GPU, or of its software devices; -1 for anything else.
  int vertex_of(hwloc_obj_t object) const {
    for (; object; object = object->parent)
      if (const auto it = vertices_.find(object->gp_index); it != vertices_.end())
        return machine_.pcie[it->second].kind == PcieVertex::Kind::gpu ? it->second : -1;
    return -1;
  }

  // The matrix "NVLinkBandwidth" of GPUs, NVSwitches and processors, in MB/s of one direction.
  void add_nvlinks() {
    unsigned count = 1;
    hwloc_distances_s* matrix = nullptr;
    if (api_.distances_get_by_name(topology_, "NVLinkBandwidth", &count, &matrix, 0) != 0 || count == 0) return;
    const std::string source = machine_.source + ": NVLinkBandwidth";
    for (unsigned a = 0; a < matrix->nbobjs; ++a) {
      const int from = vertex_of(matrix->objs[a]);
      if (from < 0) continue;
      double to_switches = 0;
      for (unsigned b = 0; b < matrix->nbobjs; ++b) {
        const double gb_per_s = static_cast<double>(matrix->values[a * matrix->nbobjs + b]) * 1e-3;
        const hwloc_obj_t other = matrix->objs[b];
        const int to = vertex_of(other);
        if (a == b || gb_per_s <= 0) continue;
        if (to < 0 && other->type == HWLOC_OBJ_PCI_DEVICE) to_switches += gb_per_s;
        else if (to < 0) machine_.nvlinks.push_back({from, -1, numa_of(other), {gb_per_s, source}});
        else if (a < b) machine_.nvlinks.push_back({from, to, -1, {gb_per_s, source}});
      }
      if (to_switches > 0) machine_.nvlinks.push_back({from, -1, -1, {to_switches, source}});
    }
    api_.distances_release(topology_, matrix);
  }

  const Api& api_;
  const std::string& xml_;
  hwloc_topology_t topology_ = nullptr;
  Machine machine_;
  Vector<hwloc_obj_t> numa_nodes_;    // as Machine::numa
  std::map<uint64_t, int> vertices_;  // by hwloc's number of the object: index of Machine::pcie
};

}  // namespace

Machine read_hwloc(const std::string& xml) {
  if (!xml.empty() && !std::ifstream(xml)) throw InputError(xml + ": cannot open: " + std::strerror(errno));
  const Api api;
  if (api.library.failure().empty()) return Reader(api, xml).read();
  const std::string why = "hwloc was not found (" + api.library.failure() + "; Debian: libhwloc15)";
  if (!xml.empty()) throw MachineError("--hwloc-xml: " + why);
  return machine_without_hwloc(why);
}

}  // namespace ff::discovery
