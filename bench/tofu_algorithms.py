"""Tofu's comparison of partition algorithms (its Figure 10), in bytes instead of seconds.

    python bench/tofu_algorithms.py [MODEL ...] [--memory]

The paper's models are RNN-4-8K (batch 512) and WResNet-152-10 (batch 8) on 8 GPUs of 12 GiB, and its order is, the
slowest first: AllRow-Greedy, then Spartan and EqualChop, then ICML18, then Tofu; AllRow-Greedy and ICML18 run out of
memory on WResNet-152-10. ``tofu-recursion`` is the paper's algorithm, ``tofu`` this program's own. ``--memory`` cuts
the programs as well, which takes longest, and says which plans have no room.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence

from rich.console import Console
from strategies import HEADS, Cost, Model, costs, line, shown

from planner.machine.topology_file import load_topology

WORKERS = 8
GROUPS = (("allrow-greedy",), ("spartan", "equalchop"), ("icml18",), ("tofu-recursion",))
"""The slowest first, as the figure has them; those in one group lie side by side."""
MODELS = ("rnn-4-8k", "rnn-10-8k", "wresnet-152-10")
NO_ROOM = {"wresnet-152-10": ("allrow-greedy", "icml18")}
"""What runs out of memory in the paper."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Bytes moved by the algorithms of Tofu's Figure 10.")
    parser.add_argument("models", nargs="*", default=list(MODELS), help="models of the zoo")
    parser.add_argument("--memory", action="store_true", help="cut the programs, too, for a worker's peak")
    chosen = parser.parse_args()
    console = Console(width=200, highlight=False, soft_wrap=True)
    room = min(device.memory_bytes for device in load_topology("p2.8xlarge").devices)
    for name in chosen.models:
        line(console, (f"\n{name}, {WORKERS} workers",))
        line(console, HEADS)
        model, least = Model.of(name), 0.0
        rows: dict[str, Cost] = {}
        for cost in costs(model, WORKERS, ("tofu", *(s for group in GROUPS for s in group)), program=chosen.memory):
            least = cost.megabytes if cost.strategy == "tofu" else least
            rows[cost.strategy] = cost
            line(console, shown(cost, least))
        for finding in findings(name, rows, room):
            line(console, (f"  {finding}",))


def findings(model: str, rows: dict[str, Cost], room: int) -> list[str]:
    """In what the figure is reproduced, and in what not."""
    found = []
    for slower, faster in itertools.pairwise(GROUPS):
        for one, other in itertools.product(slower, faster):
            verdict = "as in the paper" if rows[one].megabytes >= rows[other].megabytes else "NOT so here"
            found.append(f"{one} moves at least as much as {other}: {verdict}")
    found.extend(_memory(rows, NO_ROOM.get(model, ()), room))
    return found


def _memory(rows: dict[str, Cost], expected: Sequence[str], room: int) -> list[str]:
    found = []
    for cost in rows.values():
        if cost.peak_bytes is None or cost.strategy == "tofu":
            continue
        fits, fitted = cost.peak_bytes <= room, cost.strategy not in expected
        verdict = "as in the paper" if fits == fitted else "NOT so in the paper"
        found.append(f"{cost.strategy} {'fits' if fits else 'does not fit'} into {room / 2**30:.0f} GiB: {verdict}")
    return found


if __name__ == "__main__":
    main()
