#!/usr/bin/python3
"""Converts the Fashion-MNIST data set of Debian's package dataset-fashion-mnist to what `ffexec --data DIR` reads.

    scripts/fashion_mnist.py [DIR]      default: data/fashion-mnist

Writes DIR/train/{image,label}.npy (60,000 samples) and DIR/test/{image,label}.npy (10,000): images f32 [n, 1, 28, 28],
scaled to mean 0 and standard deviation 1 over the training set; labels i32 [n]. Files that are up to date are left
alone.
"""

import argparse
import gzip
import os
import pathlib
import struct
import sys

import numpy

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = "dataset-fashion-mnist"
SOURCE = pathlib.Path("/usr/share/datasets/fashion-mnist")
MEAN, DEVIATION = 0.2860, 0.3530  # of the training set's pixels in [0, 1]


def read_idx(path, axes):
    """An array of bytes in the IDX format: 0, 0, type 8 (bytes), number of axes, their sizes (big-endian), the
    bytes."""
    with gzip.open(path) as stream:
        content = stream.read()
    if content[:4] != bytes([0, 0, 8, axes]):
        raise ValueError(f"{path}: not an IDX file of bytes with {axes} axes")
    shape = struct.unpack(f">{axes}I", content[4:4 + 4 * axes])
    values = numpy.frombuffer(content, numpy.uint8, offset=4 + 4 * axes)
    if values.size != numpy.prod(shape):
        raise ValueError(f"{path}: has {values.size} bytes of data, expected {' x '.join(map(str, shape))}")
    return values.reshape(shape)


def images(path):
    pixels = read_idx(path, 3).astype(numpy.float32) / 255
    return ((pixels - numpy.float32(MEAN)) / numpy.float32(DEVIATION))[:, None]


def labels(path):
    return read_idx(path, 1).astype(numpy.int32)


# target, source, conversion
FILES = [
    ("train/image.npy", "train-images-idx3-ubyte.gz", images),
    ("train/label.npy", "train-labels-idx1-ubyte.gz", labels),
    ("test/image.npy", "t10k-images-idx3-ubyte.gz", images),
    ("test/label.npy", "t10k-labels-idx1-ubyte.gz", labels),
]


def write_npy(path, array):
    """Writes a temporary file, syncs, renames: the file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as stream:
            numpy.save(stream, array)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description="Converts Fashion-MNIST to what `ffexec --data DIR` reads.")
    parser.add_argument("directory", nargs="?", type=pathlib.Path, default=REPOSITORY / "data" / "fashion-mnist",
                        metavar="DIR")
    directory = parser.parse_args().directory
    converted = 0
    for target_name, source_name, convert in FILES:
        source, target = SOURCE / source_name, directory / target_name
        if not source.exists():
            sys.exit(f"{source} is missing; install the package that has it: apt-get install {PACKAGE}")
        newest = max(source.stat().st_mtime, os.stat(__file__).st_mtime)
        if target.exists() and target.stat().st_mtime >= newest:
            continue
        try:
            write_npy(target, convert(source))
        except (OSError, EOFError, ValueError) as error:
            sys.exit(f"cannot convert {source} to {target}: {error}")
        converted += 1
    print(f"{directory}: " + (f"{converted} files written" if converted else "up to date"))


if __name__ == "__main__":
    main()
