"""Other forms of a topology (fftopology/1): written out instead of `nodes`, its devices in another order, renamed.

Used by scripts/metamorphic.py.
"""

import copy


def written_out(topology):
    """The flat form of a topology with `nodes`, in the order in which ffsearch adds devices, switches and links."""
    if "nodes" not in topology:
        return copy.deepcopy(topology)
    nodes = topology["nodes"]
    names = [f"{nodes.get('name', 'node')}{n}" for n in range(nodes["count"])]
    flat = {key: value for key, value in topology.items() if key != "nodes"}
    flat["devices"] = list(topology.get("devices", [])) + [
        {**device, "name": f"{node}.{device['name']}", "node": node} for node in names for device in nodes["devices"]]
    flat["switches"] = [f"{node}.{name}" for node in names for name in nodes.get("switches", [])]
    network, torus, links = nodes.get("network"), nodes.get("torus"), []
    if network:
        flat["switches"].append(network["name"])
    flat["switches"] += topology.get("switches", [])
    for node in names:
        links += [{**link, "between": [f"{node}.{end}" for end in link["between"]]} for link in nodes.get("links", [])]
        if network:
            links += [{**network["link"], "between": [f"{node}.{end}", network["name"]]} for end in network["attach"]]
    if torus:
        links += torus_links(torus, names)
    flat["links"] = links + topology.get("links", [])
    return flat


def torus_links(torus, names):
    links = []
    for number, node in enumerate(names):
        stride = len(names)
        for size in torus["shape"]:
            stride //= size
            place = number // stride % size
            if size == 1 or (size == 2 and place == 1):
                continue
            neighbour = names[number + ((place + 1) % size - place) * stride]
            links.append({**torus["link"], "between": [f"{end}.{torus['attach']}" for end in (node, neighbour)]})
    return links


def renumbered(topology, order):
    """Device i of the result is device order[i]."""
    flat = written_out(topology)
    flat["devices"] = [flat["devices"][number] for number in order]
    return flat


def renamed(topology, name):
    """Every device, node and switch under name(old name)."""
    flat = written_out(topology)
    for device in flat["devices"]:
        device["name"] = name(device["name"])
        if "node" in device:
            device["node"] = name(device["node"])
    flat["switches"] = [name(switch) for switch in flat.get("switches", [])]
    for link in flat.get("links", []):
        link["between"] = [name(end) for end in link["between"]]
    return flat


def with_unused_device(topology):
    """One device more, on a switch where there is one, else linked to all others."""
    flat = written_out(topology)
    unused = dict(flat["devices"][0], name="unused")
    unused.pop("node", None)
    link = {"bandwidth_gb_per_s": 10, "latency_us": 1}
    ends = flat["switches"][:1] if flat.get("switches") else [device["name"] for device in flat["devices"]]
    flat["devices"].append(unused)
    flat["links"] = flat.get("links", []) + [{**link, "between": ["unused", end]} for end in ends]
    return flat


def scaled(topology, rate):
    """All rates times `rate`, all fixed times divided by it."""
    flat = written_out(topology)
    for model in flat["device_models"].values():
        scale(model, ("peak_tflops", "memory_gb_per_s"), rate)
        scale(model, ("launch_us",), 1 / rate)
    for link in flat.get("links", []):
        scale(link, ("bandwidth_gb_per_s", "all_reduce_gb_per_s"), rate)
        scale(link, ("latency_us", "cpu_overhead_us", "all_reduce_latency_us"), 1 / rate)
    return flat


def scale(values, keys, factor):
    for key in keys:
        if key in values:
            values[key] *= factor
