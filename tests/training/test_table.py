"""The table of operators and their gradients."""

from __future__ import annotations

from planner.training.table import gradient_table

ROWS = {row.op_type: row for row in gradient_table()}


def test_every_operator_has_a_row_and_a_reason():
    assert list(ROWS) == sorted(ROWS)
    assert len(ROWS) > 170
    assert all(row.detail for row in ROWS.values())


def test_what_networks_are_made_of_has_a_gradient():
    names = (
        "Add Attention AveragePool BatchNormalization Celu Clip Concat Conv ConvTranspose CumSum DepthToSpace "
        "Div Dropout Einsum Elu Expand GRU Gather GatherElements GatherND Gelu Gemm GlobalAveragePool "
        "GlobalMaxPool GroupNormalization HardSigmoid HardSwish InstanceNormalization LRN LSTM "
        "LayerNormalization LeakyRelu LogSoftmax LpNormalization LpPool MatMul Max MaxPool Mean "
        "MeanVarianceNormalization Min Mish Mul NegativeLogLikelihoodLoss PRelu Pad Pow RMSNormalization RNN "
        "ReduceL1 ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Relu Reshape "
        "Resize RotaryEmbedding ScatterElements ScatterND Selu Shrink Sigmoid Slice Softmax "
        "SoftmaxCrossEntropyLoss Softplus Softsign SpaceToDepth Split Squeeze Sub Sum Swish Tanh "
        "ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze Where "
    )
    assert [name for name in names.split() if not ROWS[name].passes] == []


def test_the_others_say_why():
    assert ROWS["Floor"].kind == "stops"
    assert ROWS["ArgMax"].kind == "no floats"
    assert "inverse" in ROWS["Det"].detail
    assert ROWS["Attention"].kind == "body"
    assert ROWS["LSTM"].detail.startswith("i, o, f")
