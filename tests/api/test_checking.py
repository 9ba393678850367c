"""`tofu check` on files and models of the zoo: what passes, what fails, what is refused, what is written."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from planner import api
from planner.commands import main as cli
from planner.features.zoo.models import build
from planner.gate.baseline import Baseline
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import write_model

Renamed = Callable[[Graph, int], tuple[Graph, dict[str, str]]]
Reordered = Callable[[Graph, int], Graph]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(line: str) -> tuple[int, str, str]:
        code = cli.main(["check", *line.split(), "--baseline", "costs.json"])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


Check = Callable[[str], tuple[int, str, str]]


def test_a_plan_says_for_how_many_workers_it_is(check: Check) -> None:
    model("mlp-2x24", "m.onnx")
    for workers in (2, 4):
        api.plan(Path("m.onnx"), gpus=workers, effort="quick", out=Path(f"on{workers}"), models=False)
    assert check("on2 on4 --update")[0] == 0
    plans = [list(costs.plans) for costs in Baseline.from_json(Path("costs.json").read_text(), "").models.values()]
    assert plans == [[2], [4]]
    assert check("on4")[0] == 0
    code, _, err = check("m.onnx")
    assert code == 2
    assert "for how many GPUs?" in err


def model(name: str, file: str, batch: int = 40) -> Graph:
    graph = build(name, batch=batch)
    write_model(graph, Path(file))
    return graph


def test_the_same_model_passes_and_the_file_is_left_alone(check: Check, here: Path) -> None:
    model("mlp-3x100", "m.onnx")
    assert check("m.onnx --gpus 2,4 --update")[0] == 0
    before = (here / "costs.json").stat()
    code, out, err = check("m.onnx --gpus 4,2")
    assert (code, err) == (0, "")
    assert "2 plans cost no more" in out
    after = (here / "costs.json").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_renamed_and_reordered_passes_and_says_its_own_names(
    check: Check, here: Path, renamed: Renamed, reordered: Reordered
) -> None:
    graph = model("mlp-3x100", "m.onnx")
    assert check("m.onnx --gpus 2,4 --update")[0] == 0
    write_model(renamed(graph, 1)[0], here / "renamed.onnx")
    assert check("renamed.onnx --gpus 2,4")[0] == 0
    write_model(reordered(graph, 2), here / "m.onnx")
    code, out, _ = check("m.onnx --gpus 2,4 --json --max-increase 20%")  # an order may need other memory
    assert code == 0
    assert all(plan["cost"] == plan["baseline"]["cost"] for plan in json.loads(out)["plans"])


@pytest.mark.parametrize("allowed", ["", "--max-increase 1%"])
def test_one_percent_wider_fails_and_names_the_ops(allowed: str, check: Check, renamed: Renamed) -> None:
    model("mlp-3x100", "m.onnx")
    assert check("m.onnx --gpus 2,4 --update")[0] == 0
    wider, new = renamed(build("mlp-3x101", batch=40), 7)
    write_model(wider, Path("m.onnx"))
    code, out, err = check(f"m.onnx --gpus 2,4 {allowed}")
    assert (code, err) == (1, "")
    code, text, _ = check(f"m.onnx --gpus 2,4 {allowed} --json")
    found = json.loads(text)
    assert (code, found["passed"]) == (1, False)
    for plan in found["plans"]:
        assert "peak_bytes" in plan["grew"], "a weight grows along both dims"
        assert ("moved_bytes" in plan["grew"]) == (not allowed)
        assert "cost" in plan["grew"] or allowed
        growing = [op for op in plan["ops"] if op["cost"] > op["baseline_cost"]]
        assert growing
        assert sum(op["cost"] - op["baseline_cost"] for op in plan["ops"]) == plan["cost"] - plan["baseline"]["cost"]
        for op in growing:
            assert "101" in op["shapes"]
            assert "100" in op["baseline_shapes"]
            assert set(op["names"]) <= set(new.values())
            assert re.search(
                rf"^({op['names'][0]}|{re.sub('[0-9]+', '[*]', op['names'][0])} x[0-9]+)\b", out, re.MULTILINE
            )


def test_what_is_allowed_and_what_fell_passes(check: Check) -> None:
    model("mlp-3x100", "m.onnx")
    assert check("m.onnx --gpus 2 --update")[0] == 0
    model("mlp-3x101", "m.onnx")
    assert check("m.onnx --gpus 2 --max-increase 5%")[0] == 0
    model("mlp-3x96", "m.onnx")
    code, out, _ = check("m.onnx --gpus 2")
    assert code == 0
    assert "--update would hold them to it" in out
    assert check("m.onnx --gpus 2 --update")[0] == 0
    model("mlp-3x100", "m.onnx")
    assert check("m.onnx --gpus 2")[0] == 1


def test_growth_can_be_accepted(check: Check) -> None:
    model("mlp-3x100", "m.onnx")
    assert check("m.onnx --gpus 2,4 --update")[0] == 0
    model("mlp-3x120", "m.onnx")
    assert check("m.onnx --gpus 2")[0] == 1
    code, out, _ = check("m.onnx --gpus 2 --update")
    assert code == 0
    assert "written" in out
    assert check("m.onnx --gpus 2")[0] == 0
    code, _, err = check("m.onnx --gpus 4")
    assert code == 2, "what was planned at the old sizes is gone"
    assert "no plan on 4 workers; there are plans on 2" in err


def test_another_model_is_refused_and_everything_is_said_at_once(check: Check) -> None:
    model("mlp-3x100", "m.onnx")
    assert check("m.onnx lenet-5 --gpus 2 --update")[0] == 0
    model("mlp-4x100", "m.onnx")
    code, out, err = check("m.onnx alexnet lenet-5 --gpus 2,8")
    assert (code, out) == (2, "")
    assert "m.onnx: is another model than the baseline's: 12 Gemm instead of 9" not in err
    assert "m.onnx: is another model than the baseline's: 11 Gemm instead of 8, 4 Mul instead of 3, 4 Sub" in err
    assert "alexnet: the baseline has no model of this structure, it has lenet-5, m.onnx" in err
    assert "lenet-5: no plan on 8 workers; there are plans on 2" in err
    assert "hint: " in err
    assert "--update" in err


def test_sizes_that_could_be_any_of_several(check: Check) -> None:
    for width in (40, 48):
        assert check(f"mlp-2x{width} --gpus 2 --update")[0] == 0
    code, _, err = check("mlp-2x44 --gpus 2")
    assert code == 2
    assert "may be any of mlp-2x40, mlp-2x48, which differ in sizes only" in err
    model("mlp-2x48", "m.onnx", batch=512)
    assert check("m.onnx --gpus 2")[0] == 0, "the one with its sizes"


def test_an_update_keeps_what_it_was_not_asked_about(check: Check, here: Path) -> None:
    assert check("mlp-2x40 --gpus 2,4 --update")[0] == 0
    first = (here / "costs.json").read_text()
    assert check("mlp-3x40 --gpus 2 --update")[0] == 0
    assert check("mlp-2x40 --gpus 8 --update")[0] == 0
    models = Baseline.from_json((here / "costs.json").read_text(), "costs.json").models
    assert {name: sorted(entry.plans) for name, entry in models.items()} == {"mlp-2x40": [2, 4, 8], "mlp-3x40": [2]}
    (here / "costs.json").unlink()
    assert check("mlp-2x40 --gpus 2,4 --update")[0] == 0
    assert (here / "costs.json").read_text() == first, "equal costs are written alike"
    assert [file.name for file in here.iterdir()] == ["costs.json"], "nothing is left beside it"


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        (None, "mlp-2x40 --gpus 2", "baseline costs.json does not exist"),
        ("{}", "mlp-2x40 --gpus 2", "cannot be read"),
        ("{}", "mlp-2x40 --gpus 2 --update", "cannot be read"),
        ('{"schema_version": 99, "models": {}}', "mlp-2x40 --gpus 2", "schema version 99"),
        ('{"schema_version": 2, "models": {}}', "mlp-2x40 --gpus 2", "it has none"),
        (None, "mlp-2x40 mlp-2x40 --gpus 2 --update", "given twice"),
        (None, "alexnot --gpus 2 --update", "did you mean 'alexnet'?"),
        (None, "none.onnx --gpus 2 --update", "none.onnx"),
        (None, "mlp-2x40 --gpus 2 --update --max-increase 2", "write 2% or 200%"),
        (None, "mlp-2x40 --gpus 2 --update --max-increase lots", "--max-increase"),
    ],
)
def test_what_is_refused(content: str | None, line: str, said: str, check: Check, here: Path) -> None:
    if content is not None:
        (here / "costs.json").write_text(content)
    code, out, err = check(line)
    assert (code, out) == (2, "")
    assert said in err
    assert (here / "costs.json").exists() == (content is not None)
    assert content is None or (here / "costs.json").read_text() == content


def test_composites_planned_through_their_bodies_count_as_one_op(check: Check, here: Path) -> None:
    """More workers than rows: the Softmax is cut along what it normalises over."""
    assert check("gpt-1x64-2h --gpus 2 --update")[0] == 0
    text = (here / "costs.json").read_text()
    entry = Baseline.from_json(text, "costs.json").models["gpt-1x64-2h"]
    assert len(entry.ops) == len(build("gpt-1x64-2h").ops)
    assert sum(entry.plans[2].op_costs.values()) == entry.plans[2].cost >= entry.plans[2].moved_bytes
