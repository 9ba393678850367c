"""The form of the contest's instances (``iopddl``): how they are read, and how a choice of strategies is judged.

Source: asplos-contest/2025, IOPDDL.md. An interval is half-open; costs are those of nodes and edges; the usages of the
nodes alive at a time are added up, and their sum must not be more than the limit at any.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import IO, Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.errors import InfeasibleError

Ints: TypeAlias = NDArray[np.int64]
_Kind = TypeVar("_Kind")

IMPOSSIBLE: Final = 10**18
"""What the instances charge for strategies that exclude each other."""
_MOST_USAGE: Final = 1 << 62
"""Of all nodes; sums of usages are of 64 bits."""
_MOST_DEPTH: Final = 6
_CHUNK: Final = 1 << 20
_TOKEN: Final = re.compile(r'\s*(\[[-\d\s,]*\]|"(?:[^"\\]|\\.)*"|-?\d+|[\[\]{}:,])')
_NUMBERS: Final = re.compile(r"[-\d\s,]*")


class NoInstanceError(Exception):
    """A file is not one of the contest's; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A problem: one strategy is to be chosen for each node (asplos-contest/2025, IOPDDL.md).

    Attributes:
        name: of the problem.
        intervals: when each node takes memory, half-open; shape [nodes, 2].
        costs: of each node by strategy.
        usages: of memory, of each node by strategy.
        edges: the two nodes of each edge, shape [edges, 2].
        tables: of each edge the cost by the strategies of its two nodes.
        limit: no sum of usages at a time may be more.
    """

    name: str
    intervals: Ints
    costs: tuple[Ints, ...]
    usages: tuple[Ints, ...]
    edges: Ints
    tables: tuple[Ints, ...]
    limit: int


@dataclass(frozen=True, slots=True)
class Judged:
    """What a choice of strategies costs, and the most memory that it takes at a time."""

    cost: int
    usage: int


def judge(instance: Instance, chosen: Sequence[int]) -> Judged:
    """Adds up the costs of nodes and edges, and the usages at each time.

    Args:
        instance: the problem.
        chosen: a strategy for each node.
    """
    cost = sum(int(costs[one]) for costs, one in zip(instance.costs, chosen, strict=True))
    for (first, second), table in zip(instance.edges.tolist(), instance.tables, strict=True):
        cost += int(table[chosen[first], chosen[second]])
    usages = [int(usages[one]) for usages, one in zip(instance.usages, chosen, strict=True)]
    return Judged(cost, max(_by_time(instance, usages).values(), default=0))


def refuse_impossible(instance: Instance) -> None:
    """Refuses an instance whose nodes' least usages are too much.

    Raises:
        InfeasibleError: at a time they are more than the limit.
    """
    usages = _by_time(instance, [int(usages.min()) for usages in instance.usages])
    time = max(usages, key=usages.__getitem__, default=0)
    if usages.get(time, 0) > instance.limit:
        lacks = usages[time] - instance.limit
        raise InfeasibleError(f"at time {time} nodes take at least {usages[time]:,}, {lacks:,} more than the limit")


def _by_time(instance: Instance, usages: Sequence[int]) -> dict[int, int]:
    """The sum of usages from each time on at which it changes."""
    changes: Counter[int] = Counter()
    for (lower, upper), usage in zip(instance.intervals.tolist(), usages, strict=True):
        if lower < upper:
            changes[lower] += usage
            changes[upper] -= usage
    times = sorted(changes)
    return dict(zip(times, accumulate(changes[time] for time in times), strict=True))


def read(path: Path) -> Instance:
    """Reads an instance; what is held beside its numbers, 8 bytes each, is a part of the text.

    Args:
        path: JSON, or that in gzip where the name ends in ``.gz``.

    Raises:
        NoInstanceError: it is not one.
    """
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as text:
            tokens = _tokens(text)
            found = _value(_next(tokens), tokens, 0)
            if next(tokens, None) is not None:
                raise NoInstanceError("there is text after its end")
        return _instance(found)
    except (NoInstanceError, OSError, EOFError, UnicodeDecodeError) as error:
        raise NoInstanceError(f"{path} is no instance: {error}") from error


def _tokens(text: IO[str]) -> Iterator[str]:
    """Strings, numbers, signs, and lists of numbers as a whole."""
    held, place, ended = "", 0, False
    while True:
        match = _TOKEN.match(held, place)
        whole = match is not None and match.end() < len(held)
        if whole and match is not None and match[1] == "[":  # it may be the beginning of a list of numbers
            numbers = _NUMBERS.match(held, match.end())
            whole = numbers is not None and numbers.end() < len(held)
        if not whole and not ended:
            more = text.read(_CHUNK)
            held, place, ended = held[place:] + more, 0, not more
        elif match is not None:
            place = match.end()
            yield match[1]
        elif held[place:].strip():
            raise NoInstanceError(f"{held[place : place + 20]!r} is not expected")
        else:
            return


def _value(token: str, tokens: Iterator[str], depth: int) -> object:
    """What begins with a token; lists of numbers are arrays."""
    if depth > _MOST_DEPTH:
        raise NoInstanceError("it is nested too deeply")
    if token == "{":
        fields: dict[str, object] = {}
        while (key := _next(tokens)) != "}":
            if key != ",":
                if not key.startswith('"') or _next(tokens) != ":":
                    raise NoInstanceError(f"{key!r} is not expected")
                fields[json.loads(key)] = _value(_next(tokens), tokens, depth + 1)
        return fields
    if token == "[":
        values: list[object] = []
        while (item := _next(tokens)) != "]":
            if item != ",":
                values.append(_value(item, tokens, depth + 1))
        return values
    try:
        value = json.loads(token)
        return np.array(value, dtype=np.int64) if isinstance(value, list) else value
    except (ValueError, OverflowError) as error:
        raise NoInstanceError(f"{token[:20]!r} is not expected") from error


def _next(tokens: Iterator[str]) -> str:
    token = next(tokens, None)
    if token is None:
        raise NoInstanceError("it ends early")
    return token


def _instance(found: object) -> Instance:
    """Looks at what was read.

    Raises:
        NoInstanceError: something is missing or does not fit.
    """
    problem = _field(found, "problem", dict)
    nodes, edges = _field(problem, "nodes", dict), _field(problem, "edges", dict)
    limit, name = _field(problem, "usage_limit", int), _field(problem, "name", str)
    costs, usages = _arrays(nodes, "costs"), _arrays(nodes, "usages")
    intervals, ends, flat = _arrays(nodes, "intervals"), _arrays(edges, "nodes"), _arrays(edges, "costs")
    if not len(costs) == len(usages) == len(intervals):
        raise NoInstanceError("nodes have costs, usages and intervals of different numbers")
    for node, (cost, usage, interval) in enumerate(zip(costs, usages, intervals, strict=True)):
        if len(cost) == 0 or len(cost) != len(usage) or len(interval) != 2:
            raise NoInstanceError(f"node {node} has {len(cost)} costs, {len(usage)} usages, interval {interval}")
        if min(cost.min(), usage.min()) < 0 or cost.max() > IMPOSSIBLE:
            raise NoInstanceError(f"node {node} has a cost or usage below 0, or a cost above {IMPOSSIBLE}")
    if len(ends) != len(flat):
        raise NoInstanceError(f"there are {len(ends)} edges, and costs of {len(flat)}")
    tables = []
    for edge, (pair, table) in enumerate(zip(ends, flat, strict=True)):
        if len(pair) != 2 or pair.min() < 0 or pair.max() >= len(costs) or pair[0] == pair[1]:
            raise NoInstanceError(f"edge {edge} is between {pair}, which are not two nodes")
        shape = tuple(len(costs[node]) for node in pair)
        if len(table) != shape[0] * shape[1]:
            raise NoInstanceError(f"edge {edge} has {len(table)} costs, and its nodes {shape} strategies")
        if table.min() < 0 or table.max() > IMPOSSIBLE:
            raise NoInstanceError(f"edge {edge} has a cost below 0 or above {IMPOSSIBLE}")
        tables.append(table.reshape(shape))
    if not costs:
        raise NoInstanceError("it has no nodes")
    if sum(int(usage.max()) for usage in usages) >= _MOST_USAGE:
        raise NoInstanceError(f"its nodes may take {_MOST_USAGE:,} and more in all")
    pairs = np.array(ends, dtype=np.int64).reshape(len(ends), 2)
    return Instance(name, np.array(intervals), tuple(costs), tuple(usages), pairs, tuple(tables), limit)


def _field(found: object, name: str, kind: type[_Kind]) -> _Kind:
    value = found.get(name) if isinstance(found, dict) else None
    if not isinstance(value, kind):
        raise NoInstanceError(f"it has no {name!r}, or not as {kind.__name__}")
    return value


def _arrays(found: object, name: str) -> list[Ints]:
    value = found.get(name) if isinstance(found, dict) else None
    if isinstance(value, np.ndarray) and len(value) == 0:  # "[]" may be a list of anything
        return []
    if not isinstance(value, list) or not all(isinstance(one, np.ndarray) for one in value):
        raise NoInstanceError(f"{name!r} is no list of lists of integers")
    return value
