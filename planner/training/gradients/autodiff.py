"""Reverse-mode differentiation of a graph: one walk backwards, each op by the rule of its operator.

A tensor is *active* if it depends on a wanted tensor through inputs that carry gradients; an op gets a backward only
if one of its inputs is active and one of its outputs leads to the loss. Indices, booleans and the like carry none.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TypeAlias

from planner.errors import UnsupportedError
from planner.graph.core.attributes import label
from planner.graph.core.builder import Builder
from planner.graph.core.dependence import live_ops
from planner.graph.core.model import Op, Tensor, of_types
from planner.graph.folding.findings import WITHOUT_BODY
from planner.training.gradients.reasons import QUANTISING, REASONS


@dataclass(frozen=True, slots=True)
class Backward:
    """The arguments of a gradient rule."""

    builder: Builder
    """Where the rule emits its ops."""
    op: Op
    """The forward op; its tensors are there to be read."""
    gradients: tuple[str | None, ...]
    """Gradient of the loss with respect to each output; None where the loss does not depend on it."""
    wanted: tuple[bool, ...]
    """For each input, whether its gradient is needed."""
    saved: Mapping[str, str]
    """Tensors that the op's lowering left for its backward, by what they are."""

    @property
    def dy(self) -> str:
        """The gradient of the first output."""
        gradient = self.gradients[0]
        assert gradient is not None, f"{label(self.op)}: no gradient of its first output"
        return gradient

    @property
    def y(self) -> str:
        """The first output."""
        return self.op.outputs[0]

    @property
    def x(self) -> str:
        """The first input."""
        return self.op.inputs[0]

    def has_input(self, position: int) -> bool:
        """Whether an optional input is there."""
        return self.op.has_input(position)


Contributions: TypeAlias = Sequence[str | None]
"""What each input, by position, adds to its gradient; may be shorter than the inputs."""


@dataclass(frozen=True, slots=True)
class GradientRule:
    """The rule by which the gradient passes an operator from its outputs to its inputs."""

    op_types: tuple[str, ...]
    """Operators of the default domain."""
    inputs: tuple[int, ...] | None
    """Positions of the inputs that can carry a gradient, if they are floats; None: all."""
    function: Callable[[Backward], Contributions]
    """Emits the backward ops. Raises UnsupportedError for forms that it does not take."""

    def carries(self, position: int) -> bool:
        """Whether the input at this position can carry a gradient."""
        return self.inputs is None or position in self.inputs


def gradient(
    *op_types: str, inputs: tuple[int, ...] | None = None
) -> Callable[[Callable[[Backward], Contributions]], GradientRule]:
    """Make a function the gradient rule of some operators."""
    return lambda function: GradientRule(op_types, inputs, function)


def collect(*modules: ModuleType) -> dict[str, GradientRule]:
    """The rules that modules define, by operator.

    Raises:
        AssertionError: an operator has two rules.
    """
    rules: dict[str, GradientRule] = {}
    for module in modules:
        for rule in vars(module).values():
            if not isinstance(rule, GradientRule):
                continue
            for op_type in rule.op_types:
                assert rules.setdefault(op_type, rule) is rule, f"{op_type} has two gradient rules"
    return rules


def active_tensors(
    tensors: Mapping[str, Tensor], ops: Sequence[Op], wanted: Iterable[str], rules: Mapping[str, GradientRule]
) -> frozenset[str]:
    """The tensors through which the loss may depend on a wanted one."""
    active = set(wanted)
    for op in ops:
        if _active_inputs(op, active, rules):
            active.update(name for name in op.outputs if name and tensors[name].dtype.is_float)
    return frozenset(active)


def _active_inputs(op: Op, active: Iterable[str], rules: Mapping[str, GradientRule]) -> tuple[bool, ...]:
    """For each input whether it is active and can carry a gradient; () if none."""
    rule = None if op.domain else rules.get(op.op_type)
    flags = tuple(
        bool(name) and name in active and (rule is None or rule.carries(position))
        for position, name in enumerate(op.inputs)
    )
    return flags if any(flags) else ()


def backward(
    builder: Builder,
    ops: Sequence[Op],
    seeds: Mapping[str, str],
    wanted: Sequence[str],
    *,
    rules: Mapping[str, GradientRule],
    saved: Mapping[str, Mapping[str, str]],
    ready: Callable[[str, str], None],
) -> None:
    """Emit the gradients of wanted tensors.

    Args:
        builder: has the forward ops already.
        ops: the forward ops in execution order, as they were before lowering.
        seeds: gradient of the loss with respect to some tensors.
        wanted: inputs and constants whose gradient is asked for.
        rules: by operator.
        saved: what lowerings left, by op name.
        ready: called with a wanted tensor and its gradient once that is complete, so that what uses it can stand
            right after it and it need not be kept; not called for a tensor that no gradient reaches.

    Raises:
        UnsupportedError: ops on the way that have no rule, or whose rule refuses their form: all of them.
    """
    active = active_tensors(builder.tensors, ops, wanted, rules)
    pending = dict(seeds)
    parts = {name: [seed] for name, seed in seeds.items()}
    first_reader: dict[str, int] = {}
    for index, op in enumerate(ops):
        for name in op.inputs:
            first_reader.setdefault(name, index)
    # A gradient is complete when the walk back has passed the first op that reads its tensor.
    complete: dict[int, list[str]] = {}
    for name in wanted:
        if name in first_reader:
            complete.setdefault(first_reader[name], []).append(name)
    refusals = _quantised(ops, seeds, active)
    for index in reversed(range(len(ops))):
        for name in ops[index].outputs:
            _in_one_product(builder, name, pending, parts)
        _pass(builder, ops[index], pending, parts, active, rules, saved, refusals)
        for name in complete.get(index, ()):
            if name in pending and not refusals:
                _in_one_product(builder, name, pending, parts)
                builder.rename(pending[name], f"{name}.grad")
                ready(name, pending[name])
    if refusals:
        named = tuple(dict.fromkeys(reversed(refusals)))
        raise UnsupportedError(
            f"the loss cannot be differentiated: {len(named)} op{'s' if len(named) > 1 else ''} in the way",
            facts=named,
        )


def _quantised(ops: Sequence[Op], seeds: Iterable[str], active: Container[str]) -> list[str]:
    """What is wrong with ops between active tensors and the loss whose integers hide the way; last ones first."""
    return [
        f"{label(op)}: no gradient rule: {REASONS[op.op_type]}"
        for op in reversed(live_ops(ops, seeds))
        if of_types(op, QUANTISING) and op.inputs[0] in active
    ]


def _pass(
    builder: Builder,
    op: Op,
    pending: dict[str, str],
    parts: dict[str, list[str]],
    active: frozenset[str],
    rules: Mapping[str, GradientRule],
    saved: Mapping[str, Mapping[str, str]],
    refusals: list[str],
) -> None:
    """Bring the gradient from an op's outputs to its inputs."""
    gradients = tuple(pending.get(name) if name else None for name in op.outputs)
    flags = _active_inputs(op, active, rules)
    if not flags or not any(gradients):
        return
    for name, dy in zip(op.outputs, gradients, strict=True):
        if dy is not None:
            builder.rename(dy, f"{name}.grad")
    rule = None if op.domain else rules.get(op.op_type)
    # After a refusal the walk goes on with the tensors themselves in place of their gradients: they have the right
    # shape, and whatever else is in the way is found, too.
    contributions: Contributions = tuple(name if flag else None for name, flag in zip(op.inputs, flags, strict=True))
    if rule is None:
        reason = WITHOUT_BODY if op.domain else REASONS.get(op.op_type, "")
        refusals.append(f"{label(op)}: no gradient rule" + (f": {reason}" if reason else ""))
    else:
        context = Backward(builder, op, gradients, flags, saved.get(op.name, {}))
        try:
            with builder.scope(f"{op.name}.backward"):
                contributions = rule.function(context)
        except UnsupportedError as error:
            refusals.append(error.what)
    for name, flag, part in zip(op.inputs, flags, contributions, strict=False):
        if not flag or part is None:
            continue
        assert builder.shape(part) == builder.shape(name), (
            f"{label(op)}: the gradient of {name} has shape {builder.shape(part)}, not {builder.shape(name)}"
        )
        parts.setdefault(name, []).append(part)
        if name in pending:
            with builder.scope(f"{name}.grad"):
                part = builder.add(pending[name], part, hint="sum")
        pending[name] = part


def _in_one_product(builder: Builder, name: str, pending: dict[str, str], parts: Mapping[str, Sequence[str]]) -> None:
    """A sum of products of matrices by samples, Σ Aᵀ B, becomes one product over the samples of all of them.

    Such is the gradient of a matrix that is read at every time step; sums of matrices would be whole on every worker.
    With more samples than the matrix has rows or columns, A and B are too large to be kept for it.
    """
    factors = [_by_samples(builder, part) for part in parts.get(name, ())]
    if len(factors) < 2 or not all(factors) or len({tuple(map(builder.shape, pair)) for pair in factors}) > 1:
        return
    samples = builder.shape(factors[0][0])[0]
    if samples > max(builder.shape(name)):
        return
    with builder.scope(f"{name}.grad"):
        sides = zip(*reversed(factors), strict=True)
        tall = [builder.concat([builder.unsqueeze(factor, [0]) for factor in side], 0) for side in sides]
        a, b = (builder.reshape(side, (len(factors) * samples, builder.shape(side)[-1])) for side in tall)
        pending[name] = builder.matmul(builder.transpose(a, [1, 0]), b)


def _by_samples(builder: Builder, part: str) -> tuple[str, ...]:
    """A and B of a product of matrices Aᵀ B; () of something else, and where rows of A are merged from several dims."""
    product = builder.made_by(part, "Gemm", "MatMul")
    if product is None or len(product.inputs) > 2:
        return ()
    a, b = product.inputs
    if product.attributes != (("transA", 1),):
        turned = builder.made_by(a, "Transpose")
        if product.attributes or turned is None or builder.rank(turned.inputs[0]) != 2:
            return ()
        a = turned.inputs[0]
    return () if builder.made_by(a, "Reshape") else (a, b)


def gradients_for(
    builder: Builder,
    op: Op,
    ops: Sequence[Op],
    seeds: Mapping[str, str],
    wanted: Sequence[str],
    *,
    rules: Mapping[str, GradientRule],
    saved: Mapping[str, Mapping[str, str]],
) -> tuple[str, ...]:
    """The gradients that stand for the outputs of a gradient op of a file.

    Args:
        builder: see ``backward``, as the arguments below whose names are its.
        op: which they stand for.
        ops: see ``backward``.
        seeds: see ``backward``.
        wanted: the tensor of each output; "" where no gradient is asked for.
        rules: see ``backward``.
        saved: see ``backward``.

    Returns:
        A gradient for each of ``wanted``: zeros where none reaches it; "" where none is asked for.

    Raises:
        UnsupportedError: see ``backward``; names the op.
    """
    gradients: dict[str, str] = {}
    names = [*dict.fromkeys(filter(None, wanted))]
    try:
        backward(builder, ops, seeds, names, rules=rules, saved=saved, ready=gradients.__setitem__)
    except UnsupportedError as error:
        raise UnsupportedError(f"{label(op)}: {error.what}: {'; '.join(error.facts)}") from None
    return tuple(name and (gradients.get(name) or builder.zeros(builder.shape(name), name)) for name in wanted)
