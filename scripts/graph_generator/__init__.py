"""Networks as operator graphs (ffgraph/1); scripts/generate_graphs.py is the command.

Adding a network: one function with the decorator @network(batch=...) in the file of its kind.
"""

# Imported for the networks that they register, in the order in which they are listed.
from . import convolutional, recurrent, transformers, recommendation  # noqa: F401
from .builder import NETWORKS, build, readable_json, write_json

__all__ = ["NETWORKS", "build", "readable_json", "write_json"]
