"""Which module of its model each tensor belongs to: the user's own names of layers, also for tensors without one.

A parameter's name says its module: ``encoder.layer.3.attention.query.weight`` is of ``encoder.layer.3``, up to the last
number, or ``embeddings.norm.weight`` of ``embeddings``, the module around the one that holds it. What an op makes is of
the module that its name begins with, or else of that whose parameters the op reads, or else of that of what it reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from planner.graph.model import Graph
from planner.graph.purposes import Purpose, purposes

_WORD: Final = re.compile(r"[^./]+")
_NUMBERED: Final = re.compile(r"[0-9](?![A-Za-z0-9])")
"""Not the 2 of ``conv2d``."""


def modules(graph: Graph) -> dict[str, str]:
    """By tensor its module; "" for what is of no module below the whole model.

    Args:
        graph: of a plan, with its bodies and deliveries.
    """
    purpose_of = purposes(graph)
    given = [name for name in (*graph.inputs, *graph.constants) if graph.tensors[name].elements > 1]
    parameters = [name for name in given if purpose_of[name] is Purpose.PARAMETERS] or given
    found = {name: _module(name) for name in parameters}
    known: dict[tuple[str, ...], str] = {}

    def learn(names: Iterable[str], module: str) -> None:
        for name in names:
            known.setdefault(tuple(_WORD.findall(name)), module)

    def told(names: Iterable[str], otherwise: str) -> str:
        """The module of the longest known name that one of some names begins with."""
        for name in names:
            words = _WORD.findall(name)
            for start, first in enumerate(words):
                for end in range(len(words), start, -1):
                    if (module := known.get(tuple(words[start:end]))) is not None:
                        return module
                if not first[0].isupper():  # a type of op, as in ``MatMul.block1.scores.backward``
                    break
        return otherwise

    for name, module in found.items():
        learn(filter(None, (name, re.sub(r"[./]*[^./]*$", "", name), module)), module)
    held, made = set(parameters), dict.fromkeys(graph.tensors, -1)
    for number, op in enumerate(graph.ops):
        read = [name for name in op.inputs if name in found]
        source = max(read, key=lambda name: (name in held, made[name]), default=None)
        outputs = list(filter(None, op.outputs))
        module = told((*outputs, op.name), "" if source is None else found[source])
        found |= dict.fromkeys(outputs, module)
        made |= dict.fromkeys(outputs, number)
        if read and held.issuperset(filter(None, op.inputs)):
            held.update(outputs)
        learn((*outputs, op.name, *filter(None, (name.rpartition(".")[0] for name in outputs))), module)
    for name in graph.tensors.keys() - found.keys():
        reader = next((op.outputs[0] for op in graph.consumers[name]), "")
        found[name] = told((name,), "" if purpose_of[name] is Purpose.DATA else found.get(reader, ""))
    return found | {pair.following: found[pair.current] for pair in graph.state}


def _module(parameter: str) -> str:
    words = list(_WORD.finditer(parameter))[:-1]
    numbered = [number for number, word in enumerate(words, 1) if _NUMBERED.search(word[0])]
    count = numbered[-1] if numbered else len(words) - 1
    return parameter[: words[count - 1].end()] if count > 0 else ""
