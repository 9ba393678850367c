"""What the default plan for a machine is estimated to take, beside every strategy of ``tofu compare``.

    python bench/least_time.py [MODEL ...] [--topology NAME ...] [--effort quick]
    python bench/least_time.py --all
    python bench/least_time.py --large

By default, LeNet-5 on dgx-h100. ``--all``: all kinds of models of the zoo of up to 300 ops, on every shipped topology
of up to 16 devices. ``--large``: four larger ones with ``--effort quick`` on dgx-h100 and h100-64x8; the latter takes
hours: every strategy has a program of 512 workers. A row has the plan's time, and the others' as multiples of it;
what is below 1 is faster than the default plan, which is not to be. The last columns are the seconds that planning
took, and what it warned of. The table is in Markdown.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from planner import api, configs
from planner.errors import TofuError
from planner.features.zoo.models import build
from planner.graph.files.to_onnx import write_model
from planner.machine.topology_file import load_topology
from planner.planning.objective import LITERATURE
from planner.search.effort import EffortName
from planner.units import format_seconds

EVERY_SMALL = (
    *("mlp-5x300", "mlp-4x8192", "cnn-5x2048-6", "lenet-5", "alexnet", "vgg-16"),
    *("gpt-2x64", "gpt-2x128-4h", "gpt-2x128-4h-lm", "gpt-2x1024"),
)
LARGE = ("gpt2", "resnet-50", "wresnet-50-4", "rnn-4-8k")
LARGE_MACHINES = ("dgx-h100", "h100-64x8")
_MOST_DEVICES = 16


def row(name: str, topology: str, effort: EffortName, folder: Path) -> str:
    """A row of the table.

    Args:
        name: of a model of the zoo.
        topology: name of one that ships, or a file.
        effort: of the plan.
        folder: for the model and its plan.
    """
    model = folder / f"{name}.onnx"
    write_model(build(name), model)
    planned = api.plan(model, topology=topology, effort=effort, out=folder / "plan", force=True)
    assert planned.plan.estimate is not None, "there is a topology"
    least = planned.plan.estimate.estimated_seconds
    seconds = {one.strategy: one.estimated_seconds for one in api.compare(model, topology=topology).rows}
    cells = [name, topology, str(planned.ops), format_seconds(least)]
    for strategy in LITERATURE:
        found = seconds[strategy]
        cells.append("-" if found is None else f"{found / least:.3f}")
    cells += [planned.found_by, f"{planned.total_seconds:.0f}", "; ".join(planned.warnings)]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Prints the table, row by row."""
    parser = argparse.ArgumentParser(description="Estimated time of the default plan beside every strategy's.")
    parser.add_argument("models", nargs="*", help="models of the zoo")
    parser.add_argument("--topology", action="append", help="repeatable")
    parser.add_argument("--effort", choices=["quick", "normal", "thorough"], default="normal")
    parser.add_argument("--all", action="store_true", help="all small models on all machines of up to 16 devices")
    parser.add_argument("--large", action="store_true", help="four large models, quickly")
    chosen = parser.parse_args()
    if chosen.large:
        chosen.effort = "quick"
    small = [name for name in configs.names() if load_topology(name).device_count <= _MOST_DEVICES]
    machines = chosen.topology or (LARGE_MACHINES if chosen.large else small if chosen.all else LARGE_MACHINES[:1])
    models = chosen.models or (LARGE if chosen.large else EVERY_SMALL if chosen.all else ("lenet-5",))
    heads = ("model", "topology", "ops", "plan", *LITERATURE, "the plan is", "s", "warnings")
    print("| " + " | ".join(heads) + " |")
    print("| " + " | ".join("---" for _ in heads) + " |")
    with tempfile.TemporaryDirectory() as folder:
        for name in models:
            for machine in machines:
                try:
                    print(row(name, machine, chosen.effort, Path(folder)), flush=True)
                except TofuError as error:
                    print(f"| {name} | {machine} | {error.what} |", flush=True)


if __name__ == "__main__":
    main()
