"""The dim of logits in which the classes lie, read off the ops that make them.

A file does not say which dim that is, and where two dims are of equal size a wrong one fails nowhere: it is another
loss. So logits of rank 3 or more are followed back, dim by dim, to the layer that makes them: a product with a weight
has its classes along the weight's own dim (the last, of ``x @ W``; dim 1, of a convolution), a softmax along its axis.
The ops' descriptions say how dims go. What cannot be followed is refused, with the commands that say it.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TypeAlias

from planner import opdefs
from planner.errors import DescriptionError, UnsupportedError, UsageError
from planner.graph.core.attributes import axis_of, label
from planner.graph.core.dependence import computed_from
from planner.graph.core.model import Graph, Op, Shape, of_types
from planner.tdl.bind import BoundOp
from planner.tdl.expr import VarKind
from planner.tdl.flow import Layout

_Places: TypeAlias = tuple[int | None, ...]
"""Of each dim of a tensor, the dim of the output in which it lies; None where it lies in none by itself."""


def class_axis(forward: Graph, output: str, *, stated: int | None = None, command: str = "tofu grad MODEL") -> int:
    """The dim of an output in which the classes lie, counted from the front.

    Args:
        forward: the model, as the file has it.
        output: logits or log-probabilities.
        stated: the dim as the user says it; negative from the end.
        command: how the command begins that a refusal prints.

    Raises:
        UsageError: the output has no such dim; or it is of rank 3 or more, and its ops do not tell.
    """
    shape = forward.tensors[output].shape
    if stated is not None:
        if not -len(shape) <= stated < len(shape):
            raise UsageError(
                f"--class-axis {stated}: output {output!r} is {list(shape)}, and has no such dim",
                hint=f"its dims are 0 to {len(shape) - 1}, or -{len(shape)} to -1 from the end" if shape else "",
            )
        return stated % len(shape)
    if len(shape) <= 2:
        return 1
    walk = _Walk(forward)
    dims = walk.classes(output)
    if len(dims) == 1:
        return dims[0]
    if dims:
        why = f"what it is made of has them in dim {' and in dim '.join(map(str, dims))}"
    else:
        why = walk.obstacles[0] if walk.obstacles else "no product with a weight and no convolution makes it"
    raise UsageError(
        f"which dim of output {output!r} {list(shape)} holds the classes cannot be told: {why}",
        facts=tuple(f"{command} --class-axis {axis}: {_meaning(shape, axis)}" for axis in (len(shape) - 1, 1)),
        hint="say it with one of these two: the last dim, as language models have it, or dim 1, as networks for images",
    )


def _meaning(shape: Shape, axis: int) -> str:
    return f"{shape[axis]} classes, labels {[*shape[:axis], *shape[axis + 1 :]]}"


class _Walk:
    """Follows an output back to what makes its classes."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._descriptions = opdefs.standard()
        self.obstacles: list[str] = []
        """Ops and tensors at which the walk ended without a dim of classes, in words."""

    @cached_property
    def _data(self) -> frozenset[str]:
        """Tensors that depend on an input."""
        return computed_from(self.graph, self.graph.inputs)

    def _shape(self, name: str) -> Shape:
        return self.graph.tensors[name].shape

    def classes(self, output: str) -> list[int]:
        """The dims of the output that hold the classes, by all that it is made of."""
        dims: set[int] = set()
        # A tensor is looked at once for each arrangement of the output's dims in it.
        start = (output, tuple(range(len(self._shape(output)))))
        seen: set[tuple[str, _Places]] = {start}
        pending: list[tuple[str, _Places]] = [start]
        while pending:
            name, places = pending.pop()
            op = self.graph.producer.get(name)
            if op is None:
                kind = "an input" if name in self.graph.inputs else "a constant"
                self.obstacles.append(f"{name!r} is {kind} of the model")
                continue
            bound = self._bound(op)
            dim = None if bound is None else self._made_in(bound)
            if dim is not None:
                place = places[dim]
                if place is None:
                    self.obstacles.append(f"the dim of classes that {label(op)} makes is merged with others, or torn")
                else:
                    dims.add(place)
                continue
            following = [] if bound is None else self._before(bound, name, places)
            if not following:
                self.obstacles.append(f"{label(op)} makes it")
            for step in following:
                if step not in seen:
                    seen.add(step)
                    pending.append(step)
        return sorted(dims)

    def _bound(self, op: Op) -> BoundOp | None:
        """An op with its description; None if it has none."""
        try:
            return self._descriptions.bind(op, self.graph) if self._descriptions.takes(op.domain, op.op_type) else None
        except (DescriptionError, UnsupportedError):
            return None

    def _made_in(self, bound: BoundOp) -> int | None:
        """The dim of an op's output in which the op makes classes; None where it makes none."""
        op, variables = bound.op, bound.variables
        if of_types(op, ("LogSoftmax", "Softmax")):
            return axis_of(op, len(self._shape(op.outputs[0])), -1)
        if not any(variable.kind is VarKind.REDUCTION and not variable.is_matched for variable in variables):
            return None
        # Of a sum of products, the classes are what a weight is indexed by and the data are not.
        by_side: dict[bool, set[int]] = {False: set(), True: set()}
        for slot, _, number in Layout.of(bound.analysis).read:
            by_side[op.inputs[slot] in self._data].add(number)
        own = by_side[False] - by_side[True]
        dims = [dim for dim, number in enumerate(bound.analysis.outputs[0] or ()) if number in own]
        return dims[0] if len(dims) == 1 else None

    def _before(self, bound: BoundOp, name: str, places: _Places) -> list[tuple[str, _Places]]:
        """The operands that depend on an input, and where their dims lie; those of the output's own shape, if any.

        [] of a product of two of them: its dims are no layer's.
        """
        op, numbers = bound.op, bound.analysis.outputs[bound.op.outputs.index(name)]
        if bound.analysis.product is not None or numbers is None:
            return []
        by_variable = {bound.variables[number].name: place for number, place in zip(numbers, places, strict=True)}
        in_order = [bound.variables[number].name for number in numbers]
        steps: dict[tuple[str, _Places], None] = {}
        for read in bound.analysis.reads:
            if op.inputs[read.slot] not in self._data:
                continue
            along = [() if dim is None else sorted(dim.along & by_variable.keys()) for dim in read.dims]
            counts = Counter(variable for names in along for variable in names)
            if len(along) == len(in_order):  # all of a dim may be looked at for each place of the output's
                along = [
                    [variable] if dim is None and not counts[variable] else names
                    for names, dim, variable in zip(along, read.dims, in_order, strict=True)
                ]
            # A dim that is merged with others has several variables; of one that is torn, several have its one.
            before = (by_variable[names[0]] if len(names) == 1 and counts[names[0]] < 2 else None for names in along)
            steps[op.inputs[read.slot], tuple(before)] = None
        full = [step for step in steps if self._shape(step[0]) == self._shape(name)]
        return full or list(steps)
