"""The table of operators and their gradients."""

from __future__ import annotations

import json

from onnx import defs

from planner.commands import main as cli
from planner.features.ops.gradients import gradient_table

ROWS = {row.op_type: row for row in gradient_table()}


def test_every_operator_has_a_row_and_a_reason():
    assert list(ROWS) == sorted(ROWS)
    assert set(ROWS) == {schema.name for schema in defs.get_all_schemas_with_history() if schema.domain == ""}
    assert all(row.detail for row in ROWS.values())


def test_what_networks_are_made_of_has_a_gradient():
    names = (
        "Add Attention AveragePool BatchNormalization Celu Clip Col2Im Concat Conv ConvTranspose CumProd CumSum DFT "
        "DeformConv DepthToSpace Det Div Dropout Einsum Elu Expand GRU Gather GatherElements GatherND Gelu Gemm "
        "GlobalAveragePool GlobalMaxPool GridSample GroupNormalization HardSigmoid HardSwish InstanceNormalization "
        "LRN LSTM LayerNormalization LeakyRelu LogSoftmax LpNormalization LpPool MatMul Max MaxPool Mean "
        "MeanVarianceNormalization Min Mish Mul NegativeLogLikelihoodLoss PRelu Pad Pow RMSNormalization RNN ReduceL1 "
        "ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Relu Reshape Resize RoiAlign "
        "RotaryEmbedding STFT ScatterElements ScatterND Selu Shrink Sigmoid Slice Softmax SoftmaxCrossEntropyLoss "
        "Softplus Softsign SpaceToDepth Split Squeeze Sub Sum Swish Tanh TensorScatter ThresholdedRelu Tile TopK "
        "Transpose Trilu Unsqueeze Where "
    )
    assert [name for name in names.split() if not ROWS[name].passes] == []


def test_the_others_say_why():
    assert ROWS["Floor"].kind == "stops"
    assert ROWS["ArgMax"].kind == "no floats"
    assert ROWS["MaxRoiPool"].detail == "the sizes of its windows depend on data"
    assert ROWS["Loop"].detail.startswith("control flow")
    assert ROWS["HannWindow"].detail == "it reads no floats"
    assert ROWS["Attention"].kind == "body"
    assert ROWS["LSTM"].detail.startswith("i, o, f")
    assert ROWS["Upsample"].detail.startswith("as Resize")
    assert ROWS["SwiGLU"].detail.startswith("it is newer than opset 26")


def test_as_a_table_and_as_json(capsys):
    assert cli.main(["ops", "--gradients"]) == 0
    text = capsys.readouterr().out
    assert cli.main(["ops", "--gradients", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [row["op_type"] for row in printed["operators"]] == list(ROWS)
    for row in printed["operators"]:
        assert (row["kind"], row["detail"]) == (ROWS[row["op_type"]].kind, ROWS[row["op_type"]].detail)
        assert row["gradient"] == ROWS[row["op_type"]].passes
        assert row["op_type"] in text
        assert row["detail"] in text
    assert sum(printed["counts"].values()) == len(ROWS)


def test_one_operator(capsys):
    assert cli.main(["ops", "--gradients", "gridsample"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].split()[:2] == ["GridSample", "expanded"]
    assert len(lines) == 3
    assert cli.main(["ops", "--gradients", "GridSampel"]) == 2
    assert "hint: did you mean 'GridSample'?" in capsys.readouterr().err
    assert cli.main(["ops", "--gradients", "--verify"]) == 2
    assert "--gradients goes with neither --verify nor --opdefs" in capsys.readouterr().err
