"""Digests of plan folders: whether a change of the code's structure has changed what is planned.

    python tests/tools/plan_digests.py before.json             twelve models on 2, 4 and 8 workers
    python tests/tools/plan_digests.py before.json --compare   and what differs from the file
    python tests/tools/plan_digests.py zoo.json --zoo          every model of the zoo on 8 workers, quickly

A digest is of every file in the folder but the manifest: the plan, the model, and each worker's model. The twelve are
planned quickly, and those of up to 300 ops with normal effort as well. With each digest stand what the plan costs and
its gap, to judge a difference by. The exit status is 1 if something differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from planner import api
from planner.artifacts.place import MANIFEST
from planner.features.zoo import models as zoo
from planner.graph.files.to_onnx import write_model

MODELS = Path(__file__).parents[1] / "models"
SMALL = (
    *("mlp-5x300", "mlp-4x8192", "cnn-5x2048-6", "lenet-5", "alexnet", "vgg-16"),
    *("gpt-2x1024", "gpt-2x128-4h-lm"),
)
LARGE = ("rnn-1-1k", "resnet-50", "bert_step.onnx", "spellings/gpt-2x1024.torch.onnx")
WORKERS = (2, 4, 8)


def digest(folder: Path) -> str:
    """Of all files below a folder, with their names; but for the manifest, which says where the model lay."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != MANIFEST:
            found.update(path.relative_to(folder).as_posix().encode() + b"\0")
            found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def rows(*, of_the_zoo: bool) -> Iterator[tuple[str, int, str]]:
    """What is planned: model, workers, effort."""
    if of_the_zoo:
        yield from ((name, 8, "quick") for name in zoo.names(zoo.PAPERS))
        return
    for name in (*SMALL, *LARGE):
        for workers in WORKERS:
            yield name, workers, "quick"
            if name in SMALL:
                yield name, workers, "normal"


def planned(name: str, workers: int, effort: str, folder: Path) -> dict[str, object]:
    """The digest of a plan's folder, and what the plan costs."""
    model = MODELS / name
    if not name.endswith(".onnx"):
        model = folder / f"{name}.onnx"
        write_model(zoo.build(name), model)
    out = folder / "plan"
    result = api.plan(model, gpus=workers, effort=effort, out=out, force=True)  # type: ignore[arg-type]
    gap = result.plan.certified_gap
    return {"digest": digest(out), "cost": result.plan.cost, "gap": None if gap is None else round(gap, 6)}


def main() -> int:
    """Writes digests, or says which differ from those of a file."""
    parser = argparse.ArgumentParser(description="Digests of plan folders.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--zoo", action="store_true", help="every model of the zoo, instead of the twelve")
    parser.add_argument("--compare", action="store_true", help="with the file, which stays as it is")
    chosen = parser.parse_args()
    known = json.loads(chosen.file.read_text()) if chosen.compare else {}
    found: dict[str, dict[str, object]] = {}
    differing = 0
    for name, workers, effort in rows(of_the_zoo=chosen.zoo):
        key = f"{name} {workers} {effort}"
        with tempfile.TemporaryDirectory() as folder:
            found[key] = planned(name, workers, effort, Path(folder))
        if chosen.compare and known.get(key) != found[key]:
            differing += 1
            print(f"{key}: {found[key]}, before: {known.get(key)}", flush=True)
        if not chosen.compare:
            chosen.file.write_text(json.dumps(found, indent=1) + "\n")
    assert found, "something is planned"
    print(f"{len(found)} plans, {differing} differ" if chosen.compare else f"{len(found)} plans")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
