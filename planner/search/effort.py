"""Every number of the search: its unit, and what doubling it does.

Limits are counted: in entries of tables (8 bytes each), in passes, in rounds; never in seconds. What doubling each of
them was measured to do, and what each move earns, is in bench/results/ablation.md, made by
``bench/ablation.py``. In which order moves are made is in ``planner.search.schedule``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

EffortName: TypeAlias = Literal["quick", "normal", "thorough"]
EFFORTS: tuple[EffortName, ...] = ("quick", "normal", "thorough")


@dataclass(frozen=True, slots=True)
class BoundLimits:
    """The limits of the work on a bound, in counted quantities."""

    table_entries: int = 40_000_000
    """Entries of all different tables of the joint problem; a larger problem is not begun."""
    pair_entries: int = 200_000_000
    """Entries that one pass over the core reads; a larger core is not bounded."""
    rounds: int = 12
    """The rounds of passes and taking out."""
    large_entries: int = 80_000_000
    """Entries of the core's pairs from which on, as in entangled graphs, ``coarse_rounds`` come first."""
    coarse_rounds: int = 4
    """Rounds of passes over values that leave the order of cuts open, before those over all values."""
    large_rounds: int = 1
    """Rounds over all values of a core of more than ``large_entries``."""
    enough: float = 1e-3
    """Share of the bound: a smaller gap need not be closed, where there were ``coarse_rounds``."""
    joins_rounds: bool = False
    """The cheapest assignment of each round is joined into the plan, too, which costs some searches from then on."""
    least_gain: float = 1 / 25
    """A round that closes a smaller share of the gap is the last."""
    exact_entries: int = 1 << 25
    """Exact elimination begins when no bucket is larger than this."""
    near_entries: int = 4_000_000_000
    """Entries that passes read over what is near where the best plan costs more than the bound, at last."""
    region_entries: int = 500_000_000
    """Entries that are read while a region is branched on."""


NORMAL_BOUND = BoundLimits()
"""Limits within which a bound takes seconds."""
THOROUGH_BOUND = BoundLimits(
    table_entries=200_000_000,
    pair_entries=1_000_000_000,
    rounds=60,
    coarse_rounds=60,
    large_entries=0,
    large_rounds=60,
    enough=0.0,
    joins_rounds=True,
    least_gain=1 / 1000,
    near_entries=20_000_000_000,
    region_entries=2_000_000_000,
)
"""Limits within which a bound takes minutes."""


MAX_TABLE_ENTRIES = 1 << 25
"""Entries of a bucket; a larger one is refused. Doubled, an elimination may take 256 MiB more."""
MOVE_ENTRIES = 1 << 22
"""Entries of a bucket of a move that can be made in smaller parts. Doubled, more moves are made at once."""
PART_ENTRIES = 1 << 18
"""Entries of a bucket where an entangled graph is decided in parts. Doubled, fewer variables stay, and more time."""
HELD_ENTRIES = 1 << 25
"""Entries of tables that are kept from one solution to the next. Doubled, up to 256 MiB more are held."""
CORE_ENTRIES = 1 << 24
"""Entries of a bucket of a variable with two neighbours that is eliminated before a bound. Doubled, smaller cores."""
TABLES_AT_ONCE = 1 << 16
"""Entries of tables that are made between two looks at whether a search is to end. Doubled, it may end later."""
USUAL_CHANGES = 4
"""Candidates of a variable beside its directions, as the order of elimination assumes. Doubled, other orders."""
BUCKET_BATCH = 1 << 11
"""Entries of buckets that are solved in one call. Doubled, fewer calls, and more copies."""
CACHED_ENTRIES = 1 << 17
"""Entries of a sum that is minimised at once; a larger one value by value. Doubled, 2 MiB, more than most caches."""
REMEMBERED_MINIMA = 1 << 20
"""Values of which it is kept where their minimum is; of more it is found again. Doubled, up to 8 MiB more a bucket."""
SUM_LIMIT = 1 << 62
"""A sum of costs is below it: the limit of the number format, with a bit to spare."""
ROWS_IN_ARRAYS = 64
"""Rows from which on they are compared in arrays, not in a dictionary. Doubled, more use of dictionaries."""
COUNTING_SORT_RANGE = 8
"""Multiples of the count: numbers up to this are told apart by counting, not by sorting. Doubled, more memory."""
ORDER_SLACK_BITS = 1.0
"""Power of two by which buckets of a round of the order may be above its smallest. Doubled, fewer and larger ones."""
SMALL_BUCKET_BITS = 9.0
"""Power of two up to which a round takes all buckets. Doubled, fewer rounds, and larger buckets."""
ORDER_PASSES = 12
"""Looks of a round for further variables that are no neighbours of those it has. Doubled, rarely fewer rounds."""
HASH_FACTOR = 2654435761
"""Knuth's multiplicative hash, by which neighbouring numbers fall far apart. No quantity."""

FUSION_ROUNDS = 20
"""Rounds of fusion, at most; it ends where a round changes nothing."""
FUSION_ORDERS = 720
"""Orders of the same placements that fusion offers: all of six cuts. Doubled, the same: seven cuts have 5,040."""
ENTANGLED_ROUNDS = 8
"""Rounds in which other variables stay what they are, of an entangled graph. Doubled, up to twice the time."""
ENTANGLED_GAIN = 5e-3
"""Share of a plan's cost: such a round that saves less is the last. Doubled, fewer rounds."""
HOPELESS_START = 2
"""Times the best plan's cost: an entangled graph's start that costs more is not improved. Doubled, more are."""
SETTLED_PROBLEMS = 8
"""Orders of elimination of entangled graphs that are kept for later cuts and starts. Doubled, some MiB more."""
UNSPLIT_SHARE = 1e-3
"""A share of a plan's cost: an op charged less is not named among those that could not be split. Doubled, fewer are
named.
"""

MANY_OPS = 300
"""Ops of a graph from which on equal blocks are looked for, and a plan of nearly the same graph is taken for a start.
Doubled, graphs of up to 600 ops are planned whole, and twice."""
WHOLE_OPS = 2_000
"""Ops of a graph up to which programs of several plans are made to tell which is the fastest, and all strategies of the
literature are planned to compare with. Doubled, up to twice the time for graphs of that size."""
LITTLE_SAVED = 1e-3
"""Share of a plan's cost: one of nearly the same graph that saves less is not worth a bound. Doubled, fewer bounds."""
EXACT_AT_ONCE = 1 << 20
"""Entries of a bucket up to which a core is eliminated without a pass. Doubled, more cores need no pass."""
BOUND_PASSES = 10
"""Passes between two looks at what they brought. Doubled, fewer looks."""
SHARE_ABOVE = 1 / 256
"""Share of a gap: a variable where a plan costs as much more than the bound is a place to look at. Doubled, fewer."""
SHARE_OF_REGION = 1 / 64
"""The same for a region to be around it. Doubled, fewer regions."""
NEAR_REACH = 12
"""Pairs between such a variable and the last ones that are passed over with it. Doubled, about all of a large core."""
NEAR_PASSES = 200
"""Passes over these, at most. Doubled, up to twice the time."""
ENTRIES_OF_A_CALL = 1 << 12
"""Entries that are read in about the time in which a pass begins with a pair. Doubled, less work is done."""
REGION_REACH = 10
"""Pairs between the middle of a region and its last variables. Doubled, larger and slower regions."""
REGION_LOOK = 3
"""Pairs between two such variables of one region. Doubled, fewer and larger regions."""
REGION_PASSES = 10
"""Passes over each part of a region. Doubled, fewer parts, which are bounded better."""
SHARE_NEAR = 1 / 50
"""Share of a gap: a value above the bound by no more looks good. Doubled, more parts at once."""
ROUNDING = (1e-9, 1e-3)
"""The error of a sum of floats that stands for an integer: a share of its size, and bytes besides."""

BLOCKS_OF_A_RUN = 6
"""Equal blocks of a run, at least. Doubled, shorter runs are planned whole."""
OPS_OF_A_BLOCK = 8
"""Ops of a block, at least. Doubled, runs of smaller blocks are planned whole."""
RUN_SEEDS = 12
"""Pairs of ops that are tried as the same op of two neighbouring blocks. Doubled, more runs may be found."""
LEAST_SHORTENED = 0.2
"""Share of a graph's ops: one that would become shorter by less is planned whole."""
FEWEST_COPIES = 3
"""Ops that read a state in the same place, at least. Doubled, short recurrences are decided step by step."""

HIGHEST_PRICE = Fraction(1024)
"""Cost in bytes, moved and excess, for a byte of memory: more than any plan could save by having it. All plans of small
graphs save at most 3, be work cheap or dear (tests/features/fit/test_fitting_exhaustively.py)."""
LOWEST_PRICE = Fraction(1, 1024)
"""The first price that is tried, in the same unit: it only chooses, among plans of one cost, the one of less memory."""
MOST_TRIALS = 16
"""Plans that are searched for at the prices of one limit, at most. Doubled, up to twice the time where none fits."""
FEWEST_TRIALS = 2
"""Plans that are searched for at least, however large the graph is. Doubled, up to twice the time of large graphs."""
EQUAL_AIMS = Fraction(1, 2000)
"""Share of a limit: two aims for memory that differ by less count as equal. Doubled, fewer trials."""

LAYER_STRATEGIES = 1 << 22
"""Strategies of the layers that are left after ICML'18's eliminations; more are refused. Doubled, 32 MiB more."""
LEVEL_STEPS = 1 << 27
"""Variables of SoyBean's levels, squared: one after the other is eliminated, each step in time by how many are left.
More are refused. Doubled, up to a minute more."""
LEVEL_STATES = 1 << 24
"""States of a level of SoyBean's programme; more are refused. Doubled, 128 MiB more."""
PASSES_OF_TRAINING = 3
"""The work of an op of a forward pass, and again for the gradients of its inputs and of its weights. No limit."""
