"""Operators that ONNX does not define: refused with what to write, run whole, described, planned, run, verified."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from planner.commands import main as cli

MICROSOFT = "com.microsoft"
OPS = """
import numpy as np
from planner.tdl.builder import Sum, call, op

@op("SampleOp", domain="com.microsoft")
def sample_op(node, X):
    return lambda *i: call("SampleOp", X[i])

@op("CDist", domain="com.microsoft")
def squared_distance(node, A, B):
    return lambda m, n: Sum(lambda k: (A[m, k] - B[n, k]) * (A[m, k] - B[n, k]))
"""


def value(name: str, shape: list[int] | None, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def save(path: Path, nodes: list[onnx.NodeProto], *, stated: dict[str, list[int]], **domains: int) -> Path:
    """A model of x [16, 8] and y, in which only ``stated`` shapes are stated."""
    draw = np.random.default_rng(0).normal
    weights = {"w1": (8, 12), "b1": (12,), "w2": (8, 12)}
    graph = helper.make_graph(
        nodes,
        "mlp",
        [value("x", [16, 8])],
        [value("y", stated.get("y"))],
        [numpy_helper.from_array(draw(size=shape).astype(np.float32), name) for name, shape in weights.items()],
        value_info=[value(name, shape) for name, shape in stated.items() if name != "y"],
    )
    opsets = [helper.make_opsetid("", 21), *(helper.make_opsetid(name, number) for name, number in domains.items())]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
    return path


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_ops.py").write_text(OPS)
    return tmp_path


STATED = {"g": [16, 12], "z": [16, 8], "y": [16, 8]}


def distances(path: Path, stated: dict[str, list[int]] | None = None, **domains: int) -> Path:
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="fc1"),
        helper.make_node("SampleOp", ["h"], ["g"], name="copy", domain=MICROSOFT),
        helper.make_node("CDist", ["g", "w2"], ["z"], name="far", domain=MICROSOFT, metric="sqeuclidean"),
        helper.make_node("Tanh", ["z"], ["y"], name="tanh"),
    ]
    return save(path, nodes, stated=STATED if stated is None else stated, **{MICROSOFT: 1, **domains})


def done(line: str, capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    """What a command prints: its result, or what it says where it refuses."""
    assert cli.main(line.split()) == code, capsys.readouterr().err
    captured = capsys.readouterr()
    assert (captured.out == "") == (code == 2)
    return captured.out if code != 2 else captured.err


def test_all_are_refused_at_once_with_a_file_that_works(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    distances(here / "m.onnx")
    said = done("plan m.onnx --gpus 4", capsys, 2)
    assert "2 operators of the model have no description" in said
    assert "com.microsoft.SampleOp: 1 op: 'copy'" in said
    assert "com.microsoft.CDist: 1 op: 'far'" in said
    assert "--unknown-ops replicate" in said
    # The skeleton of the hint is a file that can be used as it stands.
    lines = said.partition("hint: ")[2].splitlines()
    (here / "skeleton.py").write_text("\n".join(line[4:] for line in lines if line.startswith("    ")))
    plan = json.loads(done("plan m.onnx --gpus 4 --opdefs skeleton.py -o p --json", capsys))
    assert plan["undescribed"] == []
    assert set(plan["unsplit"]) == {"copy", "far"}
    assert json.loads(done("run p --verify --json", capsys))["verified"] is True


def test_run_whole_with_what_that_costs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    distances(here / "m.onnx")
    # On so slow a device the product before them is divided, small as it is.
    slow = "--rates link=1GB/s,memory=1GB/s,compute=1GFLOP/s"
    plan = json.loads(done(f"plan m.onnx --gpus 4 --unknown-ops replicate -o p --json {slow}", capsys))
    # h, 16 x 12 floats, is made in four parts and brought to all four workers; g is there already.
    assert plan["undescribed"] == [
        {
            "name": "copy",
            "op_type": "com.microsoft.SampleOp",
            "moved_bytes": 3 * 16 * 12 * 4,
            "repeated_elements": 3 * (16 * 12 + 16 * 12),
        },
        {
            "name": "far",
            "op_type": "com.microsoft.CDist",
            "moved_bytes": 0,
            "repeated_elements": 3 * (16 * 12 + 8 * 12 + 16 * 8),
        },
    ]
    assert plan["moved_bytes"] == 3 * 16 * 12 * 4
    assert plan["described_by"] is None
    run = json.loads(done("run p --verify --json", capsys))
    assert run["verified"] is True
    assert run["moved_bytes"] == plan["moved_bytes"]
    assert run["own_precision"] == ["com.microsoft.CDist", "com.microsoft.SampleOp"]
    assert "what is not seen to be it: its operator has no description" in done("prove p", capsys, 1)
    text = " ".join(done("explain p", capsys).split())
    assert "not described, run in full type inputs gathered elements duplicated" in text
    assert "copy com.microsoft.SampleOp 2.3 kB 1,152 far com.microsoft.CDist 0 B 1,248" in text
    assert "1,152" in done("explain p copy", capsys)
    assert json.loads(done("explain p --json", capsys))["undescribed"] == plan["undescribed"]


def test_described_planned_and_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    distances(here / "m.onnx", stated={})  # the descriptions imply the shapes
    plan = json.loads(done("plan m.onnx --gpus 4 --opdefs my_ops.py -o p --json", capsys))
    assert plan["moved_bytes"] == 0
    assert plan["unsplit"] == []
    sha256 = hashlib.sha256(OPS.encode()).hexdigest()
    assert plan["described_by"] == {"name": "my_ops.py", "sha256": sha256}
    (here / "my_ops.py").rename(here / "moved.py")  # it is not needed to run
    run = json.loads(done("run p --verify --json", capsys))
    assert run["verified"] is True
    assert run["no_reference"] == ""
    assert f"my_ops.py, sha256 {sha256[:16]}" in done("explain p", capsys)
    assert "com.microsoft.CDist      m/2 m/2     m n k" in done("explain p --view all", capsys)
    (here / "moved.py").rename(here / "my_ops.py")
    assert "m=16 n=8 k=12" in done("explain p --view all", capsys)
    assert "tofu-recursion" in done("compare p", capsys)


def test_a_plan_executes_only_a_file_that_this_user_has_given(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan is data: what describes its operators is found by its digest among what was given with --opdefs."""
    distances(here / "m.onnx")
    monkeypatch.setenv("XDG_STATE_HOME", str(here / "mine"))
    done("plan m.onnx --gpus 2 --opdefs my_ops.py --no-models -o p", capsys)
    monkeypatch.setenv("XDG_STATE_HOME", str(here / "of another user"))
    said = done("build p", capsys, 2)
    assert "was made with descriptions of your own: my_ops.py, sha256" in said
    assert "hint: `tofu ops --opdefs my_ops.py` executes that file once" in said
    (here / "my_ops.py").write_text(f"{OPS}raise SystemExit('executed')\n")  # another file than that of the plan
    assert "descriptions of your own" in done("build p", capsys, 2)
    monkeypatch.setenv("XDG_STATE_HOME", str(here / "mine"))
    assert "descriptions of your own" in done("build p", capsys, 2), "it has changed since"
    (here / "elsewhere.py").write_text(OPS)
    done("ops --opdefs elsewhere.py", capsys)
    done("build p", capsys)
    assert json.loads(done("run p --verify --json", capsys))["verified"] is True


@pytest.mark.parametrize(
    "line",
    [
        "compare p",
        "profile p -o rates.yaml",
        "fit p --memory 1GiB",
        "check p --baseline costs.json --update --gpus 2",
        "explain p far",
        "explain p --view time",
        "prove p",
        "report p",
        "export p --to jax -o step.py",
        "export p --to placements -o tilings.py",
    ],
)
def test_what_needs_the_descriptions_of_a_plan_is_refused_without_them(
    here: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without its description an operator would be one that every worker executes whole: another plan's numbers."""
    distances(here / "m.onnx")
    done("plan m.onnx --topology dgx-a100 --opdefs my_ops.py -o p", capsys)
    (here / "my_ops.py").write_text("another = 'file'\n")
    said = done(line, capsys, 2)
    assert "was made with descriptions of your own: my_ops.py, sha256" in said
    assert "hint: `tofu ops --opdefs my_ops.py` executes that file once" in said


def test_what_needs_no_descriptions_of_a_plan_is_shown_without_them(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    distances(here / "m.onnx")
    done("plan m.onnx --topology dgx-a100 --opdefs my_ops.py -o p", capsys)
    (here / "my_ops.py").unlink()
    assert "the largest costs need my_ops.py: `tofu ops --opdefs my_ops.py`" in " ".join(
        done("explain p", capsys).split()
    )
    done("explain p --view memory", capsys)
    done("export p --to sharding -o annotated.onnx", capsys)


def test_a_home_that_cannot_be_written_costs_the_note_alone(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    distances(here / "m.onnx")
    (here / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(here / "file"))
    done("plan m.onnx --gpus 2 --opdefs my_ops.py -o p", capsys)
    assert json.loads(done("run p --verify --json", capsys))["verified"] is True


def test_workers_import_the_domain_at_the_models_version(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("Frob", ["x"], ["a"], name="frob", domain="mine"),
        helper.make_node("Frob", ["a"], ["y"], name="frob2", domain="mine"),
    ]
    # Two ops are one segment where little is between them.
    save(here / "m.onnx", nodes, stated={"a": [4, 2], "y": [64, 64]}, mine=3)
    done("plan m.onnx --gpus 2 --unknown-ops replicate -o p", capsys)
    for name in ("model.onnx", "worker0.onnx", "worker1.onnx"):
        model = onnx.load(here / "p" / name)
        onnx.checker.check_model(model, full_check=True)
        for proto in (model, *model.functions):
            assert {entry.domain: entry.version for entry in proto.opset_import}["mine"] == 3
    # What is between two ops of a segment is counted with its memory, though ONNX knows no shape of it.
    (function,) = onnx.load(here / "p" / "worker0.onnx").functions
    (inner,) = function.value_info
    assert [dim.dim_value for dim in inner.type.tensor_type.shape.dim] == [4, 2]
    said = done("run p", capsys, 2)
    assert "the runtime cannot execute mine.Frob" in said
    assert "--custom-ops" in said


def test_a_shape_that_nobody_states(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    distances(here / "m.onnx", stated={"z": [16, 8]})
    said = done("plan m.onnx --gpus 2 --unknown-ops replicate", capsys, 2)
    assert "'g': made by op 'copy'" in said
    assert "'z'" not in said, "its shape is stated"
    distances(here / "m.onnx", stated={"g": [16, 12]})
    said = done("plan m.onnx --gpus 2 --unknown-ops replicate", capsys, 2)
    assert "'z': made by op 'far'; nothing states the shapes of com.microsoft.CDist" in said
    assert "value_info" in said
    assert "'g'" not in said


def test_a_stated_shape_that_the_description_contradicts(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    distances(here / "m.onnx", stated={**STATED, "g": [12, 16]})
    said = done("plan m.onnx --gpus 2 --opdefs my_ops.py", capsys, 2)
    assert "op 'copy' (SampleOp): its output 'g' is [12, 16] in the model's value_info, and [16, 12] by its" in said


def test_a_domain_that_is_not_imported(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = helper.make_node("Frob", ["x"], ["y"], name="frob", domain="mine")
    save(here / "m.onnx", [node], stated={"y": [16, 8]})
    said = done("plan m.onnx --gpus 2 --unknown-ops replicate", capsys, 2)
    assert "op 'frob' (Frob): the model does not import its domain 'mine'" in said


@pytest.mark.parametrize(
    ("body", "own_precision", "said"),
    [
        ("x.copy()", ["com.microsoft.CDist"], ""),
        ("x[:1]", [], "op 'copy' (SampleOp) gives float64 [1, 12] for 'g', not float64 [16, 12]"),
        ("x + no_such_name", [], "cannot be evaluated by the function that is given for it: NameError"),
    ],
)
def test_a_reference_of_the_users(
    here: Path, capsys: pytest.CaptureFixture[str], body: str, own_precision: list[str], said: str
) -> None:
    distances(here / "m.onnx")
    with_reference = f'domain="com.microsoft", reference=lambda op, x: {body})\ndef sample_op'
    (here / "my_ops.py").write_text(OPS.replace('domain="com.microsoft")\ndef sample_op', with_reference))
    done("plan m.onnx --gpus 2 --opdefs my_ops.py -o p", capsys)
    run = json.loads(done("run p --verify --json", capsys))
    assert run["verified"] is True
    assert run["own_precision"] == own_precision
    assert (said in run["no_reference"]) if said else run["no_reference"] == ""


def test_a_reference_that_is_not_at_hand_is_missed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    distances(here / "m.onnx")
    with_reference = 'domain="com.microsoft", reference=lambda op, x: x.copy())\ndef sample_op'
    (here / "my_ops.py").write_text(OPS.replace('domain="com.microsoft")\ndef sample_op', with_reference))
    done("plan m.onnx --gpus 2 --opdefs my_ops.py -o p", capsys)
    assert cli.main("run p --verify".split()) == 0
    assert "my_ops.py" not in capsys.readouterr().err
    (here / "my_ops.py").unlink()
    assert cli.main("run p --verify".split()) == 0
    told = capsys.readouterr()
    assert "note: my_ops.py is not at hand: no reference of its operators judges; `tofu ops --opdefs my" in told.err
    assert "com.microsoft.CDist, com.microsoft.SampleOp in the model's own precision" in " ".join(told.out.split())


def test_a_wrong_reference_of_the_users_is_no_bug_of_tofus(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = helper.make_node("SampleOp", ["x"], ["y"], name="copy", domain=MICROSOFT)
    save(here / "m.onnx", [node], stated={}, **{MICROSOFT: 1})
    wrong = 'domain="com.microsoft", reference=lambda op, x: 1.01 * x)\ndef sample_op'
    (here / "my_ops.py").write_text(OPS.replace('domain="com.microsoft")\ndef sample_op', wrong))
    done("plan m.onnx --gpus 2 --opdefs my_ops.py -o p", capsys)
    error = done("run p --verify", capsys, 2)
    assert "the kernel and your reference= disagree, so that nothing can be verified: op 'copy'" in error
    assert "hint: correct reference= in your descriptions, or the kernel" in error


USERS_FAULTS = {
    "results of shapes": (
        "results=lambda node: node.input_shape(0)",
        "X[i]",
        "2: results= returns (16, 12), not (shape, dtype)",
    ),
    "results without dtypes": (
        "results=lambda node: [node.input_shape(0)]",
        "X[i]",
        "2: results= returns [(16, 12)], not",
    ),
    "results of one": (
        "results=lambda node: (node.input_shape(0), None)",
        "X[i]",
        "2: results= returns ((16, 12), None), not",
    ),
    "negative size": (
        "results=lambda node: [((16, -12), None)]",
        "X[i]",
        "2: results= returns [((16, -12), None)], not",
    ),
    "results fail": ("results=refused", "X[i]", "6: RuntimeError: my own message"),
    "results ask": (
        "results=lambda node: node.shape(0)",
        "X[i]",
        "2: AttributeError: 'NodeView' object has no attribute",
    ),
    "results ask an input": ("results=lambda node: [(node.input_shape(3), None)]", "X[i]", "2: input 3 is absent"),
    "name": ("", "X[i] * no_such_name", "4: NameError: name 'no_such_name' is not defined"),
    "name, shapes stated": ("results=same", "X[i] * no_such_name", "4: NameError: name 'no_such_name' is not defined"),
    "index": ("", "X[(i[0] * i[0], *i[1:])]", "4: the product of two index variables is not affine"),
    "extent": (
        "results=same",
        "Sum(lambda k: X[(i[0], i[1] + k)])",
        "2: how far reduction variable k runs is not known",
    ),
    "attribute": (
        "",
        'X[i] * node.attribute("gian")',
        "4: None is not a value\nhint: node.attribute(name) is None where the op lacks it; it has ['gain']",
    ),
    "local": ("local=lambda node, part: no_such_name", "X[i]", "2: NameError: name 'no_such_name' is not defined"),
    "always local": ("local=same, always_local=lambda node: 1 / 0", "X[i]", "2: ZeroDivisionError: division by zero"),
}


@pytest.mark.parametrize(("option", "body", "said"), USERS_FAULTS.values(), ids=USERS_FAULTS)
def test_a_fault_of_a_users_description_names_its_line(
    here: Path, capsys: pytest.CaptureFixture[str], option: str, body: str, said: str
) -> None:
    (here / "wrong.py").write_text(
        "from planner.tdl.builder import Sum, op; same = lambda node: [(node.input_shape(0), node.input_dtype(0))]\n"
        f'@op("SampleOp", domain="com.microsoft", {option.replace("refused", "lambda node: refused(node)")})\n'
        "def sample_op(node, X):\n"
        f"    return lambda *i: {body}\n"
        "def refused(node):\n"
        '    raise RuntimeError("my own message")\n'
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="fc1"),
        helper.make_node("SampleOp", ["h"], ["y"], name="copy", domain=MICROSOFT, gain=2.0),
    ]
    save(here / "m.onnx", nodes, stated={}, **{MICROSOFT: 1})
    error = done("plan m.onnx --gpus 2 --opdefs wrong.py -o p", capsys, 2)
    assert f"error: description of SampleOp (op copy), {here / 'wrong.py'}:{said}" in error


def test_a_local_function_of_another_domain_needs_no_description(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """
    <ir_version: 10, opset_import: ["" : 21, "mine" : 1]>
    g (float[16, 8] x) => (float[16, 8] y) { a = mine.Twice(x)  y = mine.Twice(a) }
    <domain: "mine", opset_import: ["" : 21]> Twice (x) => (y) { y = Add(x, x) }
    """
    (here / "m.onnx").write_bytes(parser.parse_model(text).SerializeToString())
    done("plan m.onnx --gpus 2 -o p", capsys)
    assert json.loads(done("run p --verify --json", capsys))["verified"] is True
    done("plan m.onnx --gpus 2 --opdefs my_ops.py -o q", capsys)
    (here / "my_ops.py").write_text(OPS.replace('"SampleOp", domain="com.microsoft"', '"Twice", domain="mine"'))
    said = done("plan m.onnx --gpus 2 --opdefs my_ops.py", capsys, 2)
    assert "mine.Twice is read as other operators, those of its function in the model, so that its des" in said


@pytest.mark.parametrize("stated", [{}, {"h": [16, 12], "a": [16, 12]}])
def test_a_gradient_needs_the_body_of_an_operator(
    here: Path, stated: dict[str, list[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    """No option helps, so that none is asked for: neither --train nor --freeze for the constant that only far reads."""
    nodes = [
        helper.make_node("MatMul", ["x", "k"], ["h"], name="first"),
        helper.make_node("CDist", ["h", "w1"], ["a"], name="far", domain="mine"),
        helper.make_node("Neg", ["a"], ["y"], name="last"),
    ]
    save(here / "m.onnx", nodes, stated=stated, mine=1)
    model = onnx.load(here / "m.onnx")
    kernel = np.random.default_rng(0).normal(size=(8, 12)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(kernel, "k"))
    onnx.save(model, here / "m.onnx")
    said = done("grad m.onnx --loss mse --optimizer sgd", capsys, 2)
    assert "op 'far'" in said
    assert "a gradient needs the operator's body, as a function of the model; no description gives one" in said


FLOW = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[8,16] x, float[16,16] w, bool c) => (float[8,16] y) {
  h = MatMul(x, w)
  r = Relu(h)
  b = If (c) <then_branch = tb () => (float[8,16] t) { k = Add(h, r) t = Tanh(k) },
              else_branch = eb () => (float[8,16] e) { k = Mul(r, h) e = Neg(k) }>
  n = Constant <value = int64 {3}> ()
  l = Loop (n, c, b) <body = lb (int64 i, bool ci, float[8,16] a) => (bool co, float[8,16] a2) {
        co = Identity(ci)  s = Add(a, h)  q = MatMul(s, w)  a2 = Tanh(q) }>
  ax = Constant <value = int64[1] {0}> ()
  z = ReduceSum <keepdims = 0> (l, ax)
  fin, scans = Scan <num_scan_inputs = 1, body = sb (float[16] st, float[16] row) => (float[16] st2, float[16] o) {
        st2 = Add(st, row)  o = Tanh(st2) }> (z, l)
  y = Add(scans, l)
}
"""


def flow(path: Path, text: str = FLOW) -> Path:
    model = parser.parse_model(text)
    model.graph.value_info.append(value("l", [8, 16]))  # ONNX does not infer what a Loop ends with
    path.write_bytes(model.SerializeToString())
    return path


def test_control_flow_is_run_whole(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flow(here / "m.onnx")
    said = done("plan m.onnx --gpus 4", capsys, 2)
    assert "2 operators of the model have no description" in said
    assert "Loop: 1 op: 'Loop.l' (control flow" in said
    assert "my_ops.py" not in said, "nobody can describe them"
    plan = json.loads(done("plan m.onnx --gpus 4 --unknown-ops replicate -o p --json", capsys))
    # The Scan goes over as many rows as there are: it is its rounds.
    assert [op["op_type"] for op in plan["undescribed"]] == ["If", "Loop"]
    onnx.checker.check_model(onnx.load(here / "p" / "worker0.onnx"))
    run = json.loads(done("run p --verify --json", capsys))
    assert run["verified"] is True
    assert run["moved_bytes"] == plan["moved_bytes"]


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ("k = RandomNormalLike(h) t = Tanh(k)", "draws random numbers (RandomNormalLike)"),
        ("s = SequenceConstruct(h)  p = Constant <value = int64 {0}> ()  t = SequenceAt(s, p)", ""),
    ],
)
def test_control_flow_that_would_differ_between_workers(
    here: Path, capsys: pytest.CaptureFixture[str], new: str, said: str
) -> None:
    flow(here / "m.onnx", FLOW.replace("k = Add(h, r) t = Tanh(k)", new))
    printed = done("plan m.onnx --gpus 2 --unknown-ops replicate -o p", capsys, 2 if said else 0)
    assert said in printed


def test_what_has_no_static_shape_or_no_tensors_stays_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[16] x, bool[16] c) => (float[16] y) { k = Compress(x, c)  s = ReduceSum(k)  y = Add(x, s) }
    """
    model = parser.parse_model(text)
    model.graph.value_info.append(value("k", [7]))  # a promise that the data may break
    (here / "m.onnx").write_bytes(model.SerializeToString())
    said = done("plan m.onnx --gpus 2", capsys, 2)
    assert "Compress: 1 op: 'Compress.k' (the shape of its result depends on the data" in said
    said = done("plan m.onnx --gpus 2 --unknown-ops replicate", capsys, 2)
    assert "'k': depends on data that is known only at run time (Compress 'Compress.k')" in said
    sequence = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[4] x, int64 p) => (float[4] y) { s = SequenceConstruct(x)  y = SequenceAt(s, p) }
    """
    (here / "s.onnx").write_bytes(parser.parse_model(sequence).SerializeToString())
    said = done("plan s.onnx --gpus 2 --unknown-ops replicate", capsys, 2)
    assert "op 'SequenceAt.y' (SequenceAt): its position in a sequence is known only at run time" in said
    assert "--value p=NUMBER" in said


def test_forms_and_undescribed_operators_are_told_together(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("Frob", ["x"], ["a"], name="frob", domain="mine"),
        helper.make_node("SequenceConstruct", ["a"], ["s"], name="seq"),
        helper.make_node("Optional", ["s"], ["o"], name="perhaps"),
        helper.make_node("OptionalGetElement", ["o"], ["t"], name="taken"),
        helper.make_node("SequenceLength", ["t"], ["y"], name="len"),
    ]
    save(here / "m.onnx", nodes, stated={}, mine=1)
    said = done("plan m.onnx --gpus 2", capsys, 2)
    assert "op 'perhaps' (Optional): sequences" in said
    assert "op 'seq' (SequenceConstruct): sequences" in said
    assert "op 'frob' (Frob): operator mine.Frob has no description" in said


def test_libraries_that_cannot_be_loaded(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    distances(here / "m.onnx")
    done("plan m.onnx --gpus 2 --opdefs my_ops.py -o p", capsys)
    assert "absent.so: no such file" in done("run p --custom-ops absent.so", capsys, 2)
    assert "my_ops.py: the runtime cannot load it" in done("run p --custom-ops my_ops.py", capsys, 2)


def test_a_library_of_custom_operators(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    extensions = pytest.importorskip("onnxruntime_extensions", reason="onnxruntime-extensions is not installed")
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="fc1"),
        helper.make_node("MatMul", ["h", "w2t"], ["q"], name="fc2"),
        helper.make_node("Inverse", ["square"], ["i"], name="inverse", domain="ai.onnx.contrib"),
        helper.make_node("MatMul", ["q", "i"], ["y"], name="fc3"),
    ]
    nodes.insert(1, helper.make_node("Transpose", ["w2"], ["w2t"], name="turn", perm=[1, 0]))
    nodes.insert(3, helper.make_node("MatMul", ["w2", "w2t"], ["square"], name="square"))
    save(here / "m.onnx", nodes, stated={"i": [8, 8], "y": [16, 8]}, **{"ai.onnx.contrib": 1})
    done("plan m.onnx --gpus 2 --unknown-ops replicate -o p", capsys)
    assert "ai.onnx.contrib.Inverse" in done("run p", capsys, 2)
    library = extensions.get_library_path()
    assert json.loads(done(f"run p --verify --json --custom-ops {library}", capsys))["verified"] is True


def test_a_difference_tells_the_excess_of_ops_by_the_file_that_describes_them(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    distances(here / "m.onnx")
    done("plan m.onnx --gpus 2 --opdefs my_ops.py -o two", capsys)
    done("plan m.onnx --gpus 4 --opdefs my_ops.py -o four", capsys)
    done("plan m.onnx --gpus 4 --unknown-ops replicate -o whole", capsys)
    known = json.loads(done("diff two four --json", capsys))
    assert sum(op["total_excess_bytes"]["added"] for op in known["ops"]) == (
        known["b"]["excess_bytes"] - known["a"]["excess_bytes"]
    )
    mixed = json.loads(done("diff whole four --json", capsys))
    assert mixed["ops"][0]["total_excess_bytes"]["added"] < 0, "what was run whole is cut"
    (here / "my_ops.py").write_text(OPS + "\n# another file\n")
    said = done("diff two four", capsys)
    assert "the penalty of ops is not told: `tofu ops --opdefs FILE` executes the descriptions once" in said
