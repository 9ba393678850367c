"""Tofu's printed figures: Figures 8 to 11 and Tables 1 to 3 beside estimates; ``python bench/papers.py`` prints them.

Every way to train one of the paper's networks is estimated on the paper's machine (``paper_row.p2``):

- *ideal*: the network undivided on one device with memory enough, eight times; batches of 128 (WResNet) and 512 (RNN);
- *Tofu*: its recursion, at the batch that the paper names, else the largest power of two that fits, up to the ideal's;
  transfers go on beside computing;
- *small batch*: one device, eight times, at the largest power of two that fits;
- *swapping*: one device's least recently used tensors go to the host, whose link eight share, half and full duplex;
- *placement*: layers in turn on the devices, as a pipeline (``placement.py``).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from paper_row import HOST_BYTES_PER_S, P2_READINGS, Job, Paper, Row, Verdict, alone_seconds, close, holds, p2
from placement import owners, pipelined_seconds, state_bytes
from strategies import Model
from swapping import counted, largest_op_bytes
from tofu_wresnet import blocks, observations

from planner import opdefs
from planner.cost.seconds.estimate import estimate
from planner.cost.tables import CostTables
from planner.features.ops.run import Operators
from planner.features.zoo.models import build, trained
from planner.graph.core.model import Graph
from planner.partition.build import Unplaced, unplaced
from planner.planning.deliveries import with_savings
from planner.planning.paid_again import paid_for_twice, savings
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.request import SearchRequest

WORKERS = 8
WIDE = tuple(f"wresnet-{depth}-{wide}" for depth in (50, 101, 152) for wide in (4, 6, 8, 10))
RECURRENT = tuple(f"rnn-{layers}-{size}k" for layers in (6, 8, 10) for size in (4, 6, 8))

TABLE_2 = {
    "rnn-6-4k": 8.4, "rnn-6-6k": 18.6, "rnn-6-8k": 33.0, "rnn-8-4k": 11.4, "rnn-8-6k": 28.5, "rnn-8-8k": 45.3,
    "rnn-10-4k": 14.4, "rnn-10-6k": 32.1, "rnn-10-8k": 57.0, "wresnet-50-4": 4.2, "wresnet-50-6": 9.6,
    "wresnet-50-8": 17.1, "wresnet-50-10": 26.7, "wresnet-101-4": 7.8, "wresnet-101-6": 17.1, "wresnet-101-8": 30.6,
    "wresnet-101-10": 47.7, "wresnet-152-4": 10.5, "wresnet-152-6": 23.4, "wresnet-152-8": 41.7,
    "wresnet-152-10": 65.1,
}  # fmt: skip
"""Tofu, table 2: weight, gradient and history in GiB, that is 3 W, where W is rounded to 0.1 first."""
TABLE_3 = {"rnn-6-4k": (210, 107), "rnn-8-4k": (154, 95), "rnn-10-4k": (122, 59)}
"""Samples a second of Tofu and of MXNet with operator placement; TensorFlow's, for want of an account of its memory,
are left out."""
IDEAL_BATCH = {"wresnet": 128, "rnn": 512}
SMALL_BATCH_FITS = ("wresnet-50-4", "wresnet-50-6", "wresnet-101-4")
FIGURE_11 = "wresnet-152-10"
"""The network that the paper draws its plan of."""
BASELINES = ("icml18", "equalchop", "spartan", "allrow-greedy")
"""Of Figure 10, beside the recursion."""


@dataclass(frozen=True, slots=True)
class Ways:
    """A network trained in the ways of Figures 8 and 9; samples a second on eight devices."""

    ideal: float
    search_seconds: float
    """Of the recursion, of the processor (Table 1)."""
    tofu: Mapping[str, float]
    """By reading of the links."""
    tofu_batch: int
    tofu_peak_bytes: int
    small: float
    """0 where not one sample fits."""
    small_batch: int
    """Of each device."""
    swapping: Mapping[str, float]
    """By what the paper leaves open: ``16, half`` has 16 samples on each device and a host link of half duplex; in
    ``128, full`` each has as many as the ideal baseline in all."""
    placement: float
    """0 where weights, gradients and histories alone do not fit, and of WResNet, as in the paper."""
    observed: tuple[tuple[str, bool], ...]
    """What the paper says of its plan, and whether it holds; of the network of Figure 11 alone."""

    def baseline(self) -> Baseline:
        """The recursion's plan, as Figure 10 draws it."""
        return Baseline(self.tofu_batch / self.tofu["sockets"], self.tofu_peak_bytes)


@dataclass(frozen=True, slots=True)
class Baseline:
    """An algorithm's plan in Figure 10."""

    seconds: float
    """Of an iteration."""
    peak_bytes: int
    """Of the worker that takes the most."""


@dataclass(frozen=True, slots=True)
class Once:
    """A plan as every reader fetches for itself, and as readers of the same share one delivery."""

    moved_bytes: int
    shared_moved_bytes: int
    shared_seconds: float
    """Of an iteration, where they share."""


def weight_gib(graph: Graph) -> float:
    """Weight, gradient and history, as Table 2 rounds."""
    weights = sum(graph.tensors[name].size_bytes for name in trained(graph)) / 2**30
    return round(3 * round(weights, 1), 1)


def weights(name: str) -> float:
    """Table 2, of a network of the zoo."""
    return weight_gib(build(name))


def peak_alone(name: str, batch: int) -> int:
    """Bytes that one device takes for the undivided network."""
    model = Model.of(name, batch)
    plan = decide(model.graph, model.ops, SearchRequest(1))
    return unplaced(model.graph, model.ops, plan).least_peaks[0]


def largest_alone(name: str, most: int, room: int) -> int:
    """The largest power of two up to ``most`` samples that fits one device; 0 if not one sample does.

    What is needed grows with the batch along a line, but for a few bytes: two points of it say where to look.
    """
    graph = build(name, batch=1)
    one = sum(graph.tensors[pair.current].size_bytes for pair in graph.state)  # weights and histories, at least
    one = one if one > room else peak_alone(name, 1)
    if one > room:
        return 0
    each = peak_alone(name, 2) - one
    batch = 1
    while batch < most and one + each * (2 * batch - 1) <= room:
        batch *= 2
    while batch > 1 and peak_alone(name, batch) > room:
        batch //= 2
    return batch


def ways(name: str) -> Ways:
    """Estimates a network in every way."""
    machine = p2()
    device, room = machine.device, machine.device.memory_bytes
    most = IDEAL_BATCH[name.partition("-")[0]]
    ideal = build(name, batch=most)
    ideal_rate = WORKERS * most / alone_seconds(ideal, device)
    batch = _SAMPLES_OF.get(name, most)
    while True:
        model = Model.of(name, batch)
        before = time.process_time()
        plan = decide(model.graph, model.ops, SearchRequest(WORKERS, strategy="tofu-recursion", effort="quick"))
        search_seconds = time.process_time() - before
        made = unplaced(model.graph, model.ops, plan)
        if batch == 1 or max(made.least_peaks) <= room:
            break
        batch //= 2
    program = made.placed().program
    beside = {}
    for reading in P2_READINGS:
        timed = estimate(model.graph, model.ops, plan.strategies, plan.cuts, program, p2(reading))
        beside[reading] = batch / timed.overlapped_seconds
    small_batch = largest_alone(name, most, room)
    small = WORKERS * small_batch / alone_seconds(build(name, batch=small_batch), device) if small_batch else 0.0
    swapping = {}
    for each in (most // WORKERS, most):
        own = build(name, batch=each)
        if largest_op_bytes(own) > room:
            continue
        swapped = counted(own, room)
        seconds, link = alone_seconds(own, device), HOST_BYTES_PER_S / WORKERS
        for duplex, amount in (
            ("half", swapped.in_bytes + swapped.out_bytes),
            ("full", max(swapped.in_bytes, swapped.out_bytes)),
        ):
            swapping[f"{each}, {duplex}"] = WORKERS * each / max(seconds, amount / link)
    placement = 0.0
    if name.startswith("rnn"):
        owner = owners(model.graph, WORKERS)
        if max(state_bytes(model.graph, owner, WORKERS)) <= room:
            placement = batch / pipelined_seconds(model.ops, owner, p2("flat"))
    return Ways(
        ideal=ideal_rate,
        search_seconds=search_seconds, tofu=beside, tofu_batch=batch,
        tofu_peak_bytes=max(made.least_peaks), small=small, small_batch=small_batch, swapping=swapping,
        placement=placement,
        observed=tuple(observations(list(blocks(model, plan)))) if name == FIGURE_11 else (),
    )  # fmt: skip


def algorithms(name: str, chosen: tuple[str, ...], shared: tuple[str, ...]) -> dict[str, tuple[Baseline, Once | None]]:
    """Figure 10: a network by algorithm.

    Args:
        name: of the network.
        chosen: algorithms.
        shared: those of which it is asked what shared deliveries would save.
    """
    model, found = Model.of(name), {}
    tables = CostTables()
    for strategy in chosen:
        request = SearchRequest(WORKERS, strategy=strategy, effort="quick", tables=tables)
        plan = decide(model.graph, model.ops, request)
        made = unplaced(model.graph, model.ops, plan)
        baseline = Baseline(_beside_computing(plan, made), max(made.least_peaks))
        once = None
        if strategy in shared:
            joined = with_savings(plan, savings(plan, paid_for_twice(plan, tables)), opdefs.standard(), tables)
            seconds = _beside_computing(joined, unplaced(joined.graph, joined.ops, joined))
            once = Once(plan.moved_bytes, joined.moved_bytes, seconds)
        found[strategy] = baseline, once
    return found


def _beside_computing(plan: Decision, made: Unplaced) -> float:
    """Seconds of an iteration, transfers going on beside computing."""
    return estimate(plan.graph, plan.ops, plan.strategies, plan.cuts, made.placed().program, p2()).overlapped_seconds


def described() -> tuple[int, int]:
    """Operators of ONNX's default domain in force that are described, and all."""
    found = [row for row in Operators().coverage().rows if not row.domain and not row.is_deprecated]
    return sum(row.described for row in found), len(found)


_READING = re.compile(r" \([^()]*\)$")


def _range(values: Iterable[float]) -> str:
    found = list(values)
    return f"{min(found):.0%} to {max(found):.0%}"


def _within(values: Iterable[float], low: float, high: float) -> bool:
    """Within a printed range of whole per cents."""
    return all(low - 0.005 <= value <= high + 0.005 for value in values)


def rows(found: Mapping[str, Any]) -> list[Row]:
    """The lines."""
    made, seen = [], set()
    for row in (*_tables(found), *_figure_8(found), *_figure_9(found), *_figures_10_and_11(found)):
        figure = (row.where, _READING.sub("", row.what))
        # Another reading of a figure is no other figure.
        counted_once = replace(row, figures=0) if figure in seen else row
        seen.add(figure)
        made.append(replace(counted_once, why="") if row.verdict is Verdict.REPRODUCED else counted_once)
    return made


def _tables(found: Mapping[str, Any]) -> list[Row]:
    described, all_operators = found["described"]
    made = [
        Row(
            "Section 4.1",
            "operators that are described",
            "134 of 139 (96%)",
            f"{described} of {all_operators} ({described / all_operators:.0%})",
            holds(described / all_operators >= 134 / 139),
            "control flow, sequences, strings and data-dependent shapes",
            2,
        )
    ]
    for name, printed in (("wresnet-152-10", 8.3), ("rnn-10-8k", 66.6)):
        seconds = found[name].search_seconds
        made.append(
            Row(
                "Table 1",
                f"{name}: search by the recursion",
                f"{printed} s",
                f"{seconds:.1f} s",
                holds(seconds <= printed),
            )
        )
    for family in ("rnn-6", "rnn-8", "rnn-10", "wresnet-50", "wresnet-101", "wresnet-152"):
        names = [name for name in TABLE_2 if name.startswith(f"{family}-")]
        ours = {name: found[f"weights {name}"] for name in names}
        other = [name for name in names if ours[name] != TABLE_2[name]]
        made.append(
            Row(
                "Table 2",
                f"{family}: weights, gradients, histories, GiB",
                _list(TABLE_2[n] for n in names),
                _list(ours.values()),
                holds(not other, order=True),
                f"the formula that gives all others gives another number for {', '.join(other)}" if other else "",
                len(names),
            )
        )
    for name, (tofu, placement) in TABLE_3.items():
        one: Ways = found[name]
        made.append(
            Row(
                "Table 3",
                f"{name}: Tofu, samples/s",
                str(tofu),
                _by_reading(one.tofu),
                max((close(value, tofu, order=True) for value in one.tofu.values()), key=_rank),
                _SPEED,
            )
        )
        made.append(
            Row(
                "Table 3",
                f"{name}: operator placement, samples/s",
                str(placement),
                f"{one.placement:.0f}",
                close(one.placement, placement, order=one.placement < min(one.tofu.values())),
                _SPEED,
            )
        )
    inverse = [
        TABLE_3[name][0] * (layers - 0.5) for name, layers in (("rnn-6-4k", 6), ("rnn-8-4k", 8), ("rnn-10-4k", 10))
    ]
    spread = max(inverse) / min(inverse) - 1
    here = [min(found[name].tofu.values()) * (layers - 0.5) for name, layers in zip(TABLE_3, (6, 8, 10), strict=True)]
    made.append(
        Row(
            "Table 3",
            "Tofu's column fits 1 / (layers - 1/2), so it discriminates nothing: spread",
            f"{spread:.1%}",
            f"{max(here) / min(here) - 1:.1%}",
            close(max(here) / min(here), 1, 0.02),
        )
    )
    return made


_SPEED = "the constant is from a single GPU of SoyBean's"
_SAMPLES_OF = {"wresnet-50-4": 128, "wresnet-152-4": 32, "wresnet-152-10": 8, "rnn-10-8k": 128}


def _rank(verdict: Verdict) -> int:
    return [Verdict.NOT, Verdict.ORDER, Verdict.REPRODUCED].index(verdict)


def _list(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


def _by_reading(values: Mapping[str, float]) -> str:
    return ", ".join(f"{value:.0f} ({reading})" for reading, value in values.items())


def _beside_ideal(
    figure: str, what: str, every: Mapping[str, Ways], percent: tuple[int, int], farthest: str
) -> list[Row]:
    """What Tofu reaches of the ideal, by reading of the links, and the network that is the farthest from it.

    Args:
        figure: of the paper.
        what: its networks, counted.
        every: the networks.
        percent: printed, the least and the most.
        farthest: printed; the beginning of a name.
    """
    least, most = (one / 100 for one in percent)
    made: list[Row] = []
    for reading in P2_READINGS:
        shares = {name: one.tofu[reading] / one.ideal for name, one in every.items()}
        worst = min(shares, key=lambda name: shares[name])
        of_all = holds(_within(shares.values(), least, most), order=min(shares.values()) < most)
        printed = f"{percent[0]}% to {percent[1]}%"
        made += [
            Row(figure, f"Tofu of ideal, {what} ({reading})", printed, _range(shares.values()), of_all, _LINKS, 2),
            Row(
                figure,
                f"the farthest from ideal ({reading})",
                farthest,
                worst,
                holds(worst.startswith(farthest.lower())),
                _LINKS,
            ),
        ]
    return made


def _figure_8(found: Mapping[str, Any]) -> list[Row]:
    every: dict[str, Ways] = {name: found[name] for name in WIDE}
    made = _beside_ideal("Figure 8", "12 WResNets", every, (60, 95), "WResNet-152")
    fitting = tuple(name for name in WIDE if every[name].small_batch)
    made.append(
        Row(
            "Figure 8",
            "small batch fits of",
            "50-4, 50-6, 101-4",
            ", ".join(name.removeprefix("wresnet-") for name in fitting),
            holds(fitting == SMALL_BATCH_FITS, order=set(fitting) >= set(SMALL_BATCH_FITS)),
            "tensors alone take so little of 12 GiB; MXNet's workspaces are not known",
            3,
        )
    )
    for name, printed in (("wresnet-50-4", 12), ("wresnet-101-4", 15), ("wresnet-50-6", None)):
        for reading in P2_READINGS:
            more = 100 * (every[name].small / every[name].tofu[reading] - 1)
            if printed is None:
                verdict = holds(more < 0)
            else:
                verdict = Verdict.REPRODUCED if abs(more - printed) <= 3 else holds(False, order=more > 0)
            made.append(
                Row(
                    "Figure 8",
                    f"{name}: small batch ({every[name].small_batch} a device) over Tofu ({reading})",
                    "less" if printed is None else f"+{printed}%",
                    f"{more:+.0f}%",
                    verdict,
                    _SMALL if printed is None else _LINKS,
                )
            )
    made += _swapping("Figure 8", "Tofu", "20% to 63% slower than Tofu", every, (0.37, 0.80))
    for name in ("wresnet-50-4", "wresnet-152-4", "wresnet-152-10"):
        peak = every[name].tofu_peak_bytes
        made.append(
            Row(
                "Section 7.2",
                f"{name}: Tofu's largest batch that fits",
                str(_SAMPLES_OF[name]),
                f"a worker takes {peak / 2**30:.1f} of 12 GiB",
                holds(peak <= 12 * 2**30),
            )
        )
    return made


_LINKS = "sockets that share 10 GB/s make transfers four times as long as 21 GB/s between any two: both are given"
_SMALL = "convolutions lose no speed here by small batches: a roofline knows no kernels that leave a device unsaturated"


def _swapping(where: str, base: str, printed: str, every: Mapping[str, Ways], limits: tuple[float, float]) -> list[Row]:
    made = []
    for reading in dict.fromkeys(reading for one in every.values() for reading in one.swapping):
        shares = [one.swapping[reading] / one.tofu["sockets"] for one in every.values() if reading in one.swapping]
        made.append(
            Row(
                where,
                f"swapping of {base}'s throughput ({reading} duplex; of {len(shares)})",
                printed,
                _range(shares),
                holds(_within(shares, *limits), order=max(shares) < 1),
                "what is swapped hangs on batch and link, which the paper leaves open",
                2,
            )
        )
    return made


def _figure_9(found: Mapping[str, Any]) -> list[Row]:
    every: dict[str, Ways] = {name: found[name] for name in RECURRENT}
    made = _beside_ideal("Figure 9", "9 RNNs", every, (70, 98), "rnn-10-8k")
    ahead = [name for name, one in every.items() if one.small > one.tofu["sockets"]]
    made.append(
        Row(
            "Figure 9",
            "small batch ahead of Tofu on",
            "none",
            ", ".join(ahead) or "none",
            holds(not ahead),
            _SMALL.replace("convolutions", "products"),
        )
    )
    placed = {name: one.placement / one.tofu["sockets"] for name, one in every.items() if one.placement}
    made.append(
        Row(
            "Figure 9",
            "operator placement of Tofu's throughput",
            "38% to 61%",
            _range(placed.values()),
            holds(_within(placed.values(), 0.38, 0.61), order=max(placed.values()) < 1),
            _PLACEMENT,
            2,
        )
    )
    none = [name for name, one in every.items() if not one.placement]
    made.append(
        Row(
            "Figure 9",
            "operator placement has no room for",
            "rnn-10-8k",
            ", ".join(none) or "none",
            holds(none == ["rnn-10-8k"]),
            "by weights, gradients and histories alone",
        )
    )
    heavy = {name: one for name, one in every.items() if TABLE_2[name] > 12}
    made += _swapping("Figure 9", "Tofu", "23% to 30% where weights are large", heavy, (0.23, 0.30))
    half = {
        name: one.swapping[f"{IDEAL_BATCH['rnn'] // WORKERS}, half"] / one.placement
        for name, one in heavy.items()
        if one.placement
    }
    made.append(
        Row(
            "Figure 9",
            "swapping of placement's (64, half duplex)",
            "48% to 53%",
            _range(half.values()),
            holds(_within(half.values(), 0.48, 0.53), order=max(half.values()) < 1),
            _PLACEMENT,
            2,
        )
    )
    return made


_PLACEMENT = "workers run whichever op has been ready longest; MXNet's own order is not published"
_FIGURE_10 = (
    ("allrow-greedy", "spartan"),
    ("allrow-greedy", "equalchop"),
    ("spartan", "icml18"),
    ("equalchop", "icml18"),
    ("icml18", "tofu-recursion"),
)


def _figures_10_and_11(found: Mapping[str, Any]) -> list[Row]:
    made: list[Row] = []
    for name in ("rnn-4-8k", "wresnet-152-10"):
        every = {strategy: baseline for strategy, (baseline, _) in found[f"algorithms {name}"].items()}
        if name == FIGURE_11:
            every["tofu-recursion"] = found[name].baseline()
        seconds = {strategy: baseline.seconds for strategy, baseline in every.items()}
        for slow, fast in _FIGURE_10:
            why = "" if seconds[slow] >= seconds[fast] else "every reader of a tensor fetches for itself here"
            made.append(
                Row(
                    "Figure 10",
                    f"{name}: {slow} no faster than {fast}",
                    "yes",
                    f"{seconds[slow]:.2f} s, {seconds[fast]:.2f} s",
                    holds(seconds[slow] >= seconds[fast]),
                    why,
                )
            )
        peaks = {strategy: baseline.peak_bytes / 2**30 for strategy, baseline in every.items()}
        expected = ("allrow-greedy", "icml18") if name.startswith("wresnet") else ()
        for strategy in expected:
            made.append(
                Row(
                    "Figure 10",
                    f"{name}: {strategy} out of memory",
                    "yes",
                    f"{peaks[strategy]:.1f} of 12 GiB",
                    holds(peaks[strategy] > 12),
                    "fetched tensors are dropped after their readers here",
                )
            )
    (icml18, icml18_once), (tofu, tofu_once) = (
        found["algorithms rnn-4-8k"][strategy] for strategy in ("icml18", "tofu-recursion")
    )
    apart = 100 * (icml18.seconds / tofu.seconds - 1)
    slower = 100 * (icml18_once.shared_seconds / tofu_once.shared_seconds - 1)
    made.append(
        Row(
            "Figure 10",
            "RNN-4-8K: ICML18 slower than Tofu",
            "7%",
            f"{slower:.0f}% where readers of the same share a delivery, {apart:.0f}% where each has its own",
            close(slower, 7, order=slower > 0),
            f"{icml18_once.moved_bytes / 1e9:.0f} GB move, shared {icml18_once.shared_moved_bytes / 1e9:.0f}, "
            f"of Tofu {tofu_once.shared_moved_bytes / 1e9:.0f}",
        )
    )
    for observation, is_so in found[FIGURE_11].observed:
        made.append(
            Row(
                "Figure 11",
                observation,
                "yes",
                "yes" if is_so else "no",
                holds(is_so),
                "" if is_so else "one block of the second group differs",
            )
        )
    return made


JOBS: dict[str, Job] = {
    **{name: (ways, (name,)) for name in (*WIDE, *RECURRENT)},
    "algorithms rnn-4-8k": (algorithms, ("rnn-4-8k", ("tofu-recursion", *BASELINES), ("tofu-recursion", "icml18"))),
    # The recursion's plan is that of Figure 8, which has the same batch.
    f"algorithms {FIGURE_11}": (algorithms, (FIGURE_11, BASELINES, ())),
    **{f"weights {name}": (weights, (name,)) for name in TABLE_2},
    "described": (described, ()),
}

PAPER = Paper("Tofu", JOBS, rows)
