"""Two expressions paired, tree against tree: which indices must then be equal, and what else must hold.

Pairs are of one kind: the same tensors, functions and reductions, with numbers that are equal. Nothing is said of
places yet: what was found is equations between indices, and what is to be looked at once offsets are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from planner.algebra.tiling import Reducer
from planner.features.prove.proof import index
from planner.features.prove.proof.expression import (
    Acc,
    App,
    Expr,
    Hit,
    Joins,
    Num,
    Opq,
    Pos,
    Red,
    Times,
    Total,
    UnprovenError,
    terms_of,
)
from planner.features.prove.proof.index import Lin, Space
from planner.features.prove.proof.placing import MismatchError, Read, Term
from planner.graph.core.model import DType


@dataclass(frozen=True, slots=True)
class Literal:
    """An array that a worker's file holds, or a constant of the model, by content."""

    digest: str
    array: np.ndarray = field(compare=False)

    def __str__(self) -> str:
        return "a constant"


@dataclass(frozen=True, slots=True)
class Joined:
    """A part of a Concat whose place is not told by how it is read."""

    local: Expr
    model: Expr
    axis: int
    mine: tuple[int, int]
    """Where it begins along the axis here, and its size."""
    theirs: tuple[int, int]


def _may_join(local: Expr, model: Expr) -> bool:
    if isinstance(local, Acc) and isinstance(model, Acc):
        if isinstance(local.tensor, Literal):
            return isinstance(model.tensor, Literal)
        return local.tensor == model.tensor
    return isinstance(local, Num) and local == model


@dataclass
class Constraints:
    """The constraints that pairing two trees has given so far."""

    equations: list[tuple[Lin, Lin]] = field(default_factory=list)
    reads: list[Read | None] = field(default_factory=list)
    """By equation, the claim and the dim of it that is read; None: an index that is a value."""
    fixed: list[Read] = field(default_factory=list)
    """Of claims, dims whose places were looked at."""
    still: set[int] = field(default_factory=set)
    """Of the model's variables, those whose places were."""
    accesses: list[tuple[Acc, Acc]] = field(default_factory=list)
    literals: list[tuple[Acc, Acc]] = field(default_factory=list)
    joined: list[Joined] = field(default_factory=list)
    pairs: list[tuple[int, int]] = field(default_factory=list)
    """Reduction variables, the local one and the model's."""
    inner: set[int] = field(default_factory=set)
    """Of the model's: those that are not reduced outermost, and so must be whole."""
    looked_up: set[int] = field(default_factory=set)
    """Of the model's: those that a value is compared with, and so must be whole: ONNX counts an index below 0 from the
    end of what it has, so that one op on a part finds other elements there. Parts are proven by their local rules."""

    def equate(self, local: Lin, model: Lin, read: Read | None = None) -> None:
        self.equations.append((local, model))
        self.reads.append(read if read is not None and read[0] >= 0 else None)

    def copy(self) -> Constraints:
        return Constraints(**{name: value.copy() for name, value in vars(self).items()})


class Pairing:
    """Pairs the expressions of one output.

    Args:
        space: of all variables.
        rounds_to: the float dtype that all numbers of the op are used in; None if there is none.
        mine: the local output's variables, by dim.
        theirs: the model's.
    """

    def __init__(self, space: Space, rounds_to: DType | None, mine: Sequence[Lin], theirs: Sequence[Lin]) -> None:
        self._space = space
        self._rounds_to = None if rounds_to is None else rounds_to.array_dtype
        self._mine, self._theirs = mine, theirs

    def terms(self, local: Expr, model: Expr, constraints: Constraints) -> list[Term]:
        """The model's terms, with those of the local sum that are parts of them.

        Args:
            local: of the worker's element.
            model: of the model's.
            constraints: what pairing them gives is added.

        Raises:
            MismatchError: they are not one tree.
        """
        ours, theirs = terms_of(local), terms_of(model)
        free = list(range(len(theirs)))
        terms: list[Term] = []
        for factor, term in ours:
            for number in free:
                trial = constraints.copy()
                if not self._close(factor, theirs[number][0]):
                    continue
                model_term = self._term(number, term, theirs[number][1], trial)
                if model_term is not None:
                    vars(constraints).update(vars(trial))
                    terms.append(model_term)
                    free.remove(number)
                    break
            else:
                raise MismatchError("it computes something else", is_alike=False)
        for number in free:
            value = theirs[number][1]
            variables = value.variables if isinstance(value, Red) and value.reducer is Reducer.SUM else ()
            terms.append(Term(number, None, (), (), self._extents(variables), is_there=False))
        return terms

    def _extents(self, variables: Sequence[int]) -> tuple[int, ...]:
        return tuple(self._space.extents[variable] for variable in variables)

    def _term(self, number: int, local: Expr, model: Expr, constraints: Constraints) -> Term | None:
        reducer: Reducer | None = None
        variables: tuple[int, ...] = ()
        sizes: tuple[int, ...] = ()
        inner_local, inner_model = local, model
        if isinstance(local, Red) and isinstance(model, Red) and local.reducer is model.reducer:
            if len(local.variables) != len(model.variables):
                return None
            reducer, variables, sizes = model.reducer, model.variables, self._extents(local.variables)
            constraints.pairs.extend(zip(local.variables, model.variables, strict=True))
            inner_local, inner_model = local.body, model.body
        before = len(constraints.accesses)
        if not self._pair(inner_local, inner_model, constraints):
            return None
        term = Term(number, reducer, variables, sizes, self._extents(variables))
        partials = [(acc.partial, acc.origin) for acc, _ in constraints.accesses[before:] if acc.partial is not None]
        if not partials:
            return term
        if any(acc.partial is not None and acc.fill for acc, _ in constraints.accesses[before:]):
            raise MismatchError("a partial result is padded")
        # Only what is linear in a sum may be applied to its parts before they are added.
        factors = inner_local.factors if isinstance(inner_local, Times) else (inner_local,)
        direct = sum(isinstance(factor, Acc) and factor.partial is not None for factor in factors)
        if len(partials) != 1 or direct != 1:
            raise MismatchError("a partial result is read by what is not linear in it")
        partial, origin = partials[0]
        if partial.reducer is not Reducer.SUM and (reducer is not None or len(factors) > 1):
            raise MismatchError("a partial maximum is read by what is not its like")
        if reducer not in (None, Reducer.SUM):
            raise MismatchError("a partial result is read by what is not linear in it")
        return replace(term, partial=partial, origin=origin)

    def _pair(self, local: Expr, model: Expr, constraints: Constraints) -> bool:
        if isinstance(model, App) and isinstance(model.tag, Joins):
            return self._pair_joined(local, model.arguments, model.tag, constraints)
        match local, model:
            case Num(ours), Num(theirs):
                return self._close(ours, theirs)
            case Acc(), Acc():
                return self._pair_access(local, model, constraints)
            case App(local_tag, ours), App(model_tag, theirs):
                return local_tag == model_tag and self._pair_all(ours, theirs, constraints)
            case Red(local_reducer, local_variables, ours), Red(model_reducer, model_variables, theirs):
                if local_reducer is not model_reducer or len(local_variables) != len(model_variables):
                    return False
                constraints.pairs.extend(zip(local_variables, model_variables, strict=True))
                constraints.inner.update(model_variables)
                return self._pair(ours, theirs, constraints)
            case Opq(local_tag, ours, local_at), Opq(model_tag, theirs, model_at):
                if (
                    local_tag != model_tag
                    or len(local_at) != len(model_at)
                    or not self._pair_all(ours, theirs, constraints)
                ):
                    return False
                for local_index, model_index in zip(local_at, model_at, strict=True):
                    if local_index is not None and model_index is not None:
                        constraints.equate(local_index, model_index)
                    elif local_index is not model_index:
                        return False
                return True
            case Pos(local_index), Pos(model_index):
                constraints.equate(local_index, model_index)
                return True
            # ONNX counts an index below 0 from the end: a part of the dim would find other elements.
            case Hit(ours, local_index), Hit(theirs, model_index):
                constraints.equate(local_index, model_index)
                constraints.looked_up |= set(model_index.variables)
                return self._pair(ours, theirs, constraints)
            case Total(ours), Total(theirs):
                return (
                    len(ours) == len(theirs)
                    and all(self._close(a, b) for (a, _), (b, _) in zip(ours, theirs, strict=True))
                    and self._pair_all([term for _, term in ours], [term for _, term in theirs], constraints)
                )
            case Times(ours), Times(theirs):
                return self._pair_all(ours, theirs, constraints)
        return False

    def _pair_all(self, ours: Sequence[Expr], theirs: Sequence[Expr], constraints: Constraints) -> bool:
        return len(ours) == len(theirs) and all(
            self._pair(local, model, constraints) for local, model in zip(ours, theirs, strict=True)
        )

    def _pair_joined(self, local: Expr, model: Sequence[Expr], joins: Joins, constraints: Constraints) -> bool:
        """Concat: what is joined here are parts of what the model joins, each at its own place.

        Where a part lies is told by how it is read. Of what is the same everywhere along the dim, and of constants, it
        is told by where it begins here and in the model (``_check_joined``).
        """
        axis = joins.axis
        constraints.still.add(number_of(self._theirs[axis]))
        ours = local.arguments if isinstance(local, App) else (local,)
        constraints.fixed += [(part.origin, axis) for part in ours if isinstance(part, Acc) and part.origin >= 0]
        if not (isinstance(local, App) and isinstance(local.tag, Joins) and local.tag.axis == axis):
            if not isinstance(local, Acc) or isinstance(local.tensor, Literal) or local.lo[axis] is None:
                return False
            candidates = [part for part in model if isinstance(part, Acc) and part.tensor == local.tensor]
            return bool(candidates) and local.partial is None and self._pair(local, candidates[0], constraints)
        free = list(range(len(model)))
        is_direct = False
        for mine, (start, size) in zip(local.arguments, local.tag.places, strict=True):
            chosen = [n for n in free if _may_join(mine, model[n])]
            if not chosen or (isinstance(mine, Acc) and mine.partial):
                return False
            free.remove(chosen[0])
            theirs = model[chosen[0]]
            if isinstance(mine, Acc) and isinstance(theirs, Acc) and not isinstance(mine.tensor, Literal):
                if not self._pair(mine, theirs, constraints):
                    return False
                constraints.accesses.pop()  # beyond its array another one is taken, here and in the model
                first, at = mine.lo[axis], mine.at[axis]
                if first is not None:
                    wanted = index.plus(self._mine[axis], index.number(first - start))
                    is_direct = is_direct or at == wanted
                    continue
            constraints.joined.append(Joined(mine, theirs, axis, (start, size), joins.places[chosen[0]]))
        return is_direct or not constraints.joined

    def _pair_access(self, local: Acc, model: Acc, constraints: Constraints) -> bool:
        if isinstance(local.tensor, Literal):
            if not isinstance(model.tensor, Literal) or len(model.at) != len(local.at):
                return False
            constraints.literals.append((local, model))
            return True
        if local.tensor != model.tensor or len(local.at) != len(model.at):
            return False
        for dim, (local_at, model_at) in enumerate(zip(local.at, model.at, strict=True)):
            if isinstance(local_at, Lin) and isinstance(model_at, Lin):
                if local.lo[dim] is not None:
                    constraints.equate(local_at, model_at, (local.origin, dim))
                continue
            is_whole = local.held[dim] == local.sizes[dim] and local.lo[dim] in (0, None)
            if not is_whole:
                return False
            if isinstance(local_at, Acc) and isinstance(model_at, Acc):
                if not self._pair(local_at, model_at, constraints):
                    return False
            elif local_at is not None or model_at is not None:
                return False
        constraints.accesses.append((local, model))
        return True

    def _close(self, local: float, model: float) -> bool:
        """Whether two numbers are equal, or near and finite and the same as the dtype has them."""
        if local == model or self._rounds_to is None or not abs(local - model) <= 0.01 * abs(model):
            return local == model
        with np.errstate(all="ignore"):
            first, second = (np.asarray(number).astype(self._rounds_to).astype(np.float64) for number in (local, model))
        return bool(np.isfinite(first) and first == second)


def number_of(lin: Lin) -> int:
    """The variable that an output's or a reduction's index is."""
    variable = index.variable_of(lin)
    if variable is None:
        raise UnprovenError("an output's variable")
    return variable
