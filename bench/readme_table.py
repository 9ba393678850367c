"""The README's table: estimated times and memory of three networks on 4, 8 and 64 H100, beside three known schemes.

    nice python bench/readme_table.py              measure, and write bench/results/readme.md
    python bench/readme_table.py --only gpt2       measure one network, and print its rows

Every cell is a `tofu plan` of its own, in a process whose processor time counts. The batch grows with the devices. A
plan has the smallest estimated time that is found within the memory of the devices; tofu's own has a gap where its
effort is thorough. Answers are kept in build/readme-table.json, so that a run can be stopped.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
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


def measured(names: list[str]) -> Iterator[tuple[str, int, str, Answer]]:
    """Network, devices, plan and answer, as soon as each is there."""
    answers = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}
    for name in names:
        for devices, machine in MACHINES.items():
            with tempfile.TemporaryDirectory() as folder:
                step = Path(folder) / "step.onnx"
                for plan in SCHEMES:
                    key = f"{name} {devices} {plan}"
                    if key not in answers:
                        if not step.exists():
                            batch = str(NETWORKS[name][1] * devices)
                            if tofu("zoo", name, "--batch", batch, "-o", str(step)).answer is None:
                                raise SystemExit(f"tofu zoo {name} --batch {batch} failed")
                        effort = NETWORKS[name][3] if plan == "tofu" else "normal"
                        run = tofu(
                            "plan", str(step), "--topology", machine, "--gpus", str(devices), "--strategy", plan,
                            "--effort", effort, "--no-models", "--force", "--out", f"{folder}/plan",
                        )  # fmt: skip
                        answers[key] = asdict(Answer.of(run, effort))
                        ANSWERS.parent.mkdir(exist_ok=True)
                        ANSWERS.write_text(json.dumps(answers, indent=1) + "\n")
                    yield name, devices, plan, Answer(**answers[key])


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


def summary(answers: Mapping[tuple[str, int, str], Answer]) -> str:
    """The README's table: a row for each network and number of devices."""
    lines = [f"|network|GPUs|{'|'.join(SCHEMES.values())}|gap|", "|---|--:|" + "--:|" * (len(SCHEMES) + 1)]
    for name, devices in dict.fromkeys((name, devices) for name, devices, _ in answers):
        cells = []
        for plan in SCHEMES:
            answer = answers[name, devices, plan]
            if answer.milliseconds is not None:
                cells.append(f"{answer.milliseconds:,.0f}, {answer.peak_gib:.1f}, {answer.moved_gb:,.1f}")
            else:
                cells.append("-" if answer.peak_gib is None else f"over, {answer.peak_gib:.1f}")
        gap = answers[name, devices, "tofu"].gap
        cells.append("unknown" if gap is None else f"{gap:.1%}")
        lines.append(f"|{NETWORKS[name][0]}|{devices}|{'|'.join(cells)}|")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="The README's table of estimated times and memory.")
    parser.add_argument("--only", choices=sorted(NETWORKS), help="a network; the file is not written")
    chosen = parser.parse_args()
    answers, rows = {}, [f"| {' | '.join(HEADS)} |", "| --- | --: | --- | --- | --: | --: | --: | --: | --: |"]
    for name, devices, plan, answer in measured([chosen.only] if chosen.only else list(NETWORKS)):
        answers[name, devices, plan] = answer
        rows.append(row(name, devices, plan, answer))
        print(rows[-1], flush=True)
    print(f"\n{summary(answers)}", end="")
    if chosen.only:
        return
    minutes = sum(answer.processor_seconds for answer in answers.values()) / 60
    batches = "; ".join(f"{title}: {batch} {unit}" for title, batch, unit, _ in NETWORKS.values())
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        f"""# Known schemes beside tofu's plans

    python bench/readme_table.py

{datetime.datetime.now(datetime.UTC).date()}, tofu {planner.__version__}, onnx {onnx.__version__}, Python \
{sys.version.split()[0]}. All plans together took {minutes:.0f} processor minutes.

Nothing ran on these machines: times are estimates, for `dgx-h100` (4 and 8 GPUs) and `h100-64x8` (64). Batch a GPU:
{batches}. A GPU has 74.5 GiB.

Estimated ms a step, GiB of the fullest GPU, GB that all GPUs receive in a step:

{summary(answers)}
"over": the plan does not fit, even if everything is recomputed; the number is the memory that it needs. "-": the scheme
does not apply. "gap": no plan that tofu's search considers is faster by more.

## All plans

{chr(10).join(rows)}
"""
    )
    print(f"written to {RESULTS.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
