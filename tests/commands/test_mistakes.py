"""Forty mistakes of the command line: each message names the user's file or option, and the next step.

The messages are in golden/mistakes.txt, as typed and printed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from planner.commands import main as cli

MISTAKES: tuple[tuple[str, str], ...] = (
    # Wrong files.
    ("plan train.onxn --gpus 2", "train.onxn"),
    ("plan notes.txt --gpus 2", "notes.txt"),
    ("plan half.onnx --gpus 2", "half.onnx"),
    ("plan model.pt --gpus 2", "model.pt"),
    ("grad train.onnx --loss mse --optimizer sgd", "training"),
    ("run paln", "paln"),
    ("run train.onnx", "train.onnx"),
    ("plan train.onnx --gpus 2 -o letters", "letters"),
    ("explain plan head.wieght", "head.wieght"),
    # Options.
    ("plna train.onnx --gpus 2", "plna"),
    ("plan train.onnx", "--gpus"),
    ("plan train.onnx --gpu 2", "--gpu"),
    ("plan train.onnx --gpus eight", "eight"),
    ("plan train.onnx --gpus 0", "--gpus"),
    ("plan train.onnx --gpus 2 --effort fast", "fast"),
    ("plan train.onnx --gpus 2 --memory 12XB", "12XB"),
    ("grad lm.onnx --loss softmax_cross_entropy --optimizer adamw --momentum 0.9", "--momentum"),
    ("grad lm.onnx --loss softmax_cross_entropy --optimizer sgd --group '*.bias:decay=0'", "--group"),
    # Shapes.
    ("grad open.onnx --loss mse --optimizer sgd", "batch"),
    ("grad open.onnx --loss mse --optimizer sgd --dim bacth=8", "bacth"),
    ("run plan --inputs few.npz", "few.npz"),
    ("run plan --inputs short.npz", "short.npz"),
    # Types and values.
    ("run plan --inputs floats.npz", "floats.npz"),
    ("run plan --inputs classes.npz", "classes.npz"),
    ("run plan --inputs tokens.npz", "tokens.npz"),
    ("run plan --inputs nothing.npz", "nothing.npz"),
    # Losses.
    ("grad lm.onnx --optimizer sgd", "--loss"),
    ("grad lm.onnx --loss crossentropy --optimizer sgd", "crossentropy"),
    ("grad lm.onnx --loss logits --optimizer sgd", "logits"),
    ("grad lm.onnx --loss output:los --optimizer sgd", "los"),
    ("grad lm.onnx --loss mse", "optimizer"),
    # Devices.
    ("plan train.onnx --topology dgx-h10", "dgx-h10"),
    ("plan train.onnx --topology dgx-h100 --gpus 16", "dgx-h100"),
    ("plan train.onnx --gpus 2 --objective time", "--objective time"),
    # Plans.
    ("plan train.onnx --gpus 2 --strategy fdsp", "fdsp"),
    ("plan train.onnx --gpus 2 --pin 'haed.weight=S(0)'", "haed.weight"),
    ("plan train.onnx --gpus 2 --pin 'head.weight=S(7)'", "head.weight"),
    ("plan train.onnx --gpus 2 --memory 1KiB", "1.0 KiB"),
    # Weights.
    ("run plan --weights other.npz", "other.npz"),
    ("run far", "far.data"),
)
"""A line, and the thing that its message names."""
_NEXT_STEP = re.compile(r"^hint: .", re.MULTILINE)


def language_model() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Gather", ["embed.weight", "ids"], ["e"]),
        helper.make_node("MatMul", ["e", "head.weight"], ["logits"]),
    ]
    rng = np.random.default_rng(0)
    weights = {"embed.weight": (16, 8), "head.weight": (8, 16)}
    graph = helper.make_graph(
        nodes,
        "lm",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [4, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [4, 8, 16])],
        [numpy_helper.from_array(rng.normal(size=s).astype(np.float32), name) for name, s in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def write_files() -> None:
    """Writes the files that the lines name into the working directory."""
    model = language_model()
    onnx.save(model, "lm.onnx")
    onnx.save(model, "far.onnx", save_as_external_data=True, location="far.data", size_threshold=0)
    open_graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "open",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
        [numpy_helper.from_array(np.ones((4, 2), np.float32), "w")],
    )
    onnx.save(helper.make_model(open_graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), "open.onnx")
    good = {"ids": np.zeros((4, 8), np.int64), "labels": np.zeros((4, 8), np.int64)}
    np.savez("few.npz", **{name: array[:3] for name, array in good.items()})
    np.savez("short.npz", **{name: array[:, :7] for name, array in good.items()})
    np.savez("floats.npz", **{name: array.astype(np.float32) for name, array in good.items()})
    np.savez("classes.npz", **good | {"labels": good["labels"] + 16})
    np.savez("tokens.npz", **good | {"ids": good["ids"] + 16})
    np.savez("other.npz", **{f"encoder.{number}.weight": np.ones(2, np.float32) for number in range(5)})
    for name in ("lm", "far"):
        train = "train" if name == "lm" else "far.train"
        assert typed(f"grad {name}.onnx --loss softmax_cross_entropy --optimizer sgd -o {train}.onnx") == 0
        assert typed(f"plan {train}.onnx --gpus 2 --effort quick -o {'plan' if name == 'lm' else 'far'}") == 0
    Path("far.data").unlink()
    Path("notes.txt").write_text("to do\n")
    Path("half.onnx").write_bytes(Path("lm.onnx").read_bytes()[:200])
    Path("model.pt").write_bytes(b"PK\x03\x04 a zip of pickles")
    Path("letters").mkdir()
    Path("letters/a.txt").write_text("dear")


def typed(line: str) -> int:
    return cli.main(shlex.split(line))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """The files, in the working directory."""
    monkeypatch.chdir(tmp_path)
    write_files()
    capsys.readouterr()
    return tmp_path


def test_forty_mistakes(here: Path, capsys: pytest.CaptureFixture[str], golden: Callable[[str, str], None]) -> None:
    assert len(MISTAKES) == len(set(MISTAKES)) == 40
    blocks, unnamed, without_step = [], [], []
    for line, thing in MISTAKES:
        code = typed(line)
        out, err = capsys.readouterr()
        assert code in (1, 2), line
        assert out == "", line
        blocks.append(f"$ tofu {line}\n{err.replace(str(here), '.')}exit {code}\n")
        if thing not in err:
            unnamed.append(line)
        if not _NEXT_STEP.search(err):
            without_step.append(line)
    golden("mistakes.txt", "\n".join(blocks))
    assert unnamed == []
    assert without_step == []
