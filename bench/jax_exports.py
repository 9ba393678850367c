"""Exported steps in JAX: bytes in the compiled program beside the plan's, and numbers beside ONNX Runtime's.

Needs the extra ``exports``. Twelve models on 2, 4 and 8 workers, whose parts are mostly even, and on 3 and 6. Prints a
line for each: bytes that the plan predicts, bytes of the collectives in XLA's program, the largest difference after
three iterations (absolute and relative, as in ``numpy.allclose``), seconds to compile.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

_ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(_ROOT / "tests" / "tools"))

from export_models import NAMES, pins_of, written  # type: ignore[import-not-found]  # noqa: E402  the tools of the tests
from planner import api  # noqa: E402

COUNTS = (2, 4, 8, 3, 6)


def main() -> None:
    """Prints the table."""
    print(f"{'model':20} {'k':>2} {'predicted':>12} {'in XLA':>12} {'apart':>9} {'seconds':>8}", flush=True)
    exact, asked = 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name in sys.argv[1:] or NAMES:
            model = written(name, folder)
            for workers in COUNTS:
                plan, file = folder / f"{model.stem}.{workers}", folder / f"{model.stem}_{workers}.py"
                predicted = api.plan(model, gpus=workers, pin=pins_of(name), effort="quick", out=plan).plan.moved_bytes
                api.export(plan, jax=file)
                tool = _ROOT / "tests" / "tools" / "jax_steps.py"
                command = [sys.executable, str(tool), str(plan), str(file), "3", "0.01"]
                done = subprocess.run(command, check=False, capture_output=True, text=True)
                if done.returncode:
                    print(f"{name:20} {workers:2} failed: {done.stderr.strip().splitlines()[-1]}", flush=True)
                    continue
                found = json.loads(done.stdout.splitlines()[-1])
                moved = found["moved_bytes"]
                asked, exact = asked + 1, exact + (moved == predicted)
                print(
                    f"{name:20} {workers:2} {predicted:12,} {moved:12,} {found['error']:9.1e} "
                    f"{found['compile_seconds']:8.1f}",
                    flush=True,
                )
    print(f"\nbytes are equal in {exact} of {asked}")


if __name__ == "__main__":
    main()
