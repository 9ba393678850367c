"""What it saves to join sums of partial results once: plans with and without ``P``, beside one another.

    python bench/partial_sums.py [MODEL[:STRATEGY] ...] [--workers 8] [--effort normal]

MB = 1e6 bytes of an iteration, summed over all workers. Without: every tensor is forbidden to be partial.
"""

from __future__ import annotations

import argparse

from rich.console import Console
from strategies import Model, line

from planner.search.decide import decide
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import NO_RULES, Rules

JOINED_AT_ONCE = Rules(forbidden=(("*", "P"),))
MODELS = ("rnn-10-8k", "rnn-10-8k:data", "rnn-10-8k:hybrid", "gpt2", "gpt2:data", "gpt-2x1024", "lenet-5")
HEADS = ("model", "strategy", "joined at once", "gap", "with P", "gap", "change", "partial", "seconds without, with")
WIDTHS = (16, 10, 16, 8, 12, 8, 9, 9, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description="Bytes of plans with and without partial sums that are joined later.")
    parser.add_argument(
        "models", nargs="*", default=MODELS, help="of the zoo; MODEL:STRATEGY for one of the literature"
    )
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--effort", choices=["quick", "normal", "thorough"], default="normal")
    chosen = parser.parse_args()
    console = Console(width=200, highlight=False, soft_wrap=True)
    line(console, HEADS, WIDTHS)
    for text in chosen.models:
        name, _, strategy = text.partition(":")
        model = Model.of(name)
        without, found = (
            decide(
                model.graph,
                model.ops,
                SearchRequest(
                    chosen.workers,
                    strategy=strategy or "tofu",
                    rules=rules,
                    effort=chosen.effort,
                ),
            )
            for rules in (JOINED_AT_ONCE, NO_RULES)
        )
        moved = [one.moved_bytes for one in (without, found)]
        gaps = ["" if one.certified_gap is None else f"{one.certified_gap:.2%}" for one in (without, found)]
        cells = (
            *(name, strategy or "tofu", f"{moved[0] / 1e6:,.1f}", gaps[0], f"{moved[1] / 1e6:,.1f}", gaps[1]),
            f"{moved[1] / moved[0] - 1:+.1%}" if moved[0] else "",
            str(sum(tiling.has_partial for tiling in found.tilings.values())),
            f"{without.search_seconds:.1f}, {found.search_seconds:.1f}",
        )
        line(console, cells, WIDTHS)


if __name__ == "__main__":
    main()
