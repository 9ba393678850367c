"""What it takes to plan networks of today at their real size, from file to files.

    python bench/real_sizes.py                                            two blocks of Llama 3's 8B on 8 GPUs, quickly
    python bench/real_sizes.py FOLDER [NETWORK ...] [--topology NAME] [--gpus N] [--effort E]
    python bench/real_sizes.py llama3-8b sd-unet --topology dgx-h100      networks of `tofu zoo`
    python bench/real_sizes.py llama3-70b:4 --beside data,fsdp,megatron   of four blocks; strategies beside the plan
    python bench/real_sizes.py FOLDER --limit 300 -- --memory 2TiB        after --: further options of `tofu plan`

FOLDER holds forward models in ONNX, such as PyTorch's exports, with or without weights; without NETWORK all of them
are planned. `tofu grad` makes training steps of them, with AdamW; `tofu zoo` writes the zoo's. Each command is a
process of its own; of it count the processor's time, user and system, since the machine may be shared, and the peak of
its memory. ``--runs N``: the medians of so many. ``--limit S``: a plan that takes longer than S seconds of the
processor is given up. ``--beside``: what strategies of `tofu compare` cost, each planned by a `tofu plan` of its own.
The table is in Markdown. Below it stands what others publish.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from planner.units import format_bytes, format_seconds

MSE: Final = ("dit-xl", "sd-unet")
"""Files whose output is no logits."""
BFLOAT16: Final = ("llama3",)
"""How names begin of files that are trained in bfloat16."""
ANCHORS: Final = (
    "autoparallel (PyTorch), as published, on 64 GPUs, seconds of the clock: Llama-3 1B 34.7, Llama-3 8B 46.8, "
    "DeepSeek-V3 59.5"
)
_QUICK: Final = "llama3-8b:2"
_HEADS: Final = (
    "network", "machine", "ops", "`grad` s", "`plan` s", "MB", "cost", "moved", "gap", "a worker", "estimated",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Run:
    """A command that has ended."""

    seconds: float
    """Of the processor, user and system."""
    peak_mb: float
    answer: dict[str, Any] | None
    """What it printed; None where it gave none."""
    said: str
    """The first line of its error."""


def tofu(*words: str, limit: int | None = None) -> Run:
    """A command of tofu in a process of its own."""

    def bounded() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(
            [sys.executable, "-m", "planner", *words, "--json"], stdout=out, stderr=err, preexec_fn=bounded
        )
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        answer = json.loads(out.read()) if child.returncode == 0 else None
        lines = err.read().decode().splitlines()
    said = next((line for line in lines if line.startswith("error: ")), f"exit code {child.returncode}")
    if child.returncode < 0:
        said = f"none within {limit} s"
    return Run(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, answer, said.removeprefix("error: "))


def trained(network: str, folder: Path | None, target: Path) -> Run:
    """The training step of a file of the folder, or of the zoo."""
    name, _, layers = network.partition(":")
    file = None if folder is None else folder / f"{name}.onnx"
    if file is None or not file.exists():
        return tofu("zoo", name, *(["--layers", layers] if layers else []), "-o", str(target))
    loss = "mse" if name in MSE else "softmax_cross_entropy"
    precision = "bfloat16" if name.startswith(BFLOAT16) else "float32"
    return tofu(
        "grad", str(file), "--loss", loss, "--optimizer", "adamw", "--lr", "1e-4", "--precision", precision,
        "-o", str(target),
    )  # fmt: skip


def cells_of(run: Run) -> list[str]:
    """What a plan costs: five cells."""
    if run.answer is None:
        return [run.said, *["-"] * 4]
    found = run.answer
    gap, seconds = found["certified_gap"], found["estimated_seconds"]
    return [
        format_bytes(found["moved_bytes"] + found["excess_bytes"]),
        format_bytes(found["moved_bytes"]),
        "-" if gap is None else f"{gap:.2%}",
        "-" if found["peak_bytes"] is None else format_bytes(max(found["peak_bytes"])),
        "-" if seconds is None else format_seconds(seconds),
    ]


def rows(network: str, chosen: argparse.Namespace, folder: Path | None, at: Path) -> Iterator[tuple[str, ...]]:
    """A row of the plan, and one of each strategy beside it."""
    file = at / "step.onnx"
    step = trained(network, folder, file)
    machine = chosen.topology or f"{chosen.gpus} GPUs"
    if chosen.topology and chosen.gpus:
        machine = f"{chosen.gpus} of {chosen.topology}"
    if step.answer is None:
        yield (network, machine, "-", f"{step.seconds:.1f}", "-", "-", step.said, *["-"] * 4)
        return
    wanted = ["--effort", chosen.effort, "--force", "-o", str(at / "plan"), *chosen.further]
    wanted += ["--topology", chosen.topology] if chosen.topology else []
    wanted += ["--gpus", str(chosen.gpus)] if chosen.gpus else []
    for strategy in ("", *filter(None, chosen.beside.split(","))):
        asked = ["--strategy", strategy] if strategy else []
        runs = [tofu("plan", str(file), *wanted, *asked, limit=chosen.limit) for _ in range(chosen.runs)]
        seconds = statistics.median(run.seconds for run in runs)
        peak = statistics.median(run.peak_mb for run in runs)
        ops = sum(step.answer["ops_by_type"].values())
        title = f"{network}, {strategy}" if strategy else network
        yield (title, machine, f"{ops:,}", f"{step.seconds:.1f}", f"{seconds:.1f}", f"{peak:.0f}", *cells_of(runs[-1]))


def networks_of(words: Sequence[str]) -> tuple[Path | None, list[str]]:
    """The folder, if the first word is one, and the networks: those that are named, or all of the folder."""
    folder = Path(words[0]) if words and Path(words[0]).is_dir() else None
    named = list(words[1:] if folder else words)
    if folder is not None and not named:
        named = sorted(path.stem for path in folder.glob("*.onnx") if not re.search(r"\.train$", path.stem))
    return folder, named


def main() -> None:
    """Prints the table, row by row."""
    parser = argparse.ArgumentParser(description="Processor time and memory of planning networks of real size.")
    parser.add_argument("words", nargs="*", metavar="FOLDER|NETWORK", help="files of a folder, models of the zoo")
    parser.add_argument("--topology", help="the machine: a file, or the name of one that ships")
    parser.add_argument("--gpus", type=int, help="how many; 8 where there is no topology")
    parser.add_argument("--effort", choices=["quick", "normal", "thorough"], help="normal where networks are named")
    parser.add_argument("--beside", default="", metavar="NAME,...", help="strategies of tofu compare")
    parser.add_argument("--runs", type=int, default=1, help="of which the median counts")
    parser.add_argument("--limit", type=int, metavar="S", help="most seconds of the processor for a plan")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    chosen = parser.parse_args(words[:end])
    chosen.further = words[end + 1 :]
    folder, networks = networks_of(chosen.words)
    chosen.effort = chosen.effort or ("normal" if networks else "quick")
    if chosen.topology is None and chosen.gpus is None:
        chosen.gpus = 8
    print("| " + " | ".join(_HEADS) + " |")
    print("| " + " | ".join("---" for _ in _HEADS) + " |")
    for network in networks or [_QUICK]:
        with tempfile.TemporaryDirectory() as folder_of_plan:
            for row in rows(network, chosen, folder, Path(folder_of_plan)):
                print("| " + " | ".join(row) + " |", flush=True)
    print(f"\n{ANCHORS}")


if __name__ == "__main__":
    main()
