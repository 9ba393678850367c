"""The README's table: estimated times and memory of three networks on 4, 8 and 64 H100, beside three known schemes.

    nice python bench/readme_table.py                  measure all rows, and write bench/results/readme.md
    nice python bench/readme_table.py llama3-8b:8      measure the row of Llama-3 8B on 8 GPUs, and write anew

Every cell is a `tofu plan` of its own, in a process whose processor time counts. The batch grows with the devices. A
plan has the smallest estimated time that is found within the memory of the devices; tofu's own has a gap where its
effort is thorough. Answers are kept in build/readme-table.json, so that a run can be stopped. Incomplete rows are left
out of the page.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import onnx
from real_sizes import Run, tofu

import planner

ROOT: Final = Path(__file__).parent.parent
RESULTS: Final = ROOT / "bench" / "results" / "readme.md"
ANSWERS: Final = ROOT / "build" / "readme-table.json"
NETWORKS: Final[Mapping[str, tuple[str, int, str, str]]] = {
    "gpt2": ("GPT-2", 8, "samples of 1,024 tokens, Adam, float32", "thorough"),
    "resnet-50": ("ResNet-50", 64, "images, momentum, float32", "thorough"),
    "llama3-8b": ("Llama-3 8B", 1, "sample of 4,096 tokens, AdamW, bfloat16 with float32 weights", "normal"),
}
"""By name in the zoo: its title, samples a device and their kind, and the effort of tofu's own plan."""
MACHINES: Final[Mapping[int, str]] = {4: "dgx-h100", 8: "dgx-h100", 64: "h100-64x8"}
"""By number of devices."""
SCHEMES: Final[Mapping[str, str]] = {
    "tofu": "tofu", "data": "data parallelism", "fsdp": "FSDP", "megatron": "Megatron",
}  # fmt: skip
HEADS: Final = ("network", "GPUs", "plan", "effort", "estimated", "memory", "moved", "gap", "processor s")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a `tofu plan` said."""

    effort: str
    processor_seconds: float
    milliseconds: float | None = None
    """Estimated; None without a plan."""
    peak_gib: float | None = None
    """Of the fullest worker; of a refused plan the least that a worker needs, or None."""
    moved_gb: float | None = None
    gap: float | None = None
    error: str = ""
    """Why there is no plan."""

    @classmethod
    def of(cls, run: Run, effort: str) -> Answer:
        if run.answer is None:
            need = re.search(r"needs ([\d.]+) GiB at least", run.said)
            return cls(effort, run.seconds, peak_gib=float(need[1]) if need else None, error=run.said)
        return cls(
            effort,
            run.seconds,
            1e3 * run.answer["estimated_seconds"],
            max(run.answer["peak_bytes"]) / 2**30,
            run.answer["moved_bytes"] / 1e9,
            run.answer["certified_gap"],
        )


def kept() -> dict[str, Answer]:
    """The answers so far, by `NAME:DEVICES SCHEME`."""
    return (
        {key: Answer(**values) for key, values in json.loads(ANSWERS.read_text()).items()} if ANSWERS.exists() else {}
    )


def measure(name: str, devices: int) -> None:
    """Plans a network by all schemes for a number of devices, and keeps each answer as soon as it is there."""
    with tempfile.TemporaryDirectory() as folder:
        step = Path(folder) / "step.onnx"
        for scheme in SCHEMES:
            answers, key = kept(), f"{name}:{devices} {scheme}"
            if key in answers:
                continue
            batch = str(NETWORKS[name][1] * devices)
            if not step.exists() and tofu("zoo", name, "--batch", batch, "-o", str(step)).answer is None:
                raise SystemExit(f"tofu zoo {name} --batch {batch} failed")
            effort = NETWORKS[name][3] if scheme == "tofu" else "normal"
            run = tofu(
                "plan", str(step), "--topology", MACHINES[devices], "--gpus", str(devices), "--strategy", scheme,
                "--effort", effort, "--no-models", "--force", "-o", f"{folder}/plan",
            )  # fmt: skip
            answers[key] = Answer.of(run, effort)
            print(row(name, devices, scheme, answers[key]), flush=True)
            ANSWERS.parent.mkdir(exist_ok=True)
            ANSWERS.write_text(json.dumps({key: asdict(answer) for key, answer in answers.items()}, indent=1) + "\n")


def row(name: str, devices: int, plan: str, answer: Answer) -> str:
    """A row of all that was measured."""
    gap = "" if answer.gap is None else f"{answer.gap:.2%}"
    cells = (
        NETWORKS[name][0],
        str(devices),
        SCHEMES[plan],
        answer.effort,
        answer.error or ("" if answer.milliseconds is None else f"{answer.milliseconds:,.1f} ms"),
        "" if answer.peak_gib is None else f"{answer.peak_gib:.1f} GiB",
        "" if answer.moved_gb is None else f"{answer.moved_gb:.2f} GB",
        gap,
        f"{answer.processor_seconds:.0f}",
    )
    return "| " + " | ".join(cells) + " |"


def summary(rows: Sequence[tuple[str, int]], answers: Mapping[str, Answer]) -> str:
    """The README's table: a row for each network and number of devices."""
    lines = [f"|network|GPUs|{'|'.join(SCHEMES.values())}|gap|", "|---|--:|" + "--:|" * (len(SCHEMES) + 1)]
    for name, devices in rows:
        cells = []
        for scheme in SCHEMES:
            answer = answers[f"{name}:{devices} {scheme}"]
            if answer.milliseconds is not None:
                cells.append(f"**{answer.milliseconds:,.0f}**; {answer.peak_gib:.1f}; {answer.moved_gb:,.1f}")
            else:
                cells.append("-" if answer.peak_gib is None else f"needs {answer.peak_gib:.1f} GiB")
        gap = answers[f"{name}:{devices} tofu"].gap
        cells.append("unknown" if gap is None else f"{gap:.1%}")
        lines.append(f"|{NETWORKS[name][0]}|{devices}|{'|'.join(cells)}|")
    return "\n".join(lines) + "\n"


def main() -> None:
    every = [(name, devices) for name in NETWORKS for devices in MACHINES]
    parser = argparse.ArgumentParser(description="The README's table of estimated times and memory.")
    parser.add_argument("rows", nargs="*", choices=[f"{name}:{devices}" for name, devices in every], default=[])
    named = parser.parse_args().rows
    for name, devices in every:
        if not named or f"{name}:{devices}" in named:
            measure(name, devices)
    answers = kept()
    complete = [(name, gpus) for name, gpus in every if all(f"{name}:{gpus} {scheme}" in answers for scheme in SCHEMES)]
    used = [(name, gpus, scheme, answers[f"{name}:{gpus} {scheme}"]) for name, gpus in complete for scheme in SCHEMES]
    table = [f"| {' | '.join(HEADS)} |", "| --- | --: | --- | --- | --: | --: | --: | --: | --: |"]
    table += [row(*entry) for entry in used]
    minutes = sum(answer.processor_seconds for *_, answer in used) / 60
    batches = "; ".join(f"{title}: {batch} {unit}" for title, batch, unit, _ in NETWORKS.values())
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        f"""# Known schemes beside tofu's plans

    python bench/readme_table.py

{datetime.datetime.now(datetime.UTC).date()}, tofu {planner.__version__}, onnx {onnx.__version__}, Python \
{sys.version.split()[0]}. All plans together took {minutes:.0f} processor minutes.

Nothing ran on these machines: times are estimates, for `dgx-h100` (4 and 8 GPUs) and `h100-64x8` (64). Batch a GPU:
{batches}. A GPU has 74.5 GiB.

**Estimated ms per step**; GiB of the fullest GPU; GB that all GPUs receive in a step:

{summary(complete, answers)}
| cell | meaning |
| --- | --- |
| needs 105.0 GiB | does not fit, even if everything is recomputed |
| - | the scheme does not apply |
| gap | no plan that tofu's search considers is faster by more |

Plans of Llama-3 recompute activations until they fit, no more: their memory is near the limit.

## All plans

{chr(10).join(table)}
"""
    )
    print(f"written to {RESULTS.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
