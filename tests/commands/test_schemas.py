"""The published schemas hold of what the commands print and write, and of nothing with a member more or less."""

from __future__ import annotations

import copy
import dataclasses
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import jsonschema
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import schemas
from all_commands import all_commands
from command_line import ROOT
from planner import api
from planner.artifacts.on_gpus import CudaChanges, OnGpus
from planner.commands import main as cli
from planner.records import plain_record

TEXTS = {file: file.read_text(encoding="utf-8") for file in (ROOT / "planner").rglob("schemas/*.json")}
SCHEMAS = {file.stem: json.loads(text) for file, text in TEXTS.items()}
LINES: dict[str, tuple[str, ...]] = {
    "grad": ("grad net.onnx --loss mse --optimizer sgd --dim batch=4 --value scale=2 -o other.onnx",),
    "plan": (
        "plan train.onnx --gpus 2 -o p1",
        "plan train.onnx --topology two.yaml --profile measured.yaml -o p2 --time 1h "
        "--pin fc1.weight=S(0) --forbid fc2.weight=S(1)",
        "plan unknown.onnx --gpus 2 -o p3 --unknown-ops replicate --strategy data",
        "plan train.onnx --gpus 2 -o p4 --op-schedule stepped --no-models",
    ),
    "build": ("build plan --force",),
    "prove": ("prove plan", "prove timed"),
    "explain": (
        "explain plan",
        "explain plan h",
        "explain plan fc1",
        "explain plan --view bounds",
        "explain timed",
        "explain stepped",
    ),
    "explain-memory": ("explain plan --view memory", "explain timed --view memory --worker 1"),
    "explain-time": ("explain timed --view time",),
    "report": (
        "report plan -o plan.html",
        "report timed -o timed.svg",
        "report timed -o timed.json",
    ),
    "export": ("export plan --to jax -o step.py", "export plan --to placements -o placements.py"),
    "fit": (
        "fit train.onnx --topology two.yaml --gpus 2 -o fit.html",
        "fit plan --memory 1KiB --gpus 1 --batch 1..4",
    ),
    "diff": ("diff plan timed", "diff plan plan"),
    "run": (
        "run plan --steps 2 --verify",
        "run classes --metric accuracy --eval-inputs eval.npz",
        "run plan --lr 0.1 --measure --checkpoint-dir ck",
        "run timed --measure",
    ),
    "checkpoint-show": ("checkpoint show kept",),
    "checkpoint-export": ("checkpoint export kept -o weights.npz",),
    "check": (
        "check train.onnx --gpus 2 --baseline new.json --update",
        "check train.onnx --gpus 2 --baseline less.json",
    ),
    "profile": ("profile train.onnx --gpus 2 -o profile.yaml",),
    "zoo": ("zoo lenet-5 -o lenet.onnx",),
    "zoo-models": ("zoo",),
    "ops": ("ops",),
    "ops-operator": ("ops Relu", "ops Gelu"),
    "ops-gradients": ("ops --gradients",),
    "ops-verify": ("ops --verify Relu",),
    "compare": ("compare train.onnx --gpus 2", "compare timed"),
}
"""By schema, commands whose output it is of."""
FILES = {
    "plan-file": ("plan/plan.json", "timed/plan.json", "stepped/plan.json"),
    "manifest-file": ("plan/manifest.json", "stored/manifest.json"),
}
SLOW = {"compare", "profile", "ops"}
NOTHING = "unheard_of"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small models, a topology, and plans."""
    folder = tmp_path_factory.mktemp("schemas")
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)

    def value(name: str, *shape: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    def save(name: str, nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], domain: str = "") -> None:
        weights = [weight("fc1.weight", 8, 16), weight("fc2.weight", 16, 4)]
        graph = helper.make_graph(nodes, "net", inputs, [value("y", "batch", 4)], weights)
        opsets = [helper.make_opsetid("", 21), *([helper.make_opsetid(domain, 1)] if domain else [])]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), folder / name)

    first = helper.make_node("MatMul", ["x", "fc1.weight"], ["h"], "fc1")
    last = helper.make_node("MatMul", ["a", "fc2.weight"], ["y"], "fc2")
    act = helper.make_node("Relu", ["h"], ["a"], "act")
    scaled = helper.make_node("Mul", ["h", "scale"], ["a"], "act")
    own = helper.make_node("Mine", ["h"], ["a"], "act", domain="mine")
    save("mlp.onnx", [first, act, last], [value("x", "batch", 8)])
    save("net.onnx", [first, scaled, last], [value("x", "batch", 8), value("scale")])
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "fc1.weight"], ["h"], "fc1"), own],
        "unknown",
        [value("x", 4, 8)],
        [value("a", 4, 16)],
        [weight("fc1.weight", 8, 16)],
        value_info=[value("h", 4, 16)],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), folder / "unknown.onnx")
    (folder / "two.yaml").write_text(
        "name: two\ndevice: {memory: 1GiB, compute: {float32: 1TFLOP/s}, memory_bandwidth: 100GB/s}\n"
        "levels:\n- {name: node, ways: 2, bandwidth: 1GB/s, latency: 5us}\n"
    )
    api.grad(folder / "mlp.onnx", loss="mse", optimizer="sgd", dim={"batch": 4}, output=folder / "train.onnx")
    api.plan(folder / "train.onnx", gpus=2, out=folder / "plan")
    api.plan(folder / "train.onnx", topology=str(folder / "two.yaml"), out=folder / "timed")
    api.plan(folder / "train.onnx", gpus=2, op_schedule="stepped", out=folder / "stepped")
    external = onnx.load(folder / "mlp.onnx")
    onnx.save(external, folder / "stored.onnx", save_as_external_data=True, location="stored.bin", size_threshold=16)
    api.plan(folder / "stored.onnx", gpus=2, dim={"batch": 4}, effort="quick", out=folder / "stored")
    api.grad(
        folder / "mlp.onnx", loss="softmax_cross_entropy", optimizer="sgd", dim={"batch": 4}, output=folder / "c.onnx"
    )
    api.plan(folder / "c.onnx", gpus=2, out=folder / "classes", effort="quick")
    api.run(folder / "classes", checkpoint_dir=folder / "kept")
    np.savez(folder / "eval.npz", x=np.ones((4, 8), np.float32), labels=np.arange(4))
    api.check(str(folder / "train.onnx"), gpus=2, baseline=folder / "less.json", update=True)
    baseline = json.loads((folder / "less.json").read_text())
    (model,) = baseline["models"].values()
    (plan,) = model["plans"].values()
    plan["cost"] -= 1
    op = next(iter(plan["op_costs"]))
    plan["op_costs"][op] -= 1
    (folder / "less.json").write_text(json.dumps(baseline))
    return folder


def printed(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """What a command prints as JSON; whatever it answers, it ran."""
    monkeypatch.chdir(folder)
    if "measured.yaml" in line and not Path("measured.yaml").exists():
        api.profile("train.onnx", gpus=2, out="measured.yaml")
    code = cli.main([*line.split(), "--json"])
    out, err = capsys.readouterr()
    assert code in (0, 1), err
    return json.loads(out)


def fits(content: Any, schema: dict[str, Any]) -> bool:
    return jsonschema.Draft202012Validator(schema).is_valid(content)


def within(schema: dict[str, Any], content: Any, root: dict[str, Any]) -> dict[str, Any]:
    """The schema that is of an object, past references and alternatives."""
    if "$ref" in schema:
        return within(root["$defs"][schema["$ref"].rpartition("/")[2]], content, root)
    for one in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        if jsonschema.Draft202012Validator({**one, "$defs": root.get("$defs", {})}).is_valid(content):
            return within(one, content, root)
    return schema


def objects(content: Any, schema: dict[str, Any], root: dict[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The objects in what was printed, the first of each list, each with its schema."""
    schema = within(schema, content, root)
    if isinstance(content, list) and content:
        yield from objects(content[0], schema["items"], root)
    elif isinstance(content, dict):
        yield content, schema
        for key, value in content.items():
            inner = schema.get("properties", {}).get(key, schema["additionalProperties"])
            yield from objects(value, inner, root)


def assert_is_of(content: Any, schema: dict[str, Any]) -> int:
    """Holds an output to a schema, and to its members: with one more, or one less, it is refused.

    Returns:
        How many objects were looked at.
    """
    jsonschema.Draft202012Validator(schema).validate(content)
    content = copy.deepcopy(content)
    count = 0
    for one, its in objects(content, schema, schema):
        count += 1
        one[NOTHING] = [[]]
        assert not fits(content, schema), f"{sorted(one)} may have any member"
        del one[NOTHING]
        for key in its.get("required", ()):
            value = one.pop(key)
            assert not fits(content, schema), f"{key} may be missing from {sorted(one)}"
            one[key] = value
    assert fits(content, schema)
    return count


@pytest.mark.parametrize(
    ("name", "line"),
    [
        pytest.param(name, line, marks=[pytest.mark.slow] if name in SLOW or number else [])
        for name, lines in LINES.items()
        for number, line in enumerate(lines)
    ],
)
def test_what_a_command_prints(
    name: str, line: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert assert_is_of(printed(line, folder, monkeypatch, capsys), SCHEMAS[name]) >= 1


@pytest.mark.parametrize(("name", "file"), [(name, file) for name, files in FILES.items() for file in files])
def test_what_lies_in_a_plans_folder(name: str, file: str, folder: Path) -> None:
    assert_is_of(json.loads((folder / file).read_text()), SCHEMAS[name])


def test_a_run_on_gpus(folder: Path) -> None:
    """As it would be told; no GPU is needed to say what is known of one."""
    result = dataclasses.replace(
        api.run(folder / "plan"), on_gpus=OnGpus(CudaChanges(on_cpu=("Relu",)), ((0, 1024), (1, 1024)))
    )
    content = json.loads(json.dumps(plain_record(result)))
    assert content["on_gpus"]["changes"]["on_cpu"] == ["Relu"]
    assert_is_of(content, SCHEMAS["run"])


def test_every_command_with_json_has_a_schema_and_every_schema_is_held_to_an_output() -> None:
    commands = all_commands()
    groups = {name: one for name, one in commands.items() if isinstance(one, click.Group)}
    for name, group in groups.items():
        del commands[name]
        commands |= {f"{name} {inner}": command for inner, command in group.commands.items()}
    with_json = {name for name, command in commands.items() if any("--json" in one.opts for one in command.params)}
    schemas = {name.replace(" ", "-") for name in with_json}
    assert schemas <= set(LINES), "add its record to tests/tools/schemas.py, and lines that print it here"
    assert set(SCHEMAS) == set(LINES) | set(FILES)
    words = [line.split() for lines in LINES.values() for line in lines]
    told = {" ".join(line[: 2 if line[0] in groups else 1]) for line in words}
    assert told == with_json


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_says_all_that_there_is(name: str) -> None:
    schema = SCHEMAS[name]
    jsonschema.Draft202012Validator.check_schema(schema)
    version = schema["properties"]["schema_version"]["const"]
    assert schema["$id"] == f"urn:tofu:{name}:{version}"
    kinds = list(_parts(schema))
    assert kinds
    for one in kinds:
        if "properties" in one:
            assert one["additionalProperties"] is False
            assert set(one["required"]) <= set(one["properties"])
        else:
            assert isinstance(one["additionalProperties"], dict), "a mapping says what it holds"


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """All schemas of objects in a schema."""
    if isinstance(schema, dict):
        if "object" in str(schema.get("type", "")) and not isinstance(schema.get("type"), dict):
            yield schema
        for value in schema.values():
            yield from _parts(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _parts(value)


def test_what_several_schemas_define_is_the_same() -> None:
    found: dict[str, list[Any]] = {}
    for schema in SCHEMAS.values():
        for name, one in schema.get("$defs", {}).items():
            found.setdefault(name, []).append(one)
    shared = {name for name, several in found.items() if len(several) > 1}
    assert shared >= {"TimeEstimate", "DescriptionFile", "UndescribedOp"}
    assert all(one == several[0] for several in found.values() for one in several)


def test_schemas_are_those_of_the_records() -> None:
    assert schemas.texts() == TEXTS, "`make schemas` writes them"


def test_tofu_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema"]) == 0
    assert capsys.readouterr().out.split() == sorted(SCHEMAS)
    assert cli.main(["schema", "plan"]) == 0
    assert json.loads(capsys.readouterr().out) == SCHEMAS["plan"]
    assert cli.main(["schema", "plam"]) == 2
    assert capsys.readouterr().err == "error: there is no schema 'plam'\nhint: did you mean 'plan'?\n"


def test_schemas_are_installed() -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["planner"]
    installed = {file.stem for pattern in data for file in (ROOT / "planner").glob(pattern) if file.suffix == ".json"}
    assert installed == set(SCHEMAS)
