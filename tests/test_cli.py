"""The command line: what it passes on, what it prints where, and its exit codes."""

from __future__ import annotations

import ast
import errno
import json
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cli
import planner
import planner.report
from planner import errors

ROOT = Path(cli.__file__).parent
COMMANDS = ("grad", "plan", "explain", "run")


class Door:
    """Stands for ``planner.api`` and the report: notes the calls, answers as told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.answer: Callable[[], object] = types.SimpleNamespace
        self.shown: Callable[[Any], None] = lambda out: print("table", file=out)

    def call(self, command: str, *args: Any, **options: Any) -> object:
        tell = options.pop("progress", None)
        self.calls.append((command, args, options))
        if tell is not None:
            tell("reading [conv1]")
        print("a library speaks")
        answer = self.answer()
        if not hasattr(answer, "verified"):
            answer = types.SimpleNamespace(verified=None)
        return answer


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Door:
    """``planner.api``, ``report.as_json`` and ``report.tables`` replaced for one test; tracebacks go to its folder."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    door = Door()
    api, as_json, tables, gate = (types.ModuleType(name) for name in ("api", "as_json", "tables", "gate"))
    gate.check_json = lambda _result: {"schema_version": 1}  # type: ignore[attr-defined]
    gate.print_check = lambda _result, out: door.shown(out)  # type: ignore[attr-defined]
    api.check = lambda *args, **options: door.call("check", *args, **options)  # type: ignore[attr-defined]
    for command in COMMANDS:
        setattr(api, command, lambda *args, _command=command, **options: door.call(_command, *args, **options))
        setattr(
            as_json, command, lambda _result, _command=command: {"schema_version": 1, "command": _command, "é": "×"}
        )
        setattr(tables, command, lambda _result, out: door.shown(out))
    for parent, name, module in (
        (planner, "api", api),
        (planner.report, "as_json", as_json),
        (planner.report, "tables", tables),
        (planner.report, "gate", gate),
    ):
        monkeypatch.setitem(sys.modules, f"{parent.__name__}.{name}", module)
        monkeypatch.setattr(parent, name, module, raising=False)
    return door


def _tofu(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cli", *arguments], cwd=ROOT, text=True, capture_output=True, timeout=60, **options
    )


# What is imported, and by whom


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["plan", "--help"], ["run", "-h"], ["nonsense"]])
def test_help_is_light(arguments: list[str]) -> None:
    heavy = ("onnx", "onnxruntime", "numpy", "rich", "yaml", "google.protobuf")
    program = f"""
import sys, cli
code = cli.main({arguments!r})
print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, text=True, capture_output=True, timeout=60)
    assert done.stderr.endswith("[]\n"), done.stderr


def test_imports_only_the_layer_below() -> None:
    # cli.py is a module, which import-linter does not take for a root.
    files = [Path(cli.__file__), *sorted((ROOT / "planner" / "commands").glob("*.py"))]
    imported = set()
    for node in [node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in ("planner", "opdefs"):
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names if alias.name.split(".")[0] in ("planner", "opdefs")}
    assert {name for name in imported if not name.startswith("planner.commands.")} == {
        "planner.api",
        "planner.api.operators",
        "planner.api.operators.Operators",
        "planner.errors.TofuError",
        "planner.errors.UsageError",
        "planner.errors.did_you_mean",
        "planner.report.as_json",
        "planner.report.gate",
        "planner.report.operators",
        "planner.report.tables",
        "planner.report.text.printable",
    }


# What is passed on


def test_grad_passes_its_options(door: Door) -> None:
    line = "grad m/net.onnx --loss mse --optimizer momentum --lr 0.05 --momentum 0.8 --batch 8 --batchnorm frozen"
    assert cli.main([*line.split(), "--dim", "a=3", "--dim", "b=b=4", "-o", "out.onnx"]) == 0
    assert door.calls == [
        (
            "grad",
            (Path("m/net.onnx"),),
            {
                "loss": "mse",
                "optimizer": "momentum",
                "lr": 0.05,
                "momentum": 0.8,
                "batch": 8,
                "batchnorm": "frozen",
                "dim": {"a": 3, "b=b": 4},
                "output": Path("out.onnx"),
            },
        )
    ]


def test_grad_defaults(door: Door) -> None:
    assert cli.main("grad m/net.onnx --loss softmax_cross_entropy --optimizer sgd".split()) == 0
    options = door.calls[0][2]
    assert options["output"] == Path("net.train.onnx")
    assert (options["batch"], options["batchnorm"], options["dim"]) == (None, "train", {})
    assert options["lr"] == 0.01
    assert not {"momentum", "betas", "weight_decay", "clip_norm", "precision"} & options.keys()


def test_grad_passes_what_is_stated(door: Door) -> None:
    line = "grad n.onnx --loss nll --optimizer adamw --betas 0.8 0.9 --epsilon 1e-6 --weight-decay 0.1 --no-decay *.b"
    more = "--no-decay-vectors --clip-norm 1 --accumulate 4 --precision float16 --loss-scale dynamic --dropout train"
    labels = "--class-weights 1,0.5 --ignore-index -100 --loss-input y --gradients p.yaml --format training-info"
    assert cli.main([*line.split(), *more.split(), *labels.split()]) == 0
    options = door.calls[0][2]
    assert (options["betas"], options["epsilon"], options["weight_decay"]) == ((0.8, 0.9), 1e-6, 0.1)
    assert (options["no_decay"], options["no_decay_vectors"]) == (("*.b",), True)
    assert (options["clip_norm"], options["accumulate"]) == (1.0, 4)
    assert (options["precision"], options["loss_scale"], options["dropout"]) == ("float16", "dynamic", "train")
    assert (options["class_weights"], options["ignore_index"], options["loss_input"]) == ((1.0, 0.5), -100, "y")
    assert (options["gradients"], options["form"]) == (Path("p.yaml"), "training-info")


def test_plan_passes_its_options(door: Door) -> None:
    line = "plan t.onnx --gpus 8 --topology p2.8xlarge --dim b=2 --strategy data --inputs partitioned --out d"
    line += " --forbid act*=R --forbid act*=S(1) --replicate weights --objective time --memory 12GiB"
    assert cli.main([*line.split(), "--pin", "W=S(0)", "--pin", "a/b=0=S(1)/2 R/4"]) == 0
    assert door.calls == [
        (
            "plan",
            (Path("t.onnx"),),
            {
                "gpus": 8,
                "topology": "p2.8xlarge",
                "objective": "time",
                "memory": "12GiB",
                "dim": {"b": 2},
                "strategy": "data",
                "pin": {"W": "S(0)", "a/b=0": "S(1)/2 R/4"},
                "forbid": (("act*", "R"), ("act*", "S(1)")),
                "replicate": "weights",
                "inputs": "partitioned",
                "effort": "normal",
                "out": Path("d"),
                "sharding_annotations": None,
                "opdefs": None,
                "unknown_ops": "refuse",
            },
        )
    ]


def test_check_passes_its_options(door: Door) -> None:
    line = "check m.onnx alexnet --gpus 2,4 --baseline c.json --max-increase 1% --update --dim b=2 --state p.yaml"
    door.answer = lambda: types.SimpleNamespace(is_passed=True, verified=None)
    assert cli.main(line.split()) == 0
    assert door.calls == [
        (
            "check",
            (("m.onnx", "alexnet"),),
            {
                "gpus": (2, 4),
                "baseline": Path("c.json"),
                "max_increase": "1%",
                "update": True,
                "dim": {"b": 2},
                "state": Path("p.yaml"),
                "opdefs": None,
                "unknown_ops": "refuse",
            },
        )
    ]


@pytest.mark.parametrize("json_wanted", [False, True])
def test_a_check_that_fails_exits_with_1(json_wanted: bool, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    door.answer = lambda: types.SimpleNamespace(is_passed=False, verified=None)
    line = "check m.onnx --gpus 2 --baseline c.json".split()
    assert cli.main([*line, *(["--json"] if json_wanted else [])]) == 1
    assert capsys.readouterr().out


@pytest.mark.parametrize("counts", ["", "0", "2,", "2 4", "-2", "two", "2,0"])
def test_gpus_of_a_check_are_counts(counts: str, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "m.onnx", "--gpus", counts, "--baseline", "c.json"]) == 2
    assert "whole numbers" in capsys.readouterr().err
    assert not door.calls


def test_topology_alone_says_how_many(door: Door) -> None:
    assert cli.main(["plan", "t.onnx", "--topology", "p2.8xlarge"]) == 0
    assert door.calls[0][2]["gpus"] is None


def test_explain_takes_a_directory_or_a_subject(door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p").mkdir()
    for arguments, directory, subject in [
        ([], None, None),
        (["p"], Path("p"), None),
        (["p", "fc.weight"], Path("p"), "fc.weight"),
        (["fc.weight"], None, "fc.weight"),
        (["layer1/conv"], None, "layer1/conv"),
        (["p/missing"], Path("p/missing"), None),
        (["/missing"], Path("/missing"), None),
        (["./nosuch"], Path("nosuch"), None),
        (["../nosuch"], Path("../nosuch"), None),
    ]:
        assert cli.main(["explain", *arguments]) == 0
        assert door.calls.pop() == ("explain", (directory,), {"subject": subject, "opdefs": None})


def test_run_passes_its_options(door: Door) -> None:
    assert cli.main("run d --inputs f.npz --steps 5 --verify --result o.npz --seed 7".split()) == 0
    assert cli.main(["run"]) == 0
    line = "run d --weights w.npz --lr 0.1 --checkpoint-dir c --checkpoint-every 3 --resume --export o.onnx"
    assert cli.main([*line.split(), *"--forward f.onnx --profile --device cuda --map 0,0,1".split()]) == 0
    nothing: dict[str, object] = {
        "inputs": None,
        "weights": None,
        "steps": 1,
        "lr": None,
        "verify": False,
        "result": None,
        "checkpoint_dir": None,
        "checkpoint_every": None,
        "resume": False,
        "export": None,
        "forward": None,
        "profile": False,
        "device": "cpu",
        "device_map": None,
        "seed": 0,
        "custom_ops": (),
        "opdefs": None,
    }
    few = {"inputs": Path("f.npz"), "steps": 5, "verify": True, "result": Path("o.npz"), "seed": 7}
    more = {
        "weights": Path("w.npz"),
        "lr": "0.1",
        "checkpoint_dir": Path("c"),
        "checkpoint_every": 3,
        "resume": True,
        "export": Path("o.onnx"),
        "forward": Path("f.onnx"),
        "profile": True,
        "device": "cuda",
        "device_map": (0, 0, 1),
    }
    assert door.calls == [
        ("run", (Path("d"),), {**nothing, **few}),
        ("run", (None,), nothing),
        ("run", (Path("d"),), {**nothing, **more}),
    ]


@pytest.mark.parametrize("text", ["", "0,", "a", "-1", "0 1"])
def test_a_map_that_is_none(text: str, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "d", "--device", "cuda", "--map", text]) == 2
    assert "--map" in capsys.readouterr().err
    assert not door.calls


# What is printed where

GOOD_LINES = {
    "grad": "grad m.onnx --loss mse --optimizer sgd",
    "plan": "plan m.onnx --gpus 2",
    "explain": "explain",
    "run": "run",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_result_alone_is_on_stdout(command: str, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(GOOD_LINES[command].split()) == 0
    assert capsys.readouterr() == ("table\n", "a library speaks\n")
    assert cli.main([*GOOD_LINES[command].split(), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"schema_version": 1, "command": command, "é": "×"}
    assert out.isascii()
    assert err == "a library speaks\n"


@pytest.mark.parametrize("command", ["grad", "plan", "run"])
def test_progress_is_for_a_terminal(
    command: str, door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert cli.main([*GOOD_LINES[command].split(), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["command"] == command
    assert err == "reading [conv1]\na library speaks\n"


@pytest.mark.parametrize("content", [{"x": float("nan")}, {"x": Path()}])
def test_json_is_whole_or_absent(
    content: dict[str, object], door: Door, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(planner.report.as_json, "plan", lambda _result: content)
    assert cli.main(["plan", "m.onnx", "--gpus", "2", "--json"]) == 4
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("json_wanted", [False, True])
def test_a_difference_is_shown_and_exits_with_1(
    json_wanted: bool, door: Door, capsys: pytest.CaptureFixture[str]
) -> None:
    door.answer = lambda: types.SimpleNamespace(verified=False)
    assert cli.main(["run", "--verify", *(["--json"] if json_wanted else [])]) == 1
    assert capsys.readouterr().out


def _raises(error: BaseException) -> Callable[[], object]:
    def answer() -> object:
        raise error

    return answer


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InfeasibleError("no plan"), 1),
        (errors.DifferenceError("differs"), 1),
        (errors.UsageError("bad option"), 2),
        (errors.ModelError("bad model"), 2),
        (errors.UnsupportedError("operator"), 2),
        (errors.DescriptionError("description"), 2),
        (errors.WorkerError("worker 2 failed"), 3),
    ],
)
@pytest.mark.parametrize("json_wanted", [False, True])
def test_exit_codes_of_the_tree(
    error: errors.TofuError, code: int, json_wanted: bool, door: Door, capsys: pytest.CaptureFixture[str]
) -> None:
    door.answer = _raises(error)
    assert cli.main(["plan", "m.onnx", "--gpus", "2", *(["--json"] if json_wanted else [])]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"a library speaks\nerror: {error.what}\n"


def test_an_error_has_facts_and_a_hint(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    door.answer = _raises(
        errors.ModelError("m.onnx: dims are not bound", facts=("x: batch", "[conv1]\x1b[31m: n"), hint="--dim batch=8")
    )
    assert cli.main(["plan", "m.onnx", "--gpus", "2"]) == 2
    assert capsys.readouterr().err == (
        "a library speaks\nerror: m.onnx: dims are not bound\n  x: batch\n  [conv1]\\x1b[31m: n\nhint: --dim batch=8\n"
    )


def test_a_bug_saves_its_traceback(door: Door, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    door.answer = _raises(AssertionError("two\nlines"))
    assert cli.main(["plan", "m.onnx", "--gpus", "2"]) == 4
    (saved,) = tmp_path.iterdir()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[1:] == [
        "error: a bug in tofu: AssertionError: two lines",
        f"  traceback saved in {saved}",
        "hint: please report it, with that traceback and the model",
    ]
    text = saved.read_text(encoding="utf-8")
    assert text.startswith("tofu plan m.onnx --gpus 2\npython 3.")
    assert "Traceback (most recent call last)" in text
    assert text.endswith("AssertionError: two\nlines\n")


def test_a_bug_without_a_place_to_save_prints_its_traceback(
    door: Door, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    door.answer = _raises(ZeroDivisionError())
    assert cli.main(["run"]) == 4
    err = capsys.readouterr().err
    assert "error: a bug in tofu: ZeroDivisionError\n" in err
    assert "Traceback (most recent call last)" in err


def test_interrupted(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    door.answer = _raises(KeyboardInterrupt())
    assert cli.main(["run"]) == 130
    assert capsys.readouterr().err.endswith("interrupted\n")


def _during_an_interrupt(how: str) -> None:
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt as interrupt:
        if how == "cause":
            raise ImportError("numpy's C extensions failed") from interrupt
        raise ImportError("numpy's C extensions failed")  # noqa: B904  as NumPy does


@pytest.mark.parametrize("how", ["cause", "context"])
def test_an_interrupt_that_became_another_error(
    how: str, door: Door, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    door.answer = lambda: _during_an_interrupt(how)
    assert cli.main(["run"]) == 130
    assert capsys.readouterr().err.endswith("interrupted\n")
    assert not list(tmp_path.iterdir())


def test_an_interrupt_while_an_error_is_handled(
    door: Door, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "_bug", lambda _error, _given: _raises(KeyboardInterrupt())())
    door.answer = _raises(ZeroDivisionError())
    assert cli.main(["run"]) == 130
    assert capsys.readouterr().err.endswith("interrupted\n")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/plan"), "error: /plan: Permission denied\n"),
        (
            OSError(errno.ENOSPC, "No space left on device", "p/plan.json"),
            "error: p/plan.json: No space left on device\n",
        ),
    ],
)
def test_a_file_of_the_users(error: OSError, says: str, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    door.answer = _raises(error)
    assert cli.main(["run"]) == 2
    assert capsys.readouterr().err.endswith(says)


def test_a_workers_broken_pipe_is_not_ours(door: Door, capfd: pytest.CaptureFixture[str]) -> None:
    door.answer = _raises(BrokenPipeError(errno.EPIPE, "Broken pipe"))
    assert cli.main(["run"]) == 4
    assert "a bug in tofu: BrokenPipeError" in capfd.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"]])
def test_broken_pipe(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cli", *arguments], cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, timeout=60
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("what", ["ops", "explain"])
def test_a_table_into_a_closed_pipe(what: str, tmp_path: Path) -> None:
    arguments = ["ops"]
    if what == "explain":
        folder = tmp_path / "plan"
        assert _tofu("plan", str(_model_file(tmp_path, "x")), "--gpus", "2", "--out", str(folder)).returncode == 0
        arguments = ["explain", str(folder)]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cli", *arguments], cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, timeout=120
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def _model_file(folder: Path, name: str) -> Path:
    """A Relu of [4, 6] whose input has this name."""
    from onnx import TensorProto, helper, save_model

    values = [helper.make_tensor_value_info(tensor, TensorProto.FLOAT, [4, 6]) for tensor in (name, "y")]
    graph = helper.make_graph([helper.make_node("Relu", [name], ["y"], "relu")], "g", values[:1], values[1:])
    file = folder / "model.onnx"
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), file)
    return file


def test_control_characters_of_a_model_are_shown_escaped(tmp_path: Path) -> None:
    model, folder = str(_model_file(tmp_path, "\x1b[31mred")), str(tmp_path / "plan")
    assert _tofu("plan", model, "--gpus", "2", "--out", folder).returncode == 0
    shown = _tofu("explain", folder)
    assert shown.returncode == 0, shown.stderr
    assert "\x1b" not in shown.stdout
    assert "\\x1b[31mred" in shown.stdout
    refused = _tofu("plan", model, "--gpus", "2", "--out", f"{folder}2", "--pin", "\x1b[31mred=S(7)")
    assert refused.returncode == 2
    assert "\x1b" not in refused.stderr
    assert "\\x1b[31mred" in refused.stderr


@pytest.mark.parametrize("spelt", ["model.onnx", "./model.onnx", "sub/../model.onnx", "link.onnx"])
def test_grad_does_not_overwrite_its_model(
    spelt: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = _model_file(tmp_path, "x")
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.onnx").symlink_to(model)
    before = model.read_bytes()
    assert cli.main(["grad", "model.onnx", "--loss", "mse", "--optimizer", "sgd", "-o", spelt]) == 2
    assert "is the model that is read" in capsys.readouterr().err
    assert model.read_bytes() == before


def test_grad_does_not_overwrite_an_artifact(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "training_model.onnx").write_bytes(b"model")
    assert cli.main(["grad", "a", "-o", "a/training_model.onnx"]) == 2
    assert "is the model that is read" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cli", "--help"],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (2, "error: cannot write: No space left on device\n")


# Bad usage


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("plaan m.onnx", "no such command 'plaan'\nhint: did you mean 'plan'?"),
        ("zzz", "no such command 'zzz'\nhint: see tofu --help"),
        ("plan m.onnx --gpu 2", "no such option '--gpu'\nhint: did you mean '--gpus'?"),
        ("plan m.onnx --zzz 2", "no such option '--zzz'\nhint: see tofu plan --help"),
        ("plan", "missing argument 'MODEL'\nhint: see tofu plan --help"),
        ("plan m.onnx", "plan: for how many GPUs?\nhint: write --gpus K, or --topology with a file or a name"),
        ("compare m.onnx", "compare: for how many GPUs?\nhint: write --gpus K, or --topology with a file or a name"),
        ("plan m.onnx --gpus 0", "invalid value for '--gpus': 0 is not in the range x>=1\nhint: see tofu plan --help"),
        ("plan m.onnx --gpus two", "invalid value for '--gpus': 'two' is not a valid integer range"),
        ("plan m.onnx n.onnx --gpus 2", "got unexpected extra argument (n.onnx)"),
        (
            "plan m.onnx --gpus 2 --inputs fre",
            "invalid value for '--inputs': 'fre' is not one of 'free', 'partitioned'",
        ),
        ("plan m.onnx --gpus 2 --inputs fre", "hint: did you mean 'free'?"),
        ("plan m.onnx --gpus 2 --pin W", "invalid value for '--pin': 'W' is not of the form TENSOR=TILING"),
        ("plan m.onnx --gpus 2 --pin =S(0)", "invalid value for '--pin': '=S(0)' is not of the form TENSOR=TILING"),
        ("plan m.onnx --gpus 2 --pin W=R --pin W=S(0)", "--pin: 'W' is given as R and as S(0)"),
        ("plan m.onnx --gpus 2 --dim b=0", "invalid value for '--dim': 'b=0': the size must be a whole number from 1"),
        ("plan m.onnx --gpus 2 --dim b=-1", "'b=-1': the size must be a whole number from 1"),
        (f"plan m.onnx --gpus 2 --dim b={'9' * 5000}", "the size must be a whole number from 1"),
        ("grad m.onnx --loss mse --optimizer adan", "'adan' is not one of 'sgd', 'momentum'"),
        ("grad m.onnx --loss nll --optimizer sgd --class-weights 1,x", "'1,x' is not a list of numbers"),
        ("grad m.onnx --loss nll --optimizer sgd --loss-scale 0", "'0' is not a finite number above zero"),
        ("grad m.onnx --loss mse --optimizer sgd --momentum 0.5", "--momentum: the optimizer 'sgd' has none"),
        ("grad m.onnx --loss mse --optimizer sgd --lr nan", "invalid value for '--lr': 'nan' is not a finite number"),
        ("grad m.onnx --loss mse --optimizer sgd --lr 0", "'0' is not a finite number above zero"),
        ("grad m.onnx --loss mse --optimizer sgd --lr inf", "'inf' is not a finite number above zero"),
        ("grad m.onnx --loss mse --optimizer sgd --lr x", "'x' is not a finite number above zero"),
        (
            "grad m.onnx --loss mse --optimizer momentum --momentum 1",
            "'1' is not a number from 0 up to, and without, 1",
        ),
        ("run --steps 0", "invalid value for '--steps': 0 is not in the range x>=1"),
        ("run --seed -1", "invalid value for '--seed': -1 is not in the range x>=0"),
    ],
)
def test_bad_usage(line: str, says: str, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert says in err
    assert not door.calls


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Usage: tofu ")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert f"Examples:\n    tofu {command} " in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tofu ")


def test_the_process_exits_with_the_code() -> None:
    done = _tofu("plaan")
    assert (done.returncode, done.stdout) == (2, "")


def test_the_strategies_of_the_command_line_are_those_of_the_search() -> None:
    from planner.commands.options import STRATEGIES
    from planner.search.methods import METHODS

    assert list(METHODS) == STRATEGIES
