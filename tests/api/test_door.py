"""``import planner``: cheap, typed, and with the command line's options and defaults."""

from __future__ import annotations

import inspect
import io
import itertools
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import click
import numpy as np
import onnx
import pytest

import planner
from all_commands import all_commands
from command_line import ROOT, model_file, take_as_there
from planner import api
from planner.api.arguments import checked
from planner.commands import main as cli
from planner.errors import UsageError

LINES = {
    "grad": "grad m.onnx --loss mse --optimizer sgd",
    "plan": "plan m.onnx --gpus 2",
    "build": "build",
    "prove": "prove",
    "explain": "explain",
    "report": "report -o page.html",
    "export": "export --to jax -o step.py",
    "diff": "diff a b",
    "run": "run",
    "compare": "compare m.onnx --gpus 2",
    "fit": "fit m.onnx --memory 1GiB",
    "check": "check m.onnx --gpus 2 --baseline b.json",
    "profile": "profile m.onnx",
    "zoo": "zoo alexnet",
}
NO_DOOR = {
    "checkpoint": "two commands: planner.api.checkpoints and planner.api.export_checkpoint",
    "ops": "a table of operators and their verification: planner.features.ops.run",
    "schema": "prints a file that is data of the package",
    "doctor": "prints what the command line finds on a machine",
}
"""Commands without a function, and why."""
COMMAND_LINE_ONLY = {
    "json_wanted": "planner.as_json(result)",
    "markdown_wanted": "a form in which the command prints",
    "shows_all": "the result has all of them",
    "log_every": "on_step is told of every one",
    "is_opened": "the page is written, and Python has webbrowser",
}
SAID_OTHERWISE: dict[str, tuple[set[str], set[str]]] = {
    "explain": ({"view", "worker"}, {"every", "role", "op", "bounds", "runners_up"}),
    "export": ({"to", "output"}, {"jax", "placements", "sharding"}),
    "grad": (set(), {"form", "decay_factor"}),
    "report": ({"files"}, {"output", "svg", "trace"}),
    "run": ({"files"}, {"result", "export", "log", "random_weights", "device_map"}),
}
"""By command, options of the command line, and parameters of Python that say the same, or that Python alone has."""
PYTHON_ONLY = {
    "progress": "the command's line on a terminal",
    "notice": "the command's lines on stderr",
    "stop": "Ctrl-C",
    "on_step": "the command's line for a step",
    "note": "what mpiexec's ranks write for the one that watches",
}
OTHER_DEFAULTS = {("zoo", "name"): "without a name the command lists the models: zoo_models()"}
"""Parameters that only one of the two demands."""


def parameters_of(command: str) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(getattr(api, command)).parameters)


class CalledError(planner.TofuError):
    """Ends a command where it calls its function."""


def called(line: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments that a command line gives to its function."""
    command, found = line.split()[0], {}
    signature = inspect.signature(getattr(api, command))

    def note(*args: Any, **options: Any) -> None:
        found.update(signature.bind(*args, **options).arguments)
        raise CalledError("called")

    monkeypatch.setattr(api, command, note)
    take_as_there(monkeypatch)
    assert cli.main(line.split()) == 2
    assert found, f"{line} calls no function"
    return found


def test_every_command_has_a_function_or_a_reason() -> None:
    assert set(all_commands()) == set(LINES) | set(NO_DOOR), "add it to planner.api and here, or say why not"
    assert all(callable(getattr(api, command)) for command in LINES)


@pytest.mark.parametrize("command", LINES)
def test_options_have_the_same_names(command: str) -> None:
    options = {one.name for one in all_commands()[command].params}
    of_line, of_python = SAID_OTHERWISE.get(command, (set(), set()))
    assert options >= of_line
    assert set(parameters_of(command)) >= of_python
    wanted = set(parameters_of(command)) - set(PYTHON_ONLY) - of_python
    assert options - of_line - set(COMMAND_LINE_ONLY) == wanted


@pytest.mark.parametrize("command", LINES)
def test_options_have_the_same_defaults(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = parameters_of(command)  # before the function is replaced
    given = called(LINES[command], monkeypatch)
    of_line, of_python = SAID_OTHERWISE.get(command, (set(), set()))
    demanded = {str(one.name) for one in all_commands()[command].params if one.required} - of_line
    wanted = {name for name, one in parameters.items() if one.default is inspect.Parameter.empty}
    assert demanded ^ wanted == {name for where, name in OTHER_DEFAULTS if where == command}
    said = {word.lstrip("-").replace("-", "_") for word in LINES[command].split() if word.startswith("--")}
    others = {
        name: value
        for name, value in given.items()
        if name not in {*wanted, *said, *PYTHON_ONLY, *of_python} and value not in ({}, ())
    }
    assert others == {name: parameters[name].default for name in others}
    empty = [name for name, value in given.items() if value in ({}, ())]
    assert all(not parameters[name].default for name in empty)


@pytest.mark.parametrize("command", LINES)
def test_choices_are_the_same(command: str) -> None:
    parameters = inspect.signature(getattr(api, command), eval_str=True, locals={"Path": str, "Model": str}).parameters
    choices = {
        str(one.name): set(one.type.choices)
        for one in all_commands()[command].params
        if isinstance(one.type, click.Choice) and one.name not in SAID_OTHERWISE.get(command, ((), ()))[0]
    }
    kinds = {name: parameters[name].annotation for name in choices}
    stated = {name: _choices(kind) for name, kind in kinds.items()}
    of_texts = {name for name, found in stated.items() if not found}
    assert of_texts <= {"strategy", "optimizer"}, "the search, the optimizers and the model say which there are"
    assert {name: one for name, one in choices.items() if name not in of_texts} == {
        name: one for name, one in stated.items() if one
    }


def _choices(kind: Any) -> set[str]:
    found = {one for one in getattr(kind, "__args__", ()) if isinstance(one, str)}
    return found.union(*(_choices(one) for one in getattr(kind, "__args__", ()) if not isinstance(one, str)))


def test_import_is_cheap() -> None:
    program = "import sys, planner; print([name for name in sys.modules if name.split('.')[0] in sys.argv[1:]])"
    heavy = ("onnx", "onnxruntime", "numpy", "rich", "yaml", "google", "click")
    done = subprocess.run(
        [sys.executable, "-c", program, *heavy], cwd=ROOT, text=True, capture_output=True, timeout=300
    )
    assert done.stdout == "[]\n", done.stderr


def test_every_name_is_there_and_documented() -> None:
    assert set(planner.__all__) == {*api.__all__, "TofuError"}
    assert set(planner.__all__) <= set(dir(planner))
    assert all(getattr(planner, name) is getattr(api, name) for name in api.__all__)
    lacking = [name for name in api.__all__ if "Example:" not in (inspect.getdoc(getattr(api, name)) or "")]
    assert not lacking
    with pytest.raises(AttributeError, match="has no attribute 'plaan'"):
        planner.plaan  # noqa: B018


def test_what_the_pages_name_is_there_after_a_plain_import() -> None:
    program = "import planner; print(planner.errors.UsageError.__name__, planner.api.report.__name__)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, text=True, capture_output=True, timeout=300)
    assert done.stdout == "UsageError report\n", done.stderr


def test_functions_of_features_are_called_from_planner(tmp_path: Path) -> None:
    made = planner.plan(model_file(tmp_path, "x"), gpus=2, out=tmp_path / "plan")
    assert planner.report(made.directory, svg=tmp_path / "strip.svg").svg == tmp_path / "strip.svg"
    assert planner.export(made.directory, jax=tmp_path / "step.py")
    assert planner.zoo("mlp-5x300", output=tmp_path / "mlp.onnx")
    assert {"strip.svg", "step.py", "mlp.onnx"} <= {path.name for path in tmp_path.iterdir()}


def test_a_model_in_memory_is_planned_as_its_file(tmp_path: Path) -> None:
    file = model_file(tmp_path, "x")
    model = onnx.load(file)
    there = planner.plan(file, gpus=2, out=tmp_path / "a").plan
    made = planner.plan(model, gpus=2, out=tmp_path / "b")
    assert made.plan.tilings == there.tilings
    assert made.plan.model_digest == there.model_digest
    assert planner.run(tmp_path / "b", verify=True).verified


def test_a_model_in_memory_whose_data_are_elsewhere_is_refused(tmp_path: Path) -> None:
    model = onnx.load(model_file(tmp_path, "x"))
    weight = onnx.numpy_helper.from_array(np.ones((2, 2), np.float32), "w")
    onnx.external_data_helper.set_external_data(weight, "w.bin")
    weight.ClearField("raw_data")
    model.graph.initializer.append(weight)
    with pytest.raises(UsageError, match="tensor 'w' of the model lies in a file beside it"):
        planner.plan(model, gpus=2, out=tmp_path / "plan")


def test_results_are_short_to_look_at(tmp_path: Path) -> None:
    result = planner.plan(model_file(tmp_path, "x"), gpus=2, out=tmp_path / "plan")
    many = replace(result.plan, tilings={f"t{number}": tiling for number in range(1000) for tiling in ["R"]})
    assert "tilings=<1,000 entries>" in repr(many)
    assert "moved_bytes=" in repr(many)
    assert len(repr(many)) < 2000
    assert "plan=<Plan>" in repr(result)
    assert "<td style='text-align:left'>&lt;1,000 entries&gt;</td>" in many._repr_html_()


def test_arrays_are_given_in_place_of_files(tmp_path: Path) -> None:
    folder = planner.plan(model_file(tmp_path, "x"), gpus=2, out=tmp_path / "plan").directory
    batches = [np.full((4, 6), number, np.float32) for number in (-1, 2, 3)]
    ran = planner.run(folder, inputs={"x": batches[1]}, verify=True)
    assert ran.verified
    np.testing.assert_array_equal(ran.results["y"], batches[1])
    seen: list[int] = []
    ran = planner.run(folder, inputs=({"x": batch} for batch in batches), on_step=lambda step: seen.append(step.step))
    np.testing.assert_array_equal(ran.results["y"], batches[2])
    assert seen == [1, 2, 3]
    endless = ({"x": batch} for batch in itertools.cycle(batches))
    np.testing.assert_array_equal(planner.run(folder, inputs=endless, steps=2).results["y"], batches[1])


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        (7, "run: inputs is 7\nhint: give a text or a path or a mapping"),
        ([], "inputs: there is no step"),
        ([np.ones(3)], "inputs: step 1: is a ndarray"),
    ],
)
def test_inputs_that_are_none_are_refused(inputs: Any, says: str, tmp_path: Path) -> None:
    folder = planner.plan(model_file(tmp_path, "x"), gpus=2, out=tmp_path / "plan").directory
    with pytest.raises(UsageError) as raised:
        planner.run(folder, inputs=inputs)
    assert str(raised.value).startswith(says)


@pytest.mark.slow
def test_types_are_told_to_checkers(tmp_path: Path) -> None:
    file = tmp_path / "user.py"
    file.write_text(
        "import planner\n"
        "reveal_type(planner.plan('m.onnx', gpus=4).plan.moved_bytes)\n"
        "planner.plan('m.onnx', gpu=4)\n"
        "planner.run('plan', engine='threads')\n"
    )
    line = [sys.executable, "-m", "mypy", "--no-incremental", "--config-file", str(ROOT / "pyproject.toml"), str(file)]
    done = subprocess.run(line, cwd=ROOT, text=True, capture_output=True, timeout=300)
    assert 'Revealed type is "builtins.int"' in done.stdout or 'Revealed type is "int"' in done.stdout, done.stdout
    assert 'Unexpected keyword argument "gpu" for "plan"' in done.stdout
    assert 'Argument "engine" to "run" has incompatible type' in done.stdout


def test_from_a_model_to_a_verified_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With paths as texts."""
    model, folder = str(model_file(tmp_path, "x")), str(tmp_path / "plan")
    made = planner.plan(model, gpus=np.int64(2), memory=1_000_000, out=folder)
    assert made.directory == Path(folder)
    ran = planner.run(folder, verify=True)
    assert ran.verified
    explained = planner.explain(folder, subject="x")
    planner.show(explained)
    assert capsys.readouterr().out.startswith("x: data, float32")
    for result in (made, ran, explained):
        assert json.loads(json.dumps(planner.as_json(result)))["schema_version"] >= 1
        shown = io.StringIO()
        planner.show(result, shown)
        assert shown.getvalue()
    reasons = planner.why(folder, "x")
    planner.show(reasons)
    assert capsys.readouterr().out.startswith("x: data, float32")
    assert json.loads(json.dumps(planner.as_json(reasons)))["name"] == "x"


def test_the_models_of_the_zoo_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    models = planner.zoo_models()
    planner.show(models)
    assert "gpt2" in capsys.readouterr().out
    assert [family["form"] for family in planner.as_json(models)["families"]] == [row.form for row in models]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: planner.plan("m.onnx", gpus="4"), "plan: gpus is '4'\nhint: give a whole number or None"),
        (lambda: planner.plan("m.onnx", gpus=True), "plan: gpus is True"),
        (lambda: planner.plan("m.onnx", gpus=2.5), "plan: gpus is 2.5"),
        (lambda: planner.plan("m.onnx"), "for how many GPUs?"),
        (lambda: planner.plan("m.onnx", gpu=2), "plan: no such option 'gpu'\nhint: did you mean 'gpus'?"),
        (lambda: planner.run("p", zzz=2), "run: no such option 'zzz'\nhint: help(planner.api.run) tells of all"),
        (lambda: planner.show(42), "int is not what a command returns"),
        (
            lambda: planner.plan("m.onnx", gpus=2, effort="quik"),
            "plan: effort is 'quik'\n  known: normal, quick, thorough\nhint: did you mean 'quick'?",
        ),
        (lambda: planner.plan("m.onnx", gpus=2, pin={"w": 0}), "plan: pin is {'w': 0}\nhint: give a mapping from"),
        (
            lambda: planner.grad("m.onnx", train="*.weight"),
            "grad: train is '*.weight'\nhint: give a list, of each a text",
        ),
        (lambda: planner.grad("m.onnx", betas=(0.9,)), "grad: betas is (0.9,)\nhint: give a pair, of a number and a"),
        (
            lambda: planner.grad("m.onnx", loss="mse", optimizer="sgd", momentum=0.5),
            "--momentum: of momentum and nesterov, not of sgd",
        ),
        (
            lambda: planner.grad("m.onnx", loss="mse", optimizer="adamw", group=["*.bias:decay=0"]),
            "--group: decay=0, and nothing is decayed\nhint: write --weight-decay 0.01, too",
        ),
        (lambda: planner.run("plan", engine="threads"), "run: engine is 'threads'\n  known: local, mpi, processes"),
        (lambda: planner.run(7), "run: directory is 7\nhint: give a text or a path or None"),
        (lambda: planner.run("plan", progress="loud"), "run: progress is 'loud'"),
    ],
)
def test_wrong_values_are_refused(call: Any, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        call()
    assert str(raised.value).startswith(says)


@pytest.mark.parametrize("command", ["plan", "compare", "profile", "grad", "fit", "run"])
def test_what_a_function_is_annotated_with_is_its_signature(command: str) -> None:
    function = getattr(api, command)
    signature = inspect.signature(function)
    said = {name: each.annotation for name, each in signature.parameters.items()}
    assert get_type_hints(function) == {**said, "return": signature.return_annotation}


def test_a_checked_function_keeps_its_signature() -> None:
    @checked
    def paint(colour: str, *, coats: int = 1) -> str:
        """Paints."""
        return colour * coats

    assert paint("red", coats=2) == "redred"
    assert str(inspect.signature(paint)) == "(colour: 'str', *, coats: 'int' = 1) -> 'str'"
    with pytest.raises(TypeError, match="missing a required argument: 'colour'"):
        paint(coats=2)  # type: ignore[call-arg]
