"""Which inputs are state: pairs of an input and the output that replaces it after the step.

A flat training step, as frameworks export it, lists parameters among its inputs and the updated parameters among its
outputs, and nothing in the file says which belongs to which. ``infer_state`` reads it off the updates and the names,
and says by what evidence; what neither tells is refused, with the candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from planner.errors import UsageError
from planner.graph.check import check_graph
from planner.graph.model import Graph, StatePair
from planner.graph.update_forms import Term, candidates

_SUFFIXES: Final = tuple(f"{mark}{word}" for mark in "._/" for word in ("next", "new", "updated"))
_PREFIXES: Final = tuple(f"{word}{mark}" for mark in "._/" for word in ("next", "new", "updated"))
_SHOWN: Final = 5
_HINT: Final = "say which output replaces which input with --state pairs.yaml, one 'input: output' a line; {} for none"


@dataclass(frozen=True, slots=True)
class Inferred:
    """A state that was inferred, and why."""

    current: str
    following: str
    evidence: tuple[str, ...]
    """What speaks for the pair: ``name``, ``shape``, ``dataflow``, ``position`` (it alone breaks a tie)."""
    why: str
    """The same in words."""


def infer_state(graph: Graph) -> tuple[Inferred, ...]:
    """The states of a flat training step, from the form of their updates and from names.

    ``update_forms.candidates`` says which inputs each output may replace. So the gradient of a weight that is decayed,
    ``g + 1e-4 * W``, has no candidate: the factor is small, and W is read forward as well. Nor has an output that the
    loss depends on (``x + f(x)`` in a forward model, a prediction's error): it is a result on the way to the loss.

    - An output that is named after an input of its shape and dtype (``W.next``, ``new_W``) replaces it, if that is a
      candidate or there is none.
    - Of the others, outputs with the same candidates, as many as those, take them from all others: one its only
      candidate, several theirs in the order of the file. This goes on until nobody is left.

    Nothing is paired unless the graph has a scalar result, the loss. Where products read matrices that the file holds,
    the graph may be a forward model, whose ``x + f(x)`` keeps an input just so: there, an input that its update keeps
    whole is a state only if nothing else reads it, if what is added has a rate (``W - lr * g``), or by its name.

    Returns:
        Pairs in the order of the outputs; () for a graph without state.

    Raises:
        UsageError: outputs that may each replace one of several inputs: all of them, with the candidates.
    """
    positions = {op.name: index for index, op in enumerate(graph.ops)}
    made = [name for name in graph.outputs if name not in graph.inputs]
    found = {name: candidates(graph, name, positions) for name in made}
    losses = [name for name in made if _is_scalar_result(graph, name) and not found[name] and not _named(graph, name)]
    if not losses:
        return ()
    if has_own_weights(graph):
        found = {
            name: {of: term for of, term in terms.items() if term.factor != 1.0 or term.is_private or by_rate}
            for name, terms in found.items()
            for by_rate in [_is_by_rate(graph, name)]
        }
    before = _read_for(graph, losses)
    found = {name: {} if name in before else terms for name, terms in found.items()}
    return _Settling(graph, found).run()


def _is_scalar_result(graph: Graph, name: str) -> bool:
    """Whether an output may be a loss: one number without a place among others, so no [1, 1] of a batch of 1."""
    tensor = graph.tensors[name]
    return tensor.shape in ((), (1,)) and tensor.dtype.is_float


_UPDATING: Final = frozenset({"Add", "Cast", "Clip", "Div", "Identity", "Mul", "Neg", "Sub", "Sum", "Where"})
_WEIGHED: Final = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "LSTM", "GRU", "RNN"})


def has_own_weights(graph: Graph) -> bool:
    """Whether products of data with matrices that the file holds are computed: it is a forward model, then.

    A flat step has its parameters among the inputs, for it gives them back.
    """
    stated = {
        name
        for name in graph.constants
        if name not in graph.folded
        and graph.tensors[name].dtype.is_float
        and sum(size > 1 for size in graph.tensors[name].shape) > 1
    }
    for op in graph.ops:
        if op.op_type == "Transpose" and op.inputs[0] in stated:
            stated.add(op.outputs[0])
    return any(op.op_type in _WEIGHED and any(name in stated for name in op.inputs) for op in graph.ops)


def _read_for(graph: Graph, outputs: Sequence[str]) -> set[str]:
    """The tensors that lead to some outputs, and these."""
    wanted = set(outputs)
    for op in reversed(graph.ops):
        if any(name in wanted for name in op.outputs):
            wanted.update(op.inputs)
    return wanted


def _is_by_rate(graph: Graph, output: str) -> bool:
    """Whether an output is a sum in which something is multiplied with a number: an update by its rate."""
    pending, seen = [output], {output}
    while pending:
        op = graph.producer.get(pending.pop())
        if op is None or op.domain or op.op_type not in _UPDATING:
            continue
        if op.op_type in ("Mul", "Div") and any(graph.tensors[name].elements == 1 for name in op.inputs):
            return True
        following = [name for name in op.inputs if name and name not in seen]
        seen.update(following)
        pending += following
    return False


class _Settling:
    """Outputs take their inputs one after the other."""

    def __init__(self, graph: Graph, found: Mapping[str, Mapping[str, Term]]) -> None:
        self.graph = graph
        self.terms = found
        self.open = {name: tuple(terms) for name, terms in found.items() if terms}
        self.settled: dict[str, Inferred] = {}
        self.taken: set[str] = set()

    def run(self) -> tuple[Inferred, ...]:
        for name, terms in self.terms.items():
            named = _named(self.graph, name)
            if named and named not in self.taken and (not terms or named in terms):
                self._settle(name, named)
        while group := self._equal_group():
            for name, current in zip(group, self.open[group[0]], strict=True):
                self._settle(name, current, by_position=len(group) > 1)
        if self.open:
            raise self._ambiguous()
        return tuple(self.settled[name] for name in self.graph.outputs if name in self.settled)

    def _equal_group(self) -> list[str]:
        """Outputs, as many as candidates, whose candidates are the same."""
        groups: dict[tuple[str, ...], list[str]] = {}
        for name, left in self.open.items():
            groups.setdefault(left, []).append(name)
        return next((group for left, group in groups.items() if len(group) == len(left)), [])

    def _settle(self, name: str, current: str, *, by_position: bool = False) -> None:
        is_named = _named(self.graph, name) == current
        term = self.terms[name].get(current)
        kinds = {"name": is_named, "shape": True, "dataflow": term is not None, "position": by_position}
        said = ["it is named after the input"] if is_named else []
        if term is not None:
            factor = "times a computed factor" if term.factor is None else f"times {term.factor:.6g}"
            said.append(f"its update keeps the input {factor}")
        if by_position:
            said.append("of several that could be, the one in its place")
        evidence = tuple(kind for kind, speaks in kinds.items() if speaks)
        self.settled[name] = Inferred(current, name, evidence, "; ".join(said))
        self.taken.add(current)
        self.open.pop(name, None)
        left = {other: tuple(item for item in items if item != current) for other, items in self.open.items()}
        self.open = {other: items for other, items in left.items() if items}

    def _ambiguous(self) -> UsageError:
        facts = [
            f"{name!r} {list(self.graph.tensors[name].shape)}: {_listing(list(left))}"
            for name, left in self.open.items()
        ]
        what = f"output {next(iter(self.open))!r} replaces" if len(facts) == 1 else f"{len(facts)} outputs replace"
        return UsageError(f"which input {what} cannot be told", facts=tuple(facts), hint=_HINT)


def _listing(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _named(graph: Graph, output: str) -> str:
    """The input of an output's shape and dtype whose name is in the output's, or ""."""
    stems = [output.removesuffix(suffix) for suffix in _SUFFIXES if output.endswith(suffix)]
    stems += [output.removeprefix(prefix) for prefix in _PREFIXES if output.startswith(prefix)]
    goal = graph.tensors[output]
    for stem in stems:
        tensor = graph.tensors.get(stem)
        if stem in graph.inputs and tensor is not None and (tensor.shape, tensor.dtype) == (goal.shape, goal.dtype):
            return stem
    return ""


def with_state(graph: Graph, pairs: Sequence[tuple[str, str]]) -> Graph:
    """The graph with these (state, next state) pairs, and no others.

    Raises:
        UsageError: a name that is no input or output, a tensor in two pairs, or a pair of unequal shape or dtype.
    """
    facts: list[str] = []
    for kind, names, known in (
        ("an input", [current for current, _ in pairs], graph.inputs),
        ("an output", [following for _, following in pairs], graph.outputs),
    ):
        facts.extend(f"{name!r} is not {kind} of the model" for name in dict.fromkeys(names) if name not in known)
        facts.extend(f"{name!r} is in two pairs" for name in dict.fromkeys(names) if names.count(name) > 1)
    for current, following in pairs:
        if current not in graph.inputs or following not in graph.outputs:
            continue
        if following in graph.inputs:
            facts.append(f"{following!r} is an input itself, and no op makes it: let an Identity do so")
        left, right = graph.tensors[current], graph.tensors[following]
        if (left.shape, left.dtype) != (right.shape, right.dtype):
            facts.append(
                f"{current!r} is {list(left.shape)} of {left.dtype.value}, "
                f"but {following!r} is {list(right.shape)} of {right.dtype.value}"
            )
    if facts:
        raise UsageError("these tensors cannot be paired as state and next state", facts=tuple(facts))
    paired = replace(graph, state=tuple(StatePair(current, following) for current, following in pairs))
    check_graph(paired)
    return paired
