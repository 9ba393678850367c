"""How many GPUs hold the zoo's models, and what it takes to say so.

    python bench/fit.py                       all networks of the list, on 1 to 64 GPUs
    python bench/fit.py lenet-5 gpt-2x1024    some of them
    python bench/fit.py --run                 the small ones are run, too, on the first number of GPUs that fits

Each answer is a `tofu fit` in a process of its own, of which the processor's time counts, user and system, and the peak
of its memory. ``--run``: the plan for the first number of GPUs that fits is written and run for one iteration; what a
worker's tensors took stands beside the memory that was asked for. The table is in Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from planner.units import ByteUnit, format_bytes

SMALL: Final = {
    "mlp-5x300": ("2MiB",),
    "mlp-4x8192": ("1200MiB",),
    "lenet-5": ("8MiB",),
    "cnn-5x512-24": ("600MiB", "--batch", "16"),
    "alexnet": ("500MiB", "--batch", "16"),
    "vgg-16": ("1GiB", "--batch", "2"),
    "resnet-50": ("256MiB", "--batch", "4"),
    "gpt-2x1024": ("1GiB",),
    "gpt2": ("2GiB", "--batch", "1"),
}
"""Networks that are run where it is asked for: the memory of a worker, and further options."""
LARGE: Final = {
    "mlp-4x12288": ("4GiB",),
    "cnn-5x2048-6": ("4GiB",),
    "inception-v3": ("12GiB",),
    "resnet-152": ("12GiB",),
    "wresnet-50-4": ("12GiB",),
    "wresnet-101-10": ("12GiB",),
    "wresnet-152-10": ("12GiB",),
    "rnn-6-4k": ("12GiB",),
    "rnn-10-8k": ("12GiB",),
    "gpt2-xl": ("80GiB",),
    "gpt-96x12288": ("80GiB",),
    "vit-h": ("80GiB",),
    "dit-xl": ("80GiB",),
    "llama3-8b": ("80GiB",),
    "llama3-70b": ("80GiB",),
    "llama3-405b": ("80GiB", "--gpus", "64..512"),
    "moe-8x7b": ("80GiB",),
}
"""Networks that are not run."""
_HEADS: Final = ("network", "memory", "GPUs", "least found", "largest batch there", "processor s", "MB", "ran with")


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    seconds: float
    """Of the processor, user and system."""
    peak_mb: float
    answer: dict[str, Any] | None
    """What it printed; None where it printed nothing."""


def tofu(*words: str) -> Done:
    """A command of tofu in a process of its own."""
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen([sys.executable, "-m", "planner", *words, "--json"], stdout=out)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        content = out.read()
    return Done(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, json.loads(content) if content else None)


def ran(name: str, options: Sequence[str], workers: int) -> str:
    """What a worker's tensors took in an iteration of the plan for so many GPUs."""
    with tempfile.TemporaryDirectory() as folder:
        model, plan = str(Path(folder) / "train.onnx"), str(Path(folder) / "plan")
        tofu("zoo", name, *options[1:], "-o", model)
        tofu("plan", model, "--memory", options[0], "--gpus", str(workers), "-o", plan)
        done = tofu("run", plan, "--steps", "1")
    return "it failed" if done.answer is None else size(max(done.answer["arena_bytes"]))


def size(count: int) -> str:
    """Bytes of a worker."""
    return format_bytes(count, ByteUnit.BINARY)


def row(name: str, options: Sequence[str], *, is_run: bool) -> tuple[str, ...]:
    """A network's answer."""
    done = tofu("fit", name, "--memory", *options)
    if done.answer is None:
        return (name, options[0], "no answer", "", "", f"{done.seconds:.0f}", f"{done.peak_mb:.0f}", "")
    answer = done.answer["answers"][0]
    workers = answer["workers"]
    first = next((one for one in answer["rows"] if one["workers"] == workers), answer["rows"][-1])
    least = "-" if first["least_bytes"] is None else size(first["least_bytes"])
    took = ran(name, options, workers) if is_run and workers is not None else ""
    batch = "-" if first["largest_batch"] is None else f"{first['largest_batch']:,}"
    return (
        " ".join((name, *options[1:])), options[0], "none" if workers is None else str(workers), least, batch,
        f"{done.seconds:.0f}", f"{done.peak_mb:.0f}", took,
    )  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="How many GPUs hold the zoo's models, and what it takes to say so.")
    parser.add_argument("networks", nargs="*", help="of the list; all of them by default")
    parser.add_argument("--run", action="store_true", help="run the small ones")
    chosen = parser.parse_args()
    known = SMALL | LARGE
    print(f"| {' | '.join(_HEADS)} |\n|{' --- |' * len(_HEADS)}")
    for name in chosen.networks or known:
        print(f"| {' | '.join(row(name, known[name], is_run=chosen.run and name in SMALL))} |", flush=True)


if __name__ == "__main__":
    main()
