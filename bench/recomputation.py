"""What ``--recompute auto`` finds within limits on memory, beside the best plan with any set of activations.

Training steps of at most 12 forward ops are drawn at random, each with a limit (``tests/tools/all_sets.py``), on two
workers. Needs the extra ``test``, whose solver finds the best plan of all. Prints a line for each step of which the
plan costs over 5% more than the best one, or has another below its bound; then the counts.

    python bench/recomputation.py --graphs 500
    python bench/recomputation.py --first 250 --graphs 250 --each
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "tools"))

from all_sets import judged  # type: ignore[import-not-found]


def main() -> None:
    """Prints the lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the number of the first step, which is its seed, too")
    parser.add_argument("--graphs", type=int, default=10, help="limits that are met")
    parser.add_argument("--each", action="store_true", help="a line for each step")
    arguments = parser.parse_args()
    met = near = best = bounded = below = 0
    number = arguments.first
    while met < arguments.graphs:
        found = judged(number)
        number += 1
        met += found.is_met
        near += found.is_near
        best += found.is_best
        bounded += found.lower is not None
        below += found.is_below
        if arguments.each or found.is_below or (found.is_met and not found.is_near):
            print(found, flush=True)
    unmet = number - arguments.first - met
    print(f"steps {arguments.first} to {number - 1}: {met} limits met by some plan, {unmet} by none")
    print(f"of {met} plans {near} are within 5% of the best one, {best} are the best; {bounded} have a bound")
    print(f"plans, found or of all sets, below a bound: {below}")


if __name__ == "__main__":
    main()
