"""Operators verified: every strategy of every case executed split and whole, and the strategies that are missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from planner.errors import TofuError, UsageError, did_you_mean
from planner.features.ops.allowed import gap_reason
from planner.features.ops.cases.case import Case, bind_case, by_type, find_operator, qualified
from planner.features.ops.cases.examples import all_cases
from planner.features.ops.execute import NoKernelError
from planner.features.ops.missing import missing_strategies
from planner.features.ops.strategies import enumerate_steps, enumerate_strategies, run_whole, verify_strategy
from planner.records import Positive
from planner.tdl.descriptions import Descriptions

Ways: TypeAlias = tuple[int, ...]
"""How many ways each cut of a strategy goes; two numbers are a pair of cuts on one op."""

QUICK: tuple[Ways, ...] = ((2,), (3,))
THOROUGH: tuple[Ways, ...] = ((2,), (3,), (4,), (2, 2), (2, 3), (3, 2))
Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with an operator, its number and how many there are."""


@dataclass(frozen=True, slots=True)
class OperatorVerification:
    """The findings on one operator."""

    told: ClassVar = (
        "domain op_type right=is_right shapes executed pairs in_steps=stepped bit_equal largest_error variables "
        "vetoed veto_reason wrong missing left_out not_executed"
    )

    domain: str
    op_type: str
    shapes: int
    """Cases: attributes and shapes tried."""
    executed: int
    """(strategy, ways, shape) that were executed split and whole."""
    pairs: int
    """The pairs of cuts among those."""
    stepped: int
    """The strategies in steps among those: of an op that sums products, along each variable that allows it."""
    bit_equal: int
    """The strategies among those with the very bits of the whole op."""
    largest_error: float
    """Largest difference of a right strategy, over the largest element of the whole result."""
    variables: tuple[str, ...]
    """Index variables along which it can be cut, sorted."""
    vetoed: int
    """Strategies that have no local op, and are left out of the search."""
    veto_reason: str
    wrong: tuple[str, ...]
    """Incorrect strategies and what is wrong with them; vetoes that nothing explains too."""
    missing: tuple[str, ...]
    """Strategies that would have been right, are not given, and have no reason on the list."""
    left_out: tuple[str, ...]
    """Those that have, with it."""
    not_executed: tuple[str, ...] = ()
    """Cases without a kernel and a reference."""

    @property
    def is_right(self) -> bool:
        return not self.wrong and not self.missing and not self.not_executed


@dataclass(frozen=True, slots=True)
class Verification:
    """The findings on several operators."""

    schema_version: ClassVar = 1
    told: ClassVar = "right=is_right executed in_steps=stepped ways wrong missing operators"

    ways: tuple[tuple[Positive, ...], ...]
    operators: tuple[OperatorVerification, ...]

    @property
    def executed(self) -> int:
        """(operator, strategy, ways, shape) that were executed split and whole."""
        return sum(operator.executed for operator in self.operators)

    @property
    def stepped(self) -> int:
        """The verified ones in steps."""
        return sum(operator.stepped for operator in self.operators)

    @property
    def wrong(self) -> tuple[str, ...]:
        return tuple(text for operator in self.operators for text in operator.wrong)

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(text for operator in self.operators for text in operator.missing)

    @property
    def not_executed(self) -> tuple[str, ...]:
        return tuple(text for operator in self.operators for text in operator.not_executed)

    @property
    def is_right(self) -> bool:
        return all(operator.is_right for operator in self.operators)


@dataclass
class _Tally:
    executed: int = 0
    pairs: int = 0
    stepped: int = 0
    bit_equal: int = 0
    vetoed: int = 0
    veto_reasons: set[str] = field(default_factory=set)
    largest_error: float = 0.0
    variables: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    not_executed: list[str] = field(default_factory=list)


def verify_operator(
    op_type: str,
    cases: Sequence[Case],
    descriptions: Descriptions,
    *,
    domain: str = "",
    ways: Sequence[Ways] = THOROUGH,
) -> OperatorVerification:
    """Executes all strategies of all cases of an operator, and looks for missing ones."""
    name, tally = qualified(domain, op_type), _Tally()
    gaps: dict[str, str] = {}
    for case in cases:
        try:
            _verify_case(case, descriptions, ways, tally)
            for gap in missing_strategies(case, descriptions):
                gaps[str(gap)] = gap_reason(name, str(gap))
        except NoKernelError as error:
            tally.not_executed.append(f"{case}: {error.what}")
        # A case that cannot run is a finding: the other cases are still verified.
        except TofuError as error:
            tally.wrong.append(f"{case}: {error.what}")
    return OperatorVerification(
        domain=domain,
        op_type=op_type,
        shapes=len(cases),
        executed=tally.executed,
        pairs=tally.pairs,
        stepped=tally.stepped,
        bit_equal=tally.bit_equal,
        largest_error=tally.largest_error,
        variables=tuple(sorted(tally.variables)),
        vetoed=tally.vetoed,
        veto_reason="; ".join(sorted(tally.veto_reasons)),
        wrong=tuple(tally.wrong),
        missing=tuple(text for text, reason in gaps.items() if not reason),
        left_out=tuple(f"{text}: {reason}" for text, reason in gaps.items() if reason),
        not_executed=tuple(tally.not_executed),
    )


def _verify_case(case: Case, descriptions: Descriptions, ways: Sequence[Ways], tally: _Tally) -> None:
    bound, inputs, expected = bind_case(case, descriptions)
    expected = expected or run_whole(bound, inputs)  # raises the error of an operator that nothing executes
    for cuts in ways:
        for candidate in enumerate_strategies(bound, *cuts):
            if candidate.veto:
                tally.vetoed += 1
                # A local rule says why it refuses a part; the same op on a smaller tensor has no reason to.
                tally.veto_reasons.add(candidate.veto)
                if bound.description.local is None:
                    tally.wrong.append(f"{case}: {candidate.text}: no local op: {candidate.veto}")
                continue
            counts = cuts if len(cuts) == 1 else ()  # a chunk is one more division: as many as there are workers
            for steps in (None, *enumerate_steps(bound, candidate.strategy, *counts)):
                verdict = verify_strategy(bound, candidate.strategy, inputs, whole=expected, steps=steps)
                tally.executed += 1
                tally.pairs += len(cuts) > 1
                tally.stepped += steps is not None
                tally.bit_equal += verdict.bit_equal
                tally.largest_error = max(tally.largest_error, verdict.largest_error)
                tally.wrong += [f"{case}: {verdict.text}: {finding.message}" for finding in verdict.findings]
            if len(cuts) == 1:
                tally.variables.add(candidate.text.split("/")[0].split(",")[0])


def verify_operators(
    descriptions: Descriptions,
    op_types: Sequence[str] = (),
    *,
    ways: Sequence[Ways] = THOROUGH,
    cases: Sequence[Case] | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Verifies operators, all that are described if none is named.

    Args:
        descriptions: what is verified.
        op_types: operators by name.
        ways: single cuts and pairs of cuts.
        cases: a user's own; the shipped ones, if not given.
        progress: told of every operator as it begins.

    Raises:
        UsageError: an operator that is not described, or has no cases.
    """
    cases_by_type = by_type(all_cases() if cases is None else tuple(cases))
    keys = [key for key in descriptions.described if qualified(*key) in cases_by_type]
    wanted = [(name, find_operator(name, keys)) for name in op_types] or [(qualified(*key), key) for key in keys]
    verifications = []
    for number, (name, key) in enumerate(wanted):
        if key is None:
            raise UsageError(
                f"operator {name} has no description, or no cases to verify it with",
                hint=did_you_mean(name, [qualified(*key) for key in keys]),
            )
        if progress is not None:
            progress(name, number, len(wanted))
        cases_of = cases_by_type[qualified(*key)]
        verifications.append(verify_operator(key[1], cases_of, descriptions, domain=key[0], ways=ways))
    return Verification(tuple(ways), tuple(verifications))
