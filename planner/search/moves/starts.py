"""Starts of plans: restrictions under which recursion finds plans that fusion then improves.

Fusion is local, so where it begins matters: on a transformer the best plan grows out of a hybrid one, on convolutions
with many channels out of a recursive one. None of the starts need be good itself, and one that a model has no use for
(data parallelism without a batch) is left out.

A further start is one more restriction (``planner.search.moves.restrictions``) in one of the lists: ``freely``,
``likely`` or ``others``. With which effort and after what else plans grow out of a list, the schedule says
(``planner.search.schedule``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import TypeAlias

from planner.errors import ModelError
from planner.search.effort import MANY_OPS
from planner.search.model.problem import Problem, Restriction, no_restriction
from planner.search.moves import restrictions
from planner.search.moves.megatron import tensor_parallel
from planner.search.moves.move import Ground

Starts: TypeAlias = Callable[[Ground], list[Restriction]]


def freely(ground: Ground) -> list[Restriction]:
    """Recursion without a restriction (SoyBean, section 4)."""
    return [no_restriction]


def likely(ground: Ground) -> list[Restriction]:
    """The plan of nearly the same graph, if one is known; that of transformers; else, of a small graph, a hybrid one.

    A transformer whose heads are no dim of their own, as frameworks trace them, has no plan like Megatron-LM's; a
    hybrid one leads nearly as far.
    """
    if ground.to_beat is not None:
        return [ground.to_beat.keep]
    if (starts := of_transformers(ground)) or len(ground.problem.ops) > MANY_OPS or len(ground.cuts) < 2:
        return starts
    with contextlib.suppress(ModelError):  # a model without a batch has no such plan
        return hybrids(ground.problem, len(ground.cuts))[:1]
    return []


def of_transformers(ground: Ground) -> list[Restriction]:
    """Data parallelism at the outermost cut, Megatron-LM's way within; none where that divides nothing.

    With one cut, which is solved exactly, there are none.
    """
    if len(ground.cuts) < 2:
        return []
    with contextlib.suppress(ModelError):  # no attention with heads of their own, or no batch
        within = tensor_parallel(ground.problem)
        across = restrictions.data_parallel(ground.problem)
        return [restrictions.by_cut((across, *[within] * (len(ground.cuts) - 1)))]
    return []


def others(ground: Ground) -> list[Restriction]:
    """Starts with nothing replicated; first dims; data parallelism, and hybrids of it, also where they are only
    preferred.

    There are none with one cut, and where a plan of nearly the same graph is known. Nor are there in a large graph that
    is too entangled to be solved exactly: there plans of other starts have not been better than what moves in parts and
    the bound lead to.
    """
    problem, cuts = ground.problem, len(ground.cuts)
    if cuts < 2 or ground.to_beat is not None or (problem.decided_apart and len(problem.ops) > MANY_OPS):
        return []
    starts = [restrictions.partitioned(problem), restrictions.first_dim(problem)]
    with contextlib.suppress(ModelError):  # a model without a batch has no such plans
        mixed = [*hybrids(problem, cuts), restrictions.data_parallel(problem)]
        starts += [*mixed, *map(restrictions.preferring, mixed)]
    return starts


def hybrids(problem: Problem, cuts: int) -> list[Restriction]:
    """Data parallelism at the outer cuts and model parallelism at the inner ones, for all group sizes.

    Raises:
        ModelError: there is no batch.
    """
    return grouped(restrictions.data_parallel(problem), restrictions.model_parallel(problem), cuts, range(1, cuts))


def grouped(across: Restriction, within: Restriction, cuts: int, outer: Iterable[int]) -> list[Restriction]:
    """One restriction at so many outer cuts, across groups, and another at the inner ones, within a group."""
    return [restrictions.by_cut((*[across] * count, *[within] * (cuts - count))) for count in outer]
