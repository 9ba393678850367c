"""The inference of state among inputs: pairs of an input and the output that replaces it after the step.

A flat training step, as frameworks export it, lists parameters among its inputs and the updated parameters among its
outputs, and nothing in the file says which belongs to which. ``find_state`` reads it off the updates and the names,
and says by what evidence; what neither tells is refused, with the candidates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from planner.errors import UsageError, repeated
from planner.graph.core.check import check_graph
from planner.graph.core.dependence import computed_from, leading_to
from planner.graph.core.model import Graph, StatePair
from planner.graph.core.traits import CONVOLUTIONS, MATRIX_PRODUCTS, RECURRENT
from planner.graph.step.gradient_products import GradientProducts, gradient_products
from planner.graph.step.remains import FlatStep, Inferred, Remains, roots_of
from planner.graph.step.state_warnings import lines_of
from planner.graph.step.update_forms import Term, candidates, every_term, steps
from planner.walk import walk

_SUFFIXES: Final = tuple(f"{mark}{word}" for mark in "._/" for word in ("next", "new", "updated"))
_PREFIXES: Final = tuple(f"{word}{mark}" for mark in "._/" for word in ("next", "new", "updated"))
_LEAST_DECAY: Final = 0.5
_HINT: Final = "say which output replaces which input with --state pairs.yaml, one pair a line ({1}); {0} for none"


@dataclass(frozen=True, slots=True)
class Findings:
    """Evidence of state in a flat step's file."""

    pairs: tuple[Inferred, ...] = ()
    """In the order of the outputs; () for a graph without state."""
    guesses: tuple[tuple[str, str], ...] = ()
    """(input, output) that may belong together, and that nothing pairs: the user is told. Every output that is no
    known result and every input of its shape and dtype is in one, the likeliest first."""


def find_state(graph: Graph) -> Findings:
    """The states of a flat training step, from the form of their updates and from names.

    ``update_forms.candidates`` says which inputs each output may replace. So the gradient of a weight that is decayed,
    ``g + 1e-4 * W``, has no candidate: the factor is small, and W is read forward as well. Nor has an output that the
    loss depends on (``x + f(x)`` in a forward model, a prediction's error): it is a result on the way to the loss. But
    one that is computed from a gradient is none, though a loss after the update depends on it.

    - An output that is named after an input of its shape and dtype (``W.next``, ``new_W``) replaces it, if that is a
      candidate or there is none.
    - An output reads what it replaces itself, and not through another output. A copy of an input that others update
      is not its next value.
    - Of the others, an output takes its only candidate, if no other output has it alone, too; all others then lose it.
      This goes on until nobody is left, or nothing tells: equal candidates are refused.
    - An output that is computed from a gradient and updates a parameter in no stated form is refused (``remains``).
    - Beside inputs that are left over, a pair that might be another is said, and so are all inputs and outputs of one
      shape and dtype that nothing pairs.

    Nothing is paired unless the graph has a scalar result, the loss, or products that have the form of gradients. Where
    products read matrices that the file holds, the graph may be a forward model, whose ``x + f(x)`` keeps an input just
    so: there, an input that its update keeps whole is a state only if nothing else reads it, if what is added has a
    rate (``W - lr * g``), or by its name.

    Raises:
        UsageError: outputs that may each replace one of several inputs: all of them, with the candidates.
    """
    positions = {op.name: index for index, op in enumerate(graph.ops)}
    names = [name for name in graph.outputs if name not in graph.inputs]
    states = {name: candidates(graph, name, positions) for name in names}
    losses = [name for name in names if _is_scalar_result(graph, name) and not states[name] and not _stem(graph, name)]
    products = gradient_products(graph)
    if not losses and not products.gradients:
        return Findings()
    copies = {name for name in names if not roots_of(graph, [name]).isdisjoint(states[name])}
    claimed = {of for name in names if name not in copies for of in every_term(graph, name, positions)}
    states |= {name: {} for name in copies if not claimed.isdisjoint(states[name])}
    if has_own_weights(graph):
        states = {
            name: {of: term for of, term in terms.items() if term.factor != 1.0 or term.is_private or by_rate}
            for name, terms in states.items()
            for by_rate in [_is_by_rate(graph, name)]
        }
    before, updated = leading_to(graph, losses), _updated(graph, products)
    for name, terms in states.items():
        if name not in updated and (name in before or not losses):
            states[name] = {of: term for of, term in terms.items() if products.gradients and _is_own(graph, of, term)}
    gradients = products.gradients | products.back
    return _Settling(
        FlatStep(graph, states, positions, frozenset(losses), updated, gradients, products.parameters)
    ).run()


def _updated(graph: Graph, products: GradientProducts) -> frozenset[str]:
    """The tensors that are computed from gradients, and the outputs that are by their rate from what comes back."""
    through = [op.outputs[0] for name in products.back for op in graph.consumers[name]]
    from_back = computed_from(graph, through)
    by_rate = {name for name in graph.outputs if name in from_back and _is_by_rate(graph, name)}
    return computed_from(graph, products.gradients) | by_rate


def _is_own(graph: Graph, name: str, term: Term) -> bool:
    """Whether an input is kept for its next value alone: a step count, or a statistic that decays.

    A target is read by its error alone, too, and whole.
    """
    decays = term.factor is not None and _LEAST_DECAY < term.factor < 1
    return term.is_private and (graph.tensors[name].elements == 1 or decays)


def _is_scalar_result(graph: Graph, name: str) -> bool:
    """Whether an output may be a loss: one number without a place among others, so no [1, 1] of a batch of 1."""
    tensor = graph.tensors[name]
    return tensor.shape in ((), (1,)) and tensor.dtype.is_float


_WEIGHED: Final = CONVOLUTIONS | MATRIX_PRODUCTS | RECURRENT.keys()


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
    for op in graph.ops_of("Transpose"):
        if op.inputs[0] in stated:
            stated.add(op.outputs[0])
    return any(not stated.isdisjoint(op.inputs) for op in graph.ops_of(*_WEIGHED))


def _is_by_rate(graph: Graph, output: str) -> bool:
    """Whether an output is a sum in which something is multiplied with a number: an update by its rate."""
    terms = walk([output], lambda name: (operand for operand, _ in steps(graph, name)))
    scalings = [op for name in terms if (op := graph.made_by(name, "Mul", "Div")) is not None]
    return any(graph.tensors[name].elements == 1 for op in scalings for name in op.inputs)


class _Settling:
    """Outputs take their inputs one after the other."""

    def __init__(self, step: FlatStep) -> None:
        self.step = step
        self.graph = step.graph
        self.terms = step.terms
        self.open = {name: tuple(terms) for name, terms in step.terms.items() if terms}
        self.settled: dict[str, Inferred] = {}
        self.remains = Remains(step, self.settled)

    def run(self) -> Findings:
        for name, terms in self.terms.items():
            stem = _stem(self.graph, name)
            if stem and stem not in self._currents() and (not terms or stem in terms):
                self._settle(name, stem)
        while self._narrow() | self._settle_only():
            pass
        unpaired = self.open or self.remains.updates()
        if unpaired:
            raise self._ambiguous(unpaired)
        for name in self.remains.doubtful():
            pair = self.settled[name]
            self.settled[name] = replace(pair, evidence=(*pair.evidence, "rival"), why=f"{pair.why}; others may be")
        pairs = tuple(self.settled[name] for name in self.graph.outputs if name in self.settled)
        return Findings(pairs, self.remains.guesses())

    def _currents(self) -> set[str]:
        return {pair.current for pair in self.settled.values()}

    def _settle_only(self) -> bool:
        """Has outputs take their only candidate, unless it is another output's, too; whether there are any."""
        count = len(self.settled)
        while True:
            only = Counter(inputs[0] for inputs in self.open.values() if len(inputs) == 1)
            name = next((name for name, inputs in self.open.items() if len(inputs) == only[inputs[0]] == 1), None)
            if name is None:
                return len(self.settled) > count
            self._settle(name, self.open[name][0])

    def _narrow(self) -> bool:
        """Has outputs read what they replace themselves, and not through others; whether that changes anything."""
        before = dict(self.open)
        for name, choices in before.items():
            terms = candidates(self.graph, name, self.step.positions, self.remains.peers(name))
            narrowed = tuple(current for current in terms if current not in self._currents())
            if narrowed and narrowed != choices:
                self.open[name] = narrowed
                self.terms = {**self.terms, name: terms}
            claimed = {current for currents in self.open.values() for current in currents}
            if not narrowed and not claimed.issuperset(self.remains.alike(name)):
                del self.open[name]
        return self.open != before

    def _settle(self, name: str, current: str) -> None:
        is_named = _stem(self.graph, name) == current
        term = self.terms[name].get(current)
        kinds = {"name": is_named, "shape": True, "dataflow": term is not None}
        reasons = ["it is named after the input"] if is_named else []
        if term is not None:
            factor = "times a computed factor" if term.factor is None else f"times {term.factor:.6g}"
            reasons.append(f"its update keeps the input {factor}")
        evidence = tuple(kind for kind, speaks in kinds.items() if speaks)
        self.settled[name] = Inferred(current, name, evidence, "; ".join(reasons))
        self.open.pop(name, None)
        choices = {output: tuple(item for item in items if item != current) for output, items in self.open.items()}
        self.open = {output: items for output, items in choices.items() if items}

    def _ambiguous(self, unpaired: Mapping[str, tuple[str, ...]]) -> UsageError:
        facts = [
            f"{name!r} {list(self.graph.tensors[name].shape)}: {', '.join(map(repr, inputs))}"
            for name, inputs in unpaired.items()
        ]
        clause = f"output {next(iter(unpaired))!r} replaces" if len(facts) == 1 else f"{len(facts)} outputs replace"
        doubts = [pair for pair in self.remains.guesses() if pair[0] not in unpaired.get(pair[1], ())]
        doubts += [(current, name) for name in self.remains.doubtful() for current in self.remains.alike(name)]
        for heading, pairs in (
            (
                "the other pairs, which that file must have, too",
                [(pair.current, pair.following) for pair in self.settled.values()],
            ),
            ("and these, if the output is the input's next value", doubts),
        ):
            facts += [f"{heading}: {lines_of(pairs)}"] if pairs else []
        lines = [f"'{inputs[0]}: {name}'" for name, inputs in unpaired.items()]
        return UsageError(f"which input {clause} cannot be told", facts=tuple(facts), hint=_HINT.format("{}", lines[0]))


def _stem(graph: Graph, output: str) -> str:
    """The input of an output's shape and dtype whose name is in the output's, or ""."""
    stems = [output.removesuffix(suffix) for suffix in _SUFFIXES if output.endswith(suffix)]
    stems += [output.removeprefix(prefix) for prefix in _PREFIXES if output.startswith(prefix)]
    kind = graph.tensors[output].kind
    return next((stem for stem in stems if stem in graph.inputs and graph.tensors[stem].kind == kind), "")


def with_state(graph: Graph, pairs: Sequence[tuple[str, str]]) -> Graph:
    """The graph with these (state, next state) pairs, and no others.

    Raises:
        UsageError: a name that is no input or output, a tensor in two pairs, or a pair of unequal shape or dtype.
    """
    facts: list[str] = []
    inputs, outputs = set(graph.inputs), set(graph.outputs)
    for kind, names, ports in (
        ("an input", [current for current, _ in pairs], inputs),
        ("an output", [following for _, following in pairs], outputs),
    ):
        facts.extend(f"{name!r} is not {kind} of the model" for name in dict.fromkeys(names) if name not in ports)
        facts.extend(f"{name!r} is in two pairs" for name in repeated(names))
    for current, following in pairs:
        if current not in inputs or following not in outputs:
            continue
        if following in inputs:
            facts.append(f"{following!r} is an input itself, and no op makes it: let an Identity do so")
        state, next_state = graph.tensors[current], graph.tensors[following]
        if state.kind != next_state.kind:
            facts.append(
                f"{current!r} is {list(state.shape)} of {state.dtype.value}, "
                f"but {following!r} is {list(next_state.shape)} of {next_state.dtype.value}"
            )
    if facts:
        raise UsageError("these tensors cannot be paired as state and next state", facts=tuple(facts))
    paired = replace(graph, state=tuple(StatePair(current, following) for current, following in pairs))
    check_graph(paired)
    return paired
