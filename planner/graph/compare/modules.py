"""The module of each tensor of a model: the user's own names of layers, also for tensors without one.

A parameter's name says its module: ``encoder.layer.3.attention.query.weight`` is of ``encoder.layer.3``, up to the last
number, or ``embeddings.norm.weight`` of ``embeddings``, the module around the one that holds it. What an op makes is of
the module that its name begins with, or else of that whose parameters the op reads, or else of that of what it reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from planner.graph.core.model import Graph
from planner.graph.step.purposes import Purpose, purposes

_WORD: Final = re.compile(r"[^./]+")
_NUMBERED: Final = re.compile(r"[0-9](?![A-Za-z0-9])")
"""Not the 2 of ``conv2d``."""


def modules(graph: Graph) -> dict[str, str]:
    """The module of each tensor; "" for what is of no module below the whole model.

    Args:
        graph: of a plan, with its bodies and deliveries.
    """
    purpose_of = purposes(graph)
    leaves = [name for name in (*graph.inputs, *graph.constants) if graph.tensors[name].elements > 1]
    parameters = [name for name in leaves if purpose_of[name] is Purpose.PARAMETERS] or leaves
    module_of = {name: parameter_module(name) for name in parameters}
    module_by_words: dict[tuple[str, ...], str] = {}

    def learn(names: Iterable[str], module: str) -> None:
        for name in names:
            module_by_words.setdefault(tuple(_WORD.findall(name)), module)

    def longest_match(names: Iterable[str], otherwise: str) -> str:
        """The module of the longest known name that one of some names begins with."""
        for name in names:
            words = _WORD.findall(name)
            for start, first in enumerate(words):
                for end in range(len(words), start, -1):
                    if (module := module_by_words.get(tuple(words[start:end]))) is not None:
                        return module
                if not first[0].isupper():  # a type of op, as in ``MatMul.block1.scores.backward``
                    break
        return otherwise

    for name, module in module_of.items():
        learn(filter(None, (name, re.sub(r"[./]*[^./]*$", "", name), module)), module)
    held, position_of = set(parameters), dict.fromkeys(graph.tensors, -1)
    for number, op in enumerate(graph.ops):
        read = [name for name in op.inputs if name in module_of]
        source = max(read, key=lambda name: (name in held, position_of[name]), default=None)
        outputs = list(filter(None, op.outputs))
        module = longest_match((*outputs, op.name), "" if source is None else module_of[source])
        module_of |= dict.fromkeys(outputs, module)
        position_of |= dict.fromkeys(outputs, number)
        if read and held.issuperset(filter(None, op.inputs)):
            held.update(outputs)
        learn((*outputs, op.name, *filter(None, (name.rpartition(".")[0] for name in outputs))), module)
    for name in graph.tensors.keys() - module_of.keys():
        reader = next((op.outputs[0] for op in graph.consumers[name]), "")
        module_of[name] = longest_match((name,), "" if purpose_of[name] is Purpose.DATA else module_of.get(reader, ""))
    return module_of | {pair.following: module_of[pair.current] for pair in graph.state}


def parameter_module(parameter: str) -> str:
    """The module that a parameter's name says; "" of none below the whole model."""
    words = list(_WORD.finditer(parameter))[:-1]
    numbered = [number for number, word in enumerate(words, 1) if _NUMBERED.search(word[0])]
    count = numbered[-1] if numbered else len(words) - 1
    return parameter[: words[count - 1].end()] if count > 0 else ""
