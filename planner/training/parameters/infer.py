"""Which constants of a forward model are parameters, inferred from who reads them, what they hold and their names.

A file does not say which of its constants are trained: exporters write causal masks and rotary tables beside weights,
and give weights names of their own making (``val_97`` for a transposed one). What is read as layers read their
parameters is trained; what is read otherwise, or holds what no training makes, is frozen; what nothing tells is
refused, and said with ``--train`` and ``--freeze``. The decision looks at the model as the file has it, so that it is
the same for every batch.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Final, Literal

from planner.errors import UnsupportedError, UsageError, did_you_mean
from planner.graph.model import Graph, Shape
from planner.graph.notes import external_of
from planner.training.parameters.readers import LEARNED, Reader, Readers, Use
from planner.training.parameters.value_forms import holds_lowest, is_of_waves, is_on_and_off, is_one_value

_MADE_UP: Final = re.compile(
    r"(val|const|constant|initializer|c_lifted_tensor|lifted_tensor|const_fold_opt|onnx::\w+?|)_*\d*(_output_\d+)?",
    re.IGNORECASE,
)
"""Last parts of names that exporters make up: ``val_160``, ``onnx::MatMul_123``, ``Constant_3_output_0``, ``57``."""
_WORDS: Final = frozenset(
    {"weight", "weights", "bias", "biases", "kernel", "gamma", "beta", "scale", "embed", "embedding", "embeddings"}
    | {"token", "w", "b"}
)
"""Words by which parameters are named where names have no parts: ``cls_token``, ``W1``, ``fc2_bias``."""
_SHOWN: Final = 8
"""Names in a hint."""
_EXACT: Final = frozenset({Use.PRODUCT, Use.KERNEL, Use.NORM})
"""Uses that leave no doubt, whatever the values are."""


class Verdict(enum.Enum):
    """What becomes of a constant in training."""

    value: Literal["trained", "frozen", "statistic"]

    TRAINED = "trained"
    FROZEN = "frozen"
    STATISTIC = "statistic"
    """A running statistic: it follows the batches, or stays, as ``--batchnorm`` says."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is decided of one constant, and why."""

    name: str
    shape: Shape
    verdict: Verdict
    why: str
    """In words; equal for constants that are decided alike: ``read by MatMul``."""
    evidence: tuple[str, ...] = ()
    """What speaks for it: ``readers``, ``values``, ``name``; ``stated`` where the user says it; ``gradient``."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """What is decided of a forward model's constants, in the order of the file."""

    decisions: tuple[Decision, ...]

    def of(self, verdict: Verdict) -> tuple[str, ...]:
        """The names of the constants of which this was decided."""
        return tuple(decision.name for decision in self.decisions if decision.verdict is verdict)

    def inferred_frozen(self) -> frozenset[str]:
        """Those that are frozen though nobody said so."""
        return frozenset(
            decision.name
            for decision in self.decisions
            if decision.verdict is Verdict.FROZEN and "stated" not in decision.evidence
        )


def infer_parameters(
    forward: Graph, target: str, *, train: Sequence[str] = (), freeze: Sequence[str] = ()
) -> Parameters:
    """Decide which constants of a forward model are trained.

    Looked at are the float constants of rank 1 or more that the file states, be it as initializers or by Constant
    nodes. Each is followed to the ops that really read it (see ``readers``).

    - Trained is what a product, convolution, normalisation, lookup, Add, Mul or Concat with data reads as its
      parameter.
    - Frozen is what holds −inf or −3e38; is one value throughout and not named as a parameter; is a mask of two values
      or a table of sines; or is read by Where, Cast, sines, comparisons and sizes alone.

    Args:
        forward: the model, as the file has it.
        target: the output that the loss looks at; what does not lead to it is frozen.
        train: patterns (``*``, ``?``) of names that are trained, whatever is inferred. Of patterns of both kinds that
            fit a name, the one with more letters counts.
        freeze: patterns of names that stay as they are.

    Raises:
        UsageError: constants of which nothing tells: all of them; a pattern that fits none.
        UnsupportedError: a running statistic that other ops read as well.
    """
    wishes = _Wishes(forward, train, freeze)
    judge = _Judge(forward, target)
    decisions: list[Decision] = []
    unclear: list[str] = []
    for name in forward.constants:
        shape = forward.tensors[name].shape
        if not is_float_tensor(forward, name):
            continue
        stated = wishes.of(name)
        if stated is not None:
            decisions.append(Decision(name, shape, stated[0], f"asked for by {stated[1]}", ("stated",)))
        elif name not in forward.folded:
            verdict, why, evidence = judge.of(name)
            if verdict is None:
                unclear.append(f"{name!r} {list(shape)}: {why}")
            else:
                decisions.append(Decision(name, shape, verdict, why, evidence))
    if unclear:
        count = f"{len(unclear)} constants" if len(unclear) > 1 else "a constant"
        raise UsageError(
            f"whether {count} of the model should be trained cannot be told",
            facts=tuple(unclear),
            hint="say it: --train PATTERN trains constants of these names, --freeze PATTERN leaves them as they are",
        )
    return Parameters(tuple(decisions))


def is_float_tensor(forward: Graph, name: str) -> bool:
    """Whether a tensor is of floats and of rank 1 or more, as all that is trained."""
    return forward.tensors[name].dtype.is_float and bool(forward.tensors[name].shape)


def outcome(parameters: Parameters, step: Graph) -> Parameters:
    """What became of a model's constants in its training step: some that were to be trained may get no gradient."""
    states = {pair.current for pair in step.state}
    decisions: list[Decision] = []
    for one in parameters.decisions:
        if one.name in states or one.verdict is Verdict.FROZEN:
            decisions.append(one)
        elif one.verdict is Verdict.STATISTIC:
            decisions.append(replace(one, verdict=Verdict.FROZEN))
        else:
            why = f"no gradient reaches it ({one.why})"
            decisions.append(replace(one, verdict=Verdict.FROZEN, why=why, evidence=("gradient",)))
    return Parameters(tuple(decisions))


class _Wishes:
    """What the user says by patterns of names."""

    def __init__(self, forward: Graph, train: Sequence[str], freeze: Sequence[str]) -> None:
        self._patterns = [("--train", pattern, Verdict.TRAINED) for pattern in train]
        self._patterns += [("--freeze", pattern, Verdict.FROZEN) for pattern in freeze]
        if self._patterns:
            self._check(forward)

    def _check(self, forward: Graph) -> None:
        known = [
            name for name in forward.constants if is_float_tensor(forward, name) and not _is_statistic(forward, name)
        ]
        facts: list[str] = []
        hints: list[str] = []
        self._known = frozenset(known)
        for option, pattern, _ in self._patterns:
            if any(fnmatchcase(name, pattern) for name in known):
                continue
            others = [name for name in forward.tensors if fnmatchcase(name, pattern)]
            facts.append(f"{option} {pattern!r} fits {_what_else(forward, others)}")
            hints.append(did_you_mean(pattern, known))
        if facts:
            hint = " ".join(dict.fromkeys(filter(None, hints))) or _those_there(known)
            raise UsageError("patterns that fit no constant that could be trained", facts=tuple(facts), hint=hint)
        for name in known:
            self.of(name)

    def of(self, name: str) -> tuple[Verdict, str] | None:
        """What is said of a constant, and by which option; None if nothing is.

        Raises:
            UsageError: patterns of equal length say both.
        """
        fit = [
            (len(re.sub(r"[*?]", "", pattern)), f"{option} {pattern}", verdict)
            for option, pattern, verdict in self._patterns
            if name in self._known and fnmatchcase(name, pattern)
        ]
        if not fit:
            return None
        most = max(length for length, _, _ in fit)
        best = {verdict: option for length, option, verdict in fit if length == most}
        if len(best) > 1:
            raise UsageError(f"{name!r} is to be trained and frozen: {' and '.join(best.values())} fit it alike")
        ((verdict, option),) = best.items()
        return verdict, option


def _is_statistic(forward: Graph, name: str) -> bool:
    """Whether BatchNormalizations read a constant as running mean or variance, and nothing else reads it."""
    return bool(forward.consumers[name]) and all(
        op.op_type == "BatchNormalization" and name in op.inputs[3:5] and name not in op.inputs[:3]
        for op in forward.consumers[name]
    )


def _those_there(known: Sequence[str]) -> str:
    """A hint that names constants."""
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return f"constants that could be: {', '.join(known[:_SHOWN])}{more}" if known else ""


def _what_else(forward: Graph, names: Sequence[str]) -> str:
    if not names:
        return "nothing"
    name, tensor = names[0], forward.tensors[names[0]]
    if name in forward.constants and is_float_tensor(forward, name):
        return f"{name!r}, a running statistic: --batchnorm says what becomes of those"
    if name in forward.constants:
        return f"{name!r}, which is {list(tensor.shape)} of {tensor.dtype.value}: floats of rank 1 or more are trained"
    return f"{name!r}, which is no constant"


class _Judge:
    """Decides by readers, values and names."""

    def __init__(self, forward: Graph, target: str) -> None:
        self._forward = forward
        self._target = target
        self._readers = Readers(forward)
        self._external = external_of(forward.notes).keys()
        """Constants with values that were not read; a model without weights has none."""

    @cached_property
    def _leading(self) -> frozenset[str]:
        """The tensors that the loss may depend on."""
        found = {self._target}
        for op in reversed(self._forward.ops):
            if any(name in found for name in op.outputs):
                found.update(op.inputs)
        return frozenset(found)

    def of(self, name: str) -> tuple[Verdict | None, str, tuple[str, ...]]:
        """The verdict, why, and by what evidence; no verdict where nothing tells."""
        readers = self._readers.of(name)
        uses = frozenset(reader.use for reader in readers)
        if Use.STATISTIC in uses:
            return self._statistic(name, readers)
        if name not in self._leading:
            return Verdict.FROZEN, "the loss does not depend on it", ("readers",)
        if uses == {Use.FIXED}:
            return Verdict.FROZEN, f"read by {_op_types(readers)} only", ("readers",)
        form = self._form(name, uses)
        if form:
            return Verdict.FROZEN, form, ("values",)
        if not readers:
            return Verdict.TRAINED, "the output that the loss looks at is made of it", ("readers",)
        learned = [reader for reader in readers if reader.use in LEARNED]
        is_named = is_parameter_name(name)
        if is_named and not learned:
            learned = [reader for reader in readers if reader.use is Use.INPUT_SCALE]
        if not learned:
            return None, f"{_op_types(readers)} reads it, as layers seldom read their parameters", ()
        if not is_named and all(reader.use is Use.SCALE and not _is_vector(reader.shape) for reader in learned):
            return None, f"a table that {_op_types(learned)} multiplies with data, and its name tells nothing", ()
        if not is_named and name in self._external and self._may_be_mask(name, uses):
            return None, f"{_op_types(learned)} reads it, its name tells nothing, and its values are external data", ()
        return Verdict.TRAINED, f"read by {_op_types(learned)}", ("readers", "name") if is_named else ("readers",)

    def _statistic(self, name: str, readers: Iterable[Reader]) -> tuple[Verdict, str, tuple[str, ...]]:
        other = next((reader for reader in readers if reader.use is not Use.STATISTIC), None)
        if other is not None:
            raise UnsupportedError(
                f"{name!r} is a running statistic of a BatchNormalization, and op {other.op!r} ({other.op_type}) reads "
                f"it as its {other.use.value}",
                hint="export the model without optimizing it",
            )
        return Verdict.STATISTIC, "running statistic of BatchNormalization", ("readers",)

    def _may_be_mask(self, name: str, uses: frozenset[Use]) -> bool:
        """Whether it is only added to data, or joined with them, in several dims, as both masks and positions are."""
        return _EXACT.isdisjoint(uses) and not _is_vector(self._forward.tensors[name].shape)

    def _form(self, name: str, uses: Iterable[Use]) -> str:
        """What the values are, if it is something that no training makes; else ""."""
        array = self._forward.constants[name]
        if array is None:
            return ""
        if holds_lowest(array):
            return "holds -inf or -3e38, as masks do"
        if is_one_value(array):
            return "" if is_parameter_name(name) else "one value throughout, and not named as a parameter"
        if _EXACT.isdisjoint(uses):
            if is_on_and_off(array):
                return "holds 0 and one other value, as masks do"
            if not _is_vector(array.shape) and is_of_waves(array):
                return "a table of sines or of evenly spaced numbers"
        return ""


def _op_types(readers: Iterable[Reader]) -> str:
    return ", ".join(dict.fromkeys(reader.op_type for reader in readers))


def _is_vector(shape: Shape) -> bool:
    return sum(size > 1 for size in shape) <= 1


def is_parameter_name(name: str) -> bool:
    """Whether a constant is named as an exporter names parameters: ``encoder.layer.0.bias``, ``dense/kernel:0``.

    Names that exporters make up are none: ``val_160``, ``onnx::MatMul_123``, ``/encoder/Constant_3_output_0``.
    """
    *path, last = re.split(r"[./]", name)
    if _MADE_UP.fullmatch(last):
        return bool(path) and last.isdigit()
    if path:
        return True
    return any(word.rstrip("0123456789").casefold() in _WORDS for word in re.split(r"[_:]", last))
