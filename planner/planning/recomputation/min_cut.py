"""The least cut of a network: which nodes lie on the side of the source where what leads out of it weighs the least.

Dinic's algorithm, "Algorithm for solution of a problem of maximum flow in networks with power estimation", 1970.
"""

from __future__ import annotations

from collections.abc import Iterable

Arc = tuple[int, int, int | None]
"""From which node to which, and how much it weighs where it is cut; None: it must not be cut."""


def least_cut(nodes: int, source: int, sink: int, arcs: Iterable[Arc]) -> frozenset[int]:
    """The nodes on the side of the source, as few as there can be in a least cut.

    Args:
        nodes: how many there are, numbered from 0.
        source: a node.
        sink: another one; not every path to it may be of arcs that must not be cut.
        arcs: of the network.
    """
    arcs = list(arcs)
    without_end = 1 + sum(weight for _, _, weight in arcs if weight is not None)
    heads: list[int] = []
    room: list[int] = []
    of: list[list[int]] = [[] for _ in range(nodes)]
    for tail, head, weight in arcs:
        of[tail].append(len(heads))
        of[head].append(len(heads) + 1)
        heads += [head, tail]
        room += [without_end if weight is None else weight, 0]
    while True:
        level = _levels(of, heads, room, source)
        if level[sink] < 0:
            return frozenset(node for node in range(nodes) if level[node] >= 0)
        _fill(of, heads, room, level, source, sink)


def _levels(of: list[list[int]], heads: list[int], room: list[int], source: int) -> list[int]:
    """How many arcs with room there are to each node at least; -1: no path leads there."""
    level = [-1] * len(of)
    level[source] = 0
    layer = [source]
    while layer:
        further = []
        for node in layer:
            for arc in of[node]:
                head = heads[arc]
                if room[arc] and level[head] < 0:
                    level[head] = level[node] + 1
                    further.append(head)
        layer = further
    return level


def _fill(of: list[list[int]], heads: list[int], room: list[int], level: list[int], source: int, sink: int) -> None:
    """Sends as much as there is room for along shortest paths."""
    place = [0] * len(of)
    path: list[int] = []
    node = source
    while True:
        # Dinic's blocking flow: the place of a node's next arc only moves on, so no dead end is entered again.
        if node == sink:
            least = min(room[arc] for arc in path)
            for arc in path:
                room[arc] -= least
                room[arc ^ 1] += least
            cut = next(number for number, arc in enumerate(path) if not room[arc])
            node = heads[path[cut] ^ 1]
            del path[cut:]
            continue
        arcs = of[node]
        while place[node] < len(arcs):
            arc = arcs[place[node]]
            if room[arc] and level[heads[arc]] == level[node] + 1:
                break
            place[node] += 1
        if place[node] < len(arcs):
            path.append(arc)
            node = heads[arc]
        elif path:
            node = heads[path.pop() ^ 1]
            place[node] += 1
        else:
            return
