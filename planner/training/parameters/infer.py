"""Parameters among the constants of a forward model, inferred from their readers, values and names.

Few files list what is trained (``exporter``): masks and rotary tables stand beside weights, which may have names of
the exporter's making (``val_97``). What is read as layers read their parameters is trained; what is read otherwise, or
holds what no training makes, is frozen; what nothing tells is refused, and said with ``--train`` and ``--freeze``. The
decision looks at the model as the file has it, so that it is the same for every batch.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Final, Literal

import numpy as np

from planner.errors import UnsupportedError, UsageError, did_you_mean
from planner.graph.core.dependence import leading_to
from planner.graph.core.model import Graph, Shape
from planner.graph.core.notes import external_of
from planner.graph.core.traits import RECURRENT
from planner.printable import printable, some
from planner.training.parameters.exporter import UNSAID, Exporter
from planner.training.parameters.names import is_made_up, is_parameter_name, words_of
from planner.training.parameters.readers import LEARNED, Reader, Readers, Use, statistic_slots
from planner.training.parameters.scalars import is_chosen_name, why_frozen
from planner.training.parameters.value_forms import holds_lowest, is_of_waves, is_on_and_off, is_one_value
from planner.training.patterns import letters

_SHOWN: Final = 8
"""Names in a hint."""
_EXACT: Final = frozenset({Use.PRODUCT, Use.KERNEL, Use.NORM})
"""Uses that leave no doubt, whatever the values are."""


class Verdict(enum.Enum):
    """The fate of a constant in training."""

    value: Literal["trained", "frozen", "statistic"]

    TRAINED = "trained"
    FROZEN = "frozen"
    STATISTIC = "statistic"
    """A running statistic: it follows the batches, or stays, as ``--batchnorm`` says."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on one constant, and its reason."""

    name: str
    shape: Shape
    verdict: Verdict
    why: str
    """In words; equal for constants that are decided alike: ``read by MatMul``."""
    evidence: tuple[str, ...] = ()
    """What speaks for it: ``readers``, ``values``, ``name``; ``stated`` by the user, ``exporter``, ``gradient``."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """The decisions on a forward model's constants, in the order of the file."""

    decisions: tuple[Decision, ...]

    def of(self, verdict: Verdict) -> tuple[str, ...]:
        """The names of the constants of which this was decided."""
        return tuple(decision.name for decision in self.decisions if decision.verdict is verdict)

    def with_evidence(self, names: Collection[str], why: str, evidence: str) -> Parameters:
        """The same with one more thing said of some constants."""
        decisions = (
            replace(decision, why=f"{decision.why}; {why}", evidence=(*decision.evidence, evidence))
            if decision.name in names
            else decision
            for decision in self.decisions
        )
        return Parameters(tuple(decisions))

    def inferred_frozen(self) -> frozenset[str]:
        """Those that are frozen though nobody said so."""
        return frozenset(
            decision.name
            for decision in self.decisions
            if decision.verdict is Verdict.FROZEN and "stated" not in decision.evidence
        )


def infer_parameters(
    forward: Graph, target: str, *, train: Sequence[str] = (), freeze: Sequence[str] = (), exporter: Exporter = UNSAID
) -> Parameters:
    """Decide which constants of a forward model are trained.

    Looked at are the float constants of rank 1 or more that the file states, be it as initializers or by Constant
    nodes, and scalar initializers with a name that no exporter makes up. Each is followed to the ops that really read
    it (see ``readers``).

    - Trained is what a product, convolution, normalisation, lookup, Add, Mul or Concat with data reads as its
      parameter; of scalars, what Add or Mul reads, perhaps through Exp, if the name says that it is one.
    - Frozen is what holds −inf or −3e38; is one value throughout, not named as a parameter and no parameter at its
      start, of zeros; is a mask of two values or a table of sines; or is read by Where, Cast, sines, comparisons and
      sizes alone.

    Args:
        forward: the model, as the file has it.
        target: the output that the loss looks at; what does not lead to it is frozen.
        train: patterns (``*``, ``?``) of names that are trained, whatever is inferred. Of patterns of both kinds that
            fit a name, the one with more letters counts.
        freeze: patterns of names that stay as they are.
        exporter: what the file says of the network's parameters and buffers, which goes before what is inferred.

    Raises:
        UsageError: constants of which nothing tells: all of them; a pattern that fits none.
        UnsupportedError: a running statistic that other ops read as well.
    """
    wishes = _Wishes(forward, train, freeze)
    judge = _Judge(forward, target)
    learned = {exporter.renamed.get(name, name): name for name in exporter.parameters}
    decisions: list[Decision] = []
    unclear: list[str] = []
    for name in forward.constants:
        shape = forward.tensors[name].shape
        if not forward.tensors[name].dtype.is_float:
            continue
        stated = wishes.of(name)
        if stated is not None:
            decisions.append(Decision(name, shape, stated[0], f"asked for by {stated[1]}", ("stated",)))
        else:
            is_listed = _is_listed(forward, name)
            verdict, why, evidence = judge.of(name) if is_listed else (None, "", ())
            # The exporter's lists go before inference; a running statistic is a buffer as well, and keeps its verdict.
            listing = Verdict.TRAINED if name in learned else Verdict.FROZEN if name in exporter.buffers else None
            if listing not in (None, verdict) and verdict is not Verdict.STATISTIC and (is_listed or name in learned):
                role = f"parameter {learned[name]!r}" if name in learned else "a buffer"
                verdict, why, evidence = listing, f"the file's exporter lists it as {role}", ("exporter",)
            if verdict is not None:
                decisions.append(Decision(name, shape, verdict, why, evidence))
            elif is_listed:
                unclear.append(f"{name!r} {list(shape)}: {why}")
    if unclear:
        count = f"{len(unclear)} constants" if len(unclear) > 1 else "a constant"
        raise UsageError(
            f"whether {count} of the model should be trained cannot be told",
            facts=tuple(unclear),
            hint="say it: --train PATTERN trains constants of these names, --freeze PATTERN leaves them as they are; "
            "PyTorch's exporter computes fewer constants with optimize=False (docs/export-from-pytorch.md)",
        )
    return Parameters(tuple(decisions))


def is_float_tensor(forward: Graph, name: str) -> bool:
    """Whether a tensor is of floats and of rank 1 or more."""
    return forward.tensors[name].dtype.is_float and bool(forward.tensors[name].shape)


def _is_listed(forward: Graph, name: str) -> bool:
    """Whether a constant may be a parameter by itself: no scalars of formulas, nothing that the file computes."""
    if name in forward.folded or not forward.tensors[name].dtype.is_float:
        return False
    return bool(forward.tensors[name].shape) or is_chosen_name(name)


def outcome(parameters: Parameters, step: Graph) -> Parameters:
    """What became of a model's constants in its training step: some that were to be trained may get no gradient."""
    states = {pair.current for pair in step.state}
    decisions: list[Decision] = []
    for decision in parameters.decisions:
        if decision.name in states or decision.verdict is Verdict.FROZEN:
            decisions.append(decision)
        elif decision.verdict is Verdict.STATISTIC:
            decisions.append(replace(decision, verdict=Verdict.FROZEN))
        else:
            why = f"no gradient reaches it ({decision.why})"
            decisions.append(replace(decision, verdict=Verdict.FROZEN, why=why, evidence=("gradient",)))
    return Parameters(tuple(decisions))


class _Wishes:
    """The user's choices by patterns of names."""

    def __init__(self, forward: Graph, train: Sequence[str], freeze: Sequence[str]) -> None:
        self._patterns = [("--train", pattern, Verdict.TRAINED) for pattern in train]
        self._patterns += [("--freeze", pattern, Verdict.FROZEN) for pattern in freeze]
        if self._patterns:
            self._check(forward)

    def _check(self, forward: Graph) -> None:
        # A scalar without a name of its own is meant by its whole name alone, not by ``*``.
        names = [
            name
            for name in forward.constants
            if is_float_tensor(forward, name) or self._means_scalar(forward, name)
            if not _is_statistic(forward, name)
        ]
        facts: list[str] = []
        hints: list[str] = []
        self._names = frozenset(names)
        for option, pattern, _ in self._patterns:
            if any(fnmatchcase(name, pattern) for name in names):
                continue
            matches = [name for name in forward.tensors if fnmatchcase(name, pattern)]
            facts.append(f"{option} {pattern!r} fits {_what_else(forward, matches)}")
            hints.append(did_you_mean(pattern, names))
        if facts:
            hint = " ".join(dict.fromkeys(filter(None, hints))) or _parameter_hint(names)
            raise UsageError("patterns that fit no constant that could be trained", facts=tuple(facts), hint=hint)
        for name in names:
            self.of(name)

    def _means_scalar(self, forward: Graph, name: str) -> bool:
        tensor = forward.tensors[name]
        is_named = _is_listed(forward, name) or any(pattern == name for _, pattern, _ in self._patterns)
        return tensor.dtype.is_float and not tensor.shape and is_named

    def of(self, name: str) -> tuple[Verdict, str] | None:
        """What is said of a constant, and by which option; None if nothing is.

        Raises:
            UsageError: patterns of equal length say both.
        """
        fit = [
            (letters(pattern), f"{option} {pattern}", verdict)
            for option, pattern, verdict in self._patterns
            if name in self._names and fnmatchcase(name, pattern)
        ]
        if not fit:
            return None
        max_length = max(length for length, _, _ in fit)
        best = {verdict: option for length, option, verdict in fit if length == max_length}
        if len(best) > 1:
            raise UsageError(f"{name!r} is to be trained and frozen: {' and '.join(best.values())} fit it alike")
        ((verdict, option),) = best.items()
        return verdict, option


def _is_statistic(forward: Graph, name: str) -> bool:
    """Whether ops read a constant as a running mean or variance, and nothing reads it otherwise."""
    slots = statistic_slots(forward, name)
    return bool(slots) and None not in slots


def _parameter_hint(names: Sequence[str]) -> str:
    """A hint that names constants."""
    return f"constants that could be: {some([*map(printable, names)], _SHOWN)}" if names else ""


def _what_else(forward: Graph, names: Sequence[str]) -> str:
    if not names:
        return "nothing"
    name, tensor = names[0], forward.tensors[names[0]]
    if name in forward.constants and tensor.dtype.is_float and tensor.shape:
        return f"{name!r}, a running statistic: --batchnorm says what becomes of those"
    if name in forward.constants and tensor.dtype.is_float:
        return f"{name!r}, a number of a formula: its whole name trains it"
    if name in forward.constants:
        return f"{name!r}, which is {list(tensor.shape)} of {tensor.dtype.value}: floats are trained"
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
        return leading_to(self._forward, [self._target])

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
        if not self._forward.tensors[name].shape:
            return self._scalar(name, readers)
        form = self._form(name, readers)
        if form:
            return Verdict.FROZEN, form, ("values",)
        if not readers:
            return Verdict.TRAINED, "the output that the loss looks at is made of it", ("readers",)
        learned = [reader for reader in readers if reader.use in LEARNED]
        is_named = is_parameter_name(name)
        # A normalisation of data scales the input as well: there, only a name makes a parameter.
        if is_named and not learned:
            learned = [reader for reader in readers if reader.use is Use.INPUT_SCALE]
        if not learned:
            return None, f"{_op_types(readers)} reads it, as layers seldom read their parameters", ()
        if not is_named and all(reader.use is Use.SCALE and not _is_vector(reader.shape) for reader in learned):
            return None, f"a table that {_op_types(learned)} multiplies with data, and its name tells nothing", ()
        if not is_named and name in self._external and self._may_be_mask(name, uses):
            return None, f"{_op_types(learned)} reads it, its name tells nothing, and its values are external data", ()
        return Verdict.TRAINED, f"read by {_op_types(learned)}", ("readers", "name") if is_named else ("readers",)

    def _scalar(self, name: str, readers: Sequence[Reader]) -> tuple[Verdict, str, tuple[str, ...]]:
        array = self._forward.constants[name]
        op_types = list(dict.fromkeys(reader.op_type for reader in readers))
        why = why_frozen(name, None if array is None else float(array), op_types)
        if why:
            return Verdict.FROZEN, f"{why}; --train NAME trains it", ("name",)
        return Verdict.TRAINED, f"a scalar, read by {_op_types(readers)}", ("readers", "name")

    def _statistic(self, name: str, readers: Iterable[Reader]) -> tuple[Verdict, str, tuple[str, ...]]:
        reader = next((reader for reader in readers if reader.use is not Use.STATISTIC), None)
        if reader is not None:
            raise UnsupportedError(
                f"{name!r} is a running statistic, and op {reader.op!r} ({reader.op_type}) "
                f"reads it as its {reader.use.value}",
                hint="export the model without optimizing it (PyTorch: optimize=False, docs/export-from-pytorch.md)",
            )
        return Verdict.STATISTIC, "running statistic", ("readers",)

    def _may_be_mask(self, name: str, uses: frozenset[Use]) -> bool:
        """Whether it is only added to data, or joined with them, in several dims, as both masks and positions are."""
        return _EXACT.isdisjoint(uses) and not _is_vector(self._forward.tensors[name].shape)

    def _form(self, name: str, readers: Sequence[Reader]) -> str:
        """What the values are, if it is something that no training makes; else ""."""
        array = self._forward.constants[name]
        uses = frozenset(reader.use for reader in readers)
        if array is None:
            return ""
        if holds_lowest(array):
            return "holds -inf or -3e38, as masks do"
        if is_one_value(array):
            may_be = is_parameter_name(name) or self._begins_at_zero(name, array, readers)
            return "" if may_be else "one value throughout, and not named as a parameter"
        if _EXACT.isdisjoint(uses):
            if is_on_and_off(array):
                return "holds 0 and one other value, as masks do"
            if not _is_vector(array.shape) and is_of_waves(array):
                return "a table of sines or of evenly spaced numbers"
        return ""

    def _begins_at_zero(self, name: str, array: np.ndarray, readers: Sequence[Reader]) -> bool:
        """Whether a constant of zeros is a parameter at its start: nobody multiplies with zeros, or adds them, else.

        Zeros of one's own name may be masks that mask nothing, and first states of recurrent networks.
        """
        if array.any():
            return False
        uses = {reader.use for reader in readers if not _is_first_state(reader)}
        if uses & {Use.PRODUCT, Use.KERNEL}:
            return True
        is_named = not is_made_up(name) and words_of(name).isdisjoint({"mask", "pad", "padding", "zero", "zeros"})
        return is_named and bool(uses & {Use.BIAS, Use.SCALE, Use.TABLE})


def _is_first_state(reader: Reader) -> bool:
    return reader.use is Use.BIAS and reader.op_type in RECURRENT and len(reader.shape) == 3


def _op_types(readers: Iterable[Reader]) -> str:
    return ", ".join(dict.fromkeys(reader.op_type for reader in readers))


def _is_vector(shape: Shape) -> bool:
    return sum(size > 1 for size in shape) <= 1
