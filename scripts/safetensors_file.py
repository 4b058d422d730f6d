"""Checkpoints of ffexec: tensors of 32-bit floats by name, as safetensors files."""

import json
import struct

import numpy


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [offset, offset + values.nbytes]}
        offset += values.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            file.write(values.astype("<f4").tobytes())


def read_safetensors(path):
    with open(path, "rb") as file:
        content = file.read()
    begin = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:begin])
    header.pop("__metadata__", None)
    return {name: numpy.frombuffer(content[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]],
                                   "<f4").reshape(entry["shape"])
            for name, entry in header.items()}
