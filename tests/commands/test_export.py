"""``tofu export``: what it writes, and what it refuses before anything is written."""

from __future__ import annotations

import ast
import json
from collections import Counter
from pathlib import Path

import onnx
import pytest

from planner import api
from planner.commands import main as cli


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    api.zoo("mlp-2x64", batch=8, output=folder / "mlp.onnx")
    api.plan(folder / "mlp.onnx", gpus=4, effort="quick", out=folder / "plan")
    return folder / "plan"


def test_both_files_are_python_and_the_bytes_the_plans(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step, placements = tmp_path / "step.py", tmp_path / "placements.py"
    assert cli.main(["export", str(plan), "--to", "placements", "-o", str(placements)]) == 0
    capsys.readouterr()
    assert cli.main(["export", str(plan), "--to", "jax", "-o", str(step), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["moved_bytes"] == found["predicted_bytes"] > 0
    compile(step.read_text(), "step.py", "exec")
    compile(placements.read_text(), "placements.py", "exec")
    imports = [line for line in step.read_text().splitlines() if line.startswith(("import ", "from "))]
    assert {line.split()[1].partition(".")[0] for line in imports} == {"jax"}


def test_nothing_asked_for_is_a_usage_error(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", str(plan)]) == 2
    assert "missing option '--to'" in capsys.readouterr().err


def test_a_folder_that_is_no_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", str(tmp_path), "--to", "jax", "-o", str(tmp_path / "step.py")]) == 2
    assert "holds no plan" in capsys.readouterr().err
    assert not (tmp_path / "step.py").exists()


_HARMS = ("plain", '"""\nimport os\nx = {os.getcwd()}\n#', "\\\\'; raise SystemExit #\x1b[31m<script>")


def test_names_of_a_model_are_only_names_in_what_is_written(tmp_path: Path) -> None:
    """The same plan's files have the same syntax, whatever its tensors, ops and model are called."""
    api.zoo("mlp-2x64", batch=8, output=tmp_path / "mlp.onnx")
    kinds = []
    for index, harm in enumerate(_HARMS):
        model, folder = tmp_path / f"{index}.onnx", tmp_path / str(index)
        onnx.save(_renamed(onnx.load(tmp_path / "mlp.onnx"), harm), model)
        api.plan(model, gpus=4, strategy="data", out=folder)
        api.export(folder, jax=tmp_path / "step.py", placements=tmp_path / "placements.py")
        texts = [(tmp_path / name).read_text() for name in ("step.py", "placements.py")]
        assert all(text.isascii() and text.isprintable() for whole in texts for text in whole.splitlines())
        kinds.append([Counter(type(node) for node in ast.walk(ast.parse(text))) for text in texts])
    assert kinds[0] == kinds[1] == kinds[2]


def _renamed(model: onnx.ModelProto, harm: str) -> onnx.ModelProto:
    """The harm after every name of a tensor and an op, before the model's own."""
    graph = model.graph
    graph.name = harm + graph.name
    for node in graph.node:
        node.name += harm
        node.input[:] = [name and name + harm for name in node.input]
        node.output[:] = [name and name + harm for name in node.output]
    for one in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        one.name += harm
    (state,) = (one for one in model.metadata_props if one.key == "tofu.state")
    state.value = json.dumps([[name + harm for name in pair] for pair in json.loads(state.value)])
    return model


def test_sharding_annotations_are_of_every_tensor(plan: Path, tmp_path: Path) -> None:
    annotated = tmp_path / "annotated.onnx"
    assert cli.main(["export", str(plan), "--to", "sharding", "-o", str(annotated)]) == 0
    model = onnx.load(annotated)
    tilings = api.explain(plan).plan.tilings
    sharded = {
        spec.tensor_name for node in model.graph.node for it in node.device_configurations for spec in it.sharding_spec
    }
    assert sharded
    assert sharded <= tilings.keys()
    assert cli.main(["export", str(plan), "--to", "sharding", "-o", str(tmp_path / "a.py")]) == 2
