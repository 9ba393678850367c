"""A training step of tofu's beside PyTorch's and plain ONNX Runtime's, on this machine.

    python bench/against_pytorch.py [--only resnet-50,gpt-2] [--optimizer adamw] [--size small] [--rounds 3]
        [--groups] [--device cuda] [--python build/pytorch/env/bin/python]

`make bench-pytorch` makes the environment that PyTorch is in. Each network is exported from PyTorch and goes through
`tofu grad` and `tofu plan`. Every way has the same weights and the same batch: PyTorch eager; ONNX Runtime on
train.onnx as one session; `tofu run` on one worker bound to one core, and as typed; two workers; two processes of DDP
over gloo. Each worker has one thread, except as typed. The ways take their steps in turn. *cpu* is processor time of
all processes of a way, a step; *wall* is elapsed time. Both are the minimum of the rounds. *to PyTorch* divides cpu.
*apart* is the largest relative difference of a loss to PyTorch's.

``--groups`` prints milliseconds by group of PyTorch's step and of ONNX Runtime's, by their own profilers. ``--device
cuda`` does the same on a GPU, with PyTorch in three settings (highest, TF32, bfloat16); workers share the GPUs in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import numpy as np
from rich.console import Console
from rich.table import Table

from planner import api
from planner.graph.core.model import Graph
from planner.graph.reading.from_onnx import read_model
from planner.runtime.chosen_engine import GPU_COMMAND
from planner.runtime.engine.core.sessions import onnxruntime
from planner.runtime.engine.process.child_process import COMMAND
from planner.runtime.engine.process.supervisor import SupervisedEngine
from planner.runtime.plan_files import load_plan
from planner.runtime.values.state import starting_values
from planner.runtime.values.tiles import gather_tiles, load_tiles
from planner.search.effort import EffortName

NETWORKS = ("resnet-50", "resnet-18", "convnext", "efficientnet", "u-net", "lstm", "gpt-2", "llama", "mixture", "vit",
            "bert", "t5", "tiny-bert", "mlp")  # fmt: skip
OPTIMIZERS = {"momentum": {"lr": 1e-4}, "adamw": {"lr": 1e-5, "weight_decay": 0.01}}
_ENOUGH_SECONDS = 0.3
"""Of steps in a row, so that a clock is read between them seldom."""
_KINDS = {"Conv": "convolutions", "MatMul": "products", "Gemm": "products", "Einsum": "products", "LSTM": "recurrences",
          "Norm": "norms", "Softmax": "softmax and loss", "elu": "activations", "Tanh": "activations",
          "Erf": "activations", "Sigmoid": "activations", "Pool": "pooling", "Transpose": "movement",
          "Slice": "movement", "Concat": "movement", "Pad": "movement", "Reduce": "sums", "Where": "Where"}  # fmt: skip
"""By what an op's type has in it: the group's kind; all else is `other`."""


def processor_seconds(process: int) -> float:
    """What a process has used of processors, all threads together, those that have ended too."""
    return time.clock_gettime((~process << 3) | 2)  # CPUCLOCK_SCHED of a process, as clock_getcpuclockid(3) gives it


class Peer:
    """A process that takes steps when it is told to."""

    def __init__(
        self, command: Sequence[str], *, core: int | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        bound = ["taskset", "-c", str(core)] if core is not None else []
        self._process = subprocess.Popen(
            [*bound, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self._command = command

    def ask(self, request: str) -> None:
        """Sends a line."""
        stdin = self._process.stdin
        assert stdin is not None, "it has one"
        print(request, file=stdin, flush=True)

    def answer(self) -> dict[str, Any]:
        """What it says next.

        Raises:
            RuntimeError: it has ended.
        """
        stdout = self._process.stdout
        assert stdout is not None, "it has one"
        line = stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(self._command)} ended with {self._process.wait()}")
        return cast(dict[str, Any], json.loads(line))

    def close(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None, "it has one"
        self._process.stdin.close()
        self._process.wait()


@dataclass(slots=True)
class Way:
    """A way of training, and what was measured of it."""

    name: str
    peers: Sequence[Peer]
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    steps: int = 1
    """In a row."""

    def __enter__(self) -> Way:
        for peer in self.peers:
            self.processes += peer.answer()["processes"]
        self._take(1)
        self._take(1)
        self.steps = max(1, round(_ENOUGH_SECONDS / self.wall[-1]))
        self.cpu, self.wall = [], []
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for peer in self.peers:
            peer.close()

    def measure(self) -> None:
        """Takes some steps."""
        self._take(self.steps)

    def _take(self, steps: int) -> None:
        before = sum(map(processor_seconds, self.processes))
        for peer in self.peers:
            peer.ask(str(steps))
        answers = [peer.answer() for peer in self.peers]
        self.cpu.append((sum(map(processor_seconds, self.processes)) - before) / steps)
        self.wall.append(max(answer["seconds"] for answer in answers) / steps)
        self.losses += np.mean([answer["losses"] for answer in answers], axis=0).tolist()


@dataclass(frozen=True, slots=True)
class Setting:
    """What is compared, and how."""

    optimizer: str
    size: str
    device: str
    python: str
    effort: EffortName
    ddp: bool


def ways(name: str, folder: Path, setting: Setting) -> Iterator[Way]:
    """The ways of a network, each when the one before it is there: PyTorch writes what the others read."""
    torch = [setting.python, str(Path(__file__).with_name("pytorch_steps.py")), name, str(folder), "--size",
             setting.size, "--optimizer", setting.optimizer, "--device", setting.device]  # fmt: skip
    core = max(os.sched_getaffinity(0))
    for precision in ("highest", "tf32", "bfloat16") if setting.device == "cuda" else ("",):
        more = ["--setting", precision] if precision else []
        yield Way(f"PyTorch {precision}".strip(), [Peer([*torch, *more])])
    train = folder / f"{setting.optimizer}.onnx"
    serve = [sys.executable, __file__, "--device", setting.device, "--serve", str(folder)]
    if not train.exists():
        api.grad(folder / "network.onnx", loss="softmax_cross_entropy", optimizer=setting.optimizer, output=train,
                 **OPTIMIZERS[setting.optimizer])  # type: ignore[arg-type]  # fmt: skip
    yield Way("ONNX Runtime", [Peer([*serve, str(train)], core=core)])
    for workers in (1, 2):
        plan = folder / f"{setting.optimizer}.tofu{workers}"
        if not plan.exists():
            api.plan(train, gpus=workers, out=plan, effort=setting.effort)
        if workers == 1:
            yield Way("tofu run, one core", [Peer([*serve, str(plan)], core=core)])
        yield Way(f"tofu run, {workers} worker{'s' * (workers > 1)}", [Peer([*serve, str(plan)])])
    if setting.ddp:
        where = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
        yield Way("DDP, 2 processes", [Peer(torch, env={**where, "RANK": str(rank)}) for rank in range(2)])


def compare(name: str, setting: Setting, rounds: int, folder: Path, console: Console) -> None:
    """Measures a network's ways in turn, and prints a table."""
    with ExitStack() as stack:
        there = []
        for way in ways(name, folder, setting):
            there.append(stack.enter_context(way))
        for _ in range(rounds):
            for way in there:
                way.measure()
    first = there[0]
    table = Table("way", "cpu ms", "to PyTorch", "wall ms", "apart", title=f"{name}, {setting.optimizer}")
    for way in there:
        pairs = list(zip(way.losses, first.losses, strict=False))[:10]
        apart = max(abs(own - its) / abs(its) for own, its in pairs)
        table.add_row(way.name, f"{1e3 * min(way.cpu):.2f}", f"{min(way.cpu) / min(first.cpu):.2f}",
                      f"{1e3 * min(way.wall):.2f}", f"{apart:.1e}")  # fmt: skip
    console.print(table)


def print_groups(name: str, setting: Setting, folder: Path, console: Console) -> None:
    """Prints a table of groups, of PyTorch and of ONNX Runtime."""
    found = []
    for way in ways(name, folder, setting):
        (peer, *_) = way.peers
        with way:
            if way.name.startswith(("PyTorch", "ONNX")):
                peer.ask("groups")
                found.append((way.name, peer.answer()["groups"]))
        if way.name.startswith("ONNX"):
            break
    table = Table("group", *(f"{way} ms" for way, _ in found), title=f"{name}, {setting.optimizer}")
    for group in sorted({group for _, groups in found for group in groups}):
        table.add_row(group, *(f"{groups.get(group, 0):.1f}" for _, groups in found))
    console.print(table)


class Plain:
    """Plain ONNX Runtime on a training graph, one session; the next state is what the step before has made.

    Args:
        train: the model.
        values: of its inputs.
        device: ``cpu`` or ``cuda``.
    """

    def __init__(self, train: Path, values: Mapping[str, np.ndarray], device: str) -> None:
        self._train, self._device = train, device
        self._graph = read_model(train)
        self._session = self._made(is_profiled=False)
        inputs = [one.name for one in self._session.get_inputs()]
        self._outputs = [one.name for one in self._session.get_outputs()]
        self._runtime = onnxruntime()
        self._place = "cuda" if device == "cuda" else "cpu"
        self._values = {name: self._held(values[name]) for name in inputs}

    def _held(self, array: np.ndarray) -> Any:
        return self._runtime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), self._place, 0)

    def _made(self, *, is_profiled: bool) -> Any:
        runtime = onnxruntime()
        options = runtime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        if is_profiled:
            options.enable_profiling = True
            options.profile_file_prefix = str(self._train.with_suffix(""))
        provider = "CUDAExecutionProvider" if self._device == "cuda" else "CPUExecutionProvider"
        return runtime.InferenceSession(
            str(self._train), options, providers=[provider], disabled_optimizers=["NchwcTransformer"]
        )

    def __call__(self) -> float:
        """Takes a step; the loss before it."""
        return self._step(self._session)

    def _step(self, session: Any) -> float:
        binding = session.io_binding()
        for name, value in self._values.items():
            binding.bind_ortvalue_input(name, value)
        for name in self._outputs:
            binding.bind_output(name, self._place)
        session.run_with_iobinding(binding)
        made = dict(zip(self._outputs, binding.get_outputs(), strict=True))
        for pair in self._graph.state:
            self._values[pair.current] = made[pair.following]
        return float(np.asarray(made[loss_of(self._graph)].numpy()).reshape(()))

    def groups(self) -> dict[str, float]:
        """Milliseconds of one step by group."""
        session = self._made(is_profiled=True)
        self._step(session)
        self._step(session)
        found: Counter[str] = Counter()
        for event in json.loads(Path(session.end_profiling()).read_text()):
            if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
                found[_group(event["name"], event["args"]["op_name"])] += event["dur"] / 2e3
        return dict(found)


def _group(name: str, op_type: str) -> str:
    if any(part in name for part in (".next", ".update", "optimizer")):
        return "update"
    kind = next((kind for part, kind in _KINDS.items() if part in op_type), "other")
    kind = "softmax and loss" if ".loss" in name else kind
    return f"{kind} {'backward' if '.backward' in name or '.grad' in name else 'forward'}"


def loss_of(graph: Graph) -> str:
    """The output that is the loss: `tofu grad` puts it first."""
    return graph.outputs[0]


@contextmanager
def of_plan(directory: Path, inputs: Path, device: str) -> Iterator[tuple[Callable[[], float], list[int]]]:
    """A plan's step as a run takes it, and its processes."""
    plan = load_plan(directory)
    devices = [0] * len(plan.program.workers) if device == "cuda" else None
    command = COMMAND if devices is None else GPU_COMMAND
    with SupervisedEngine(
        plan.paths, plan.program.workers, plan.program.state, device_map=devices, command=command
    ) as entered:
        engine = cast(SupervisedEngine, entered)
        load_tiles(engine, starting_values(plan.graph, inputs))
        loss = loss_of(plan.graph)

        steps = count()

        def step() -> float:
            engine.iterate(advances=next(steps) > 0, wanted=(loss,))
            found = gather_tiles(engine, (loss,), {loss: plan.graph.tensors[loss].shape})[loss]
            return float(found.reshape(()))

        yield step, [os.getpid(), *engine.process_ids]


def serve(folder: Path, device: str, path: Path) -> None:
    """Takes as many steps as each line of the input says."""

    def answer(said: Mapping[str, Any]) -> None:
        print(json.dumps(said), flush=True)

    inputs = folder / "batch.npz"
    with ExitStack() as stack:
        plain: Plain | None = None
        if path.is_dir():
            step, processes = stack.enter_context(of_plan(path, inputs, device))
        else:
            step = plain = Plain(path, starting_values(read_model(path), inputs), device)
            processes = [os.getpid()]
        answer({"processes": processes})
        for line in sys.stdin:
            if line.strip() == "groups":
                assert plain is not None, "of a session alone"
                answer({"groups": plain.groups()})
                continue
            start = time.perf_counter()
            losses = [step() for _ in range(int(line))]
            answer({"seconds": time.perf_counter() - start, "losses": losses})


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default=",".join(NETWORKS), help="names of networks, with commas")
    parser.add_argument("--optimizer", choices=list(OPTIMIZERS), action="append", help="both, if left out")
    parser.add_argument("--size", choices=["small", "full"], default="full")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--groups", action="store_true", help="milliseconds by group of operators")
    parser.add_argument("--no-ddp", action="store_true", help="leave out PyTorch's two processes")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--effort", choices=["quick", "normal", "thorough"], default="quick", help="of plans")
    parser.add_argument("--python", default="build/pytorch/env/bin/python", help="that has PyTorch")
    parser.add_argument("--keep", type=Path, help="a folder for models and plans, which are taken from there if there")
    parser.add_argument("--serve", type=Path, nargs=2, metavar=("FOLDER", "PATH"), help="used by the bench itself")
    given = parser.parse_args()
    if given.serve:
        folder, path = given.serve
        serve(folder, given.device, path)
        return
    if unknown := set(given.only.split(",")) - set(NETWORKS):
        sys.exit(f"error: there is no network {', '.join(sorted(unknown))}\nhint: there are {', '.join(NETWORKS)}")
    console = Console(width=100)
    for name in given.only.split(","):
        for optimizer in given.optimizer or OPTIMIZERS:
            setting = Setting(optimizer, given.size, given.device, given.python, given.effort, not given.no_ddp)
            with tempfile.TemporaryDirectory() as temporary:
                folder = (given.keep or Path(temporary)) / f"{name}.{given.size}"
                folder.mkdir(parents=True, exist_ok=True)
                if given.groups:
                    print_groups(name, setting, folder, console)
                else:
                    compare(name, setting, given.rounds, folder, console)


if __name__ == "__main__":
    main()
