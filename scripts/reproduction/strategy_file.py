"""The configurations of a strategy file (docs/formats.md), operator by operator."""

import fnmatch
import itertools
import re


def numbers(text):
    """What "0-3 + 0-8:4 each x2,7" stands for, as a list."""
    result = []
    for item in text.split(","):
        ranges, each, times = re.fullmatch(r"([^xe]+?)\s*(each)?\s*(?:x(\d+))?\s*", item).groups()
        parts = []
        for part in ranges.split("+"):
            first, last, stride = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*(?::\s*(\d+))?)?\s*", part).groups()
            first, last, stride = int(first), int(last or first), int(stride or 1)
            parts.append(range(first, last + 1, stride) if first <= last else range(first, last - 1, -stride))
        sums = [sum(terms) for terms in itertools.product(*parts)]
        repeat = int(times or 1)
        result += [number for number in sums for _ in range(repeat)] if each else sums * repeat
    return result


def names(pattern):
    """The names that a pattern with brackets stands for."""
    pieces = re.split(r"\[([^\]]*)\]", pattern)
    choices = [[piece] if i % 2 == 0 else [str(number) for number in numbers(piece)] for i, piece in enumerate(pieces)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def by_operator(strategy):
    """{operator: {"degrees": those above 1, "devices": a number for each task}} of a strategy, in the graph's order."""
    operators = [operator["name"] for operator in strategy["graph"]["operators"]]
    named, matched = {}, {}
    for given in strategy["configurations"]:
        devices = given["devices"]
        configuration = {"degrees": given["degrees"],
                         "devices": numbers(devices) if isinstance(devices, str) else devices}
        patterns = given["operators"] if isinstance(given["operators"], list) else [given["operators"]]
        for name in itertools.chain.from_iterable([p] if p in operators else names(p) for p in patterns):
            if name in operators:
                named[name] = configuration
            else:
                matched.update((operator, configuration) for operator in operators
                               if fnmatch.fnmatchcase(operator, name))
    return {operator: named.get(operator) or matched[operator] for operator in operators}
