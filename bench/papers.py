"""Every printed figure of the four papers that an estimate can be held against, beside ours.

    python bench/papers.py [--only tofu soybean icml18 distcnn] [--processes 2]

Nothing is measured but Table 1 of Tofu and Table 3 of ICML'18 (searches, in processor time); times are estimates for
the papers' machines, with one constant for each of the two (``paper_row.p2_share``, ``layer_wise.SHARE``). A figure is
reproduced if it comes out within a tenth, within the printed range, or as the claim says; ``order only`` if not, but
whatever it is to show holds. Of what is not reproduced a sentence says what was tried.
"""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import resource
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

import distcnn_figures
import layer_wise
import soybean_figures
import tofu_figures
from paper_row import Paper, Row, p2_share

PAPERS = {
    "tofu": tofu_figures.PAPER,
    "soybean": soybean_figures.PAPER,
    "icml18": layer_wise.PAPER,
    "distcnn": distcnn_figures.PAPER,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(PAPERS), default=list(PAPERS))
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args()
    papers = [PAPERS[name] for name in chosen.only]
    found = worked_out(papers, chosen.processes)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    every = [(paper, paper.rows(found[paper.name])) for paper in papers]
    for paper, rows in every:
        print("\n".join(table(paper, rows)), end="\n\n")
    verdicts: Counter[str] = Counter()
    for _, rows in every:
        for row in rows:
            verdicts[row.verdict.value] += row.figures
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    print(f"{sum(verdicts.values())} printed figures: {counts}.")
    print(f"Constants: p2.8xlarge attains {p2_share():.2f} of its rooflines, icml18-p100 {layer_wise.SHARE:.2f}.")
    today = datetime.datetime.now(datetime.UTC).date()
    print(f"{today}, {chosen.processes} processes, {(used.ru_utime + used.ru_stime) / 60:.1f} processor minutes.")


def worked_out(papers: list[Paper], processes: int) -> dict[str, dict[str, Any]]:
    """What all jobs give, by paper and name."""
    found: dict[str, dict[str, Any]] = {paper.name: {} for paper in papers}
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = {
            pool.submit(work, *arguments): (paper.name, name)
            for paper in papers
            for name, (work, arguments) in paper.jobs.items()
        }
        for number, done in enumerate(as_completed(waiting), 1):
            paper, name = waiting[done]
            found[paper][name] = done.result()
            print(f"\r{number} of {len(waiting)}: {paper} {name:<40}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def table(paper: Paper, rows: list[Row]) -> list[str]:
    """A paper's lines, in Markdown."""
    return [
        f"| {paper.name} | what | printed | here | verdict |",
        "| --- | --- | --- | --- | --- |",
        *(
            f"| {row.where} | {row.what} | {row.printed} | {row.ours} | {row.verdict.value}"
            f"{': ' + row.why if row.why else ''} |"
            for row in rows
        ),
    ]


if __name__ == "__main__":
    main()
