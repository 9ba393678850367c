"""Plans and bounds of the contest on intra-operator parallelism (IOPDDL, ASPLOS and EuroSys 2025) with tofu's solver.

    python bench/iopddl.py FOLDER [INSTANCE ...] [--seconds 60] [--solutions FOLDER]

FOLDER has the contest's files (github.com/google/iopddl, ``benchmarks``), as they are or unpacked; INSTANCE is a
letter. Printed are a plan's cost as ``judge`` finds it, a lower bound of every plan's, the gap between them as a share
of the bound, seconds, and the most memory of the process so far, beside the least cost and the best bound that were
published.
Without any plan within the limit on memory, or where none was found, a row says so, and the exit code is 1; it is 2 for
what is no instance.
"""

from __future__ import annotations

import argparse
import resource
import sys
from pathlib import Path
from time import process_time
from typing import Final

from iopddl_instance import NoInstanceError, judge, read, refuse_impossible
from iopddl_solver import solve

from planner.errors import InfeasibleError

KNOWN: Final = {
    "A": (6548641531, 6513812172),
    "B": (532843, 532843),
    "C": (84102445244, 82509087987),
    "G": (217039, 216931),
    "K": (2257227094, 2065623588),
    "L": (1970993742, 1918617707),
    "M": (49928460991, 49407421919),
    "P": (651833115436, 621340000000),
    "Q": (526776842042, 505549458726),
    "U": (2569342178, 2018900000),
}
"""The least cost of the contest's 20 teams, XLA and the winner's later runs, and the best published bound
(github.com/ti2-group/iopddl_experiments, ``iopddl_final_results.csv`` and ``lower_bounds/results.db``, February 2026).
The cost of P is XLA's."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("instances", nargs="*", default=list(KNOWN), help="letters of the contest's instances")
    parser.add_argument("--seconds", type=float, default=60, help="of the processor, for each, reading included")
    parser.add_argument("--solutions", type=Path, help="a folder for the chosen strategies, as the contest prints them")
    options = parser.parse_args()
    if options.solutions:
        options.solutions.mkdir(parents=True, exist_ok=True)
    print(_ROW.format("", "plan", "bound", "gap", "seconds", "GB", "known cost", "known bound", "known gap"))
    code = 0
    for letter in options.instances:
        begun = process_time()
        files = sorted(options.folder.glob(f"*-{letter}.json*"))
        if len(files) != 1:
            print(f"error: {options.folder} has {len(files)} files *-{letter}.json*", file=sys.stderr)
            return 2
        try:
            instance = read(files[0])
            refuse_impossible(instance)
            solved = solve(instance, begun + options.seconds)
        except NoInstanceError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except InfeasibleError as error:
            print(f"{letter}: no plan: {error}")
            code = 1
            continue
        shown, gap = "none found", "-"
        if solved.chosen is None:
            code = 1
        else:
            judged = judge(instance, solved.chosen)
            assert judged.usage <= instance.limit, "a plan is within the limit"
            shown, gap = f"{judged.cost}", f"{judged.cost / max(1, solved.lower) - 1:.3%}"
            if options.solutions:
                (options.solutions / f"{instance.name}.txt").write_text(f"{solved.chosen}\n")
        seconds, memory = process_time() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        cost, bound = KNOWN.get(letter, (None, None))
        known = (cost, bound, f"{cost / bound - 1:.3%}") if cost and bound else ("-", "-", "-")
        print(_ROW.format(letter, shown, str(solved.lower), gap, f"{seconds:.0f}", f"{memory:.1f}", *known), flush=True)
    return code


_ROW: Final = "{:2} {:>14} {:>14} {:>9} {:>7} {:>5} {:>14} {:>14} {:>9}"


if __name__ == "__main__":
    sys.exit(main())
