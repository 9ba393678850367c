"""Training graphs: a forward model becomes one step of training, in standard ONNX operators.

``build.build_training_graph`` is the door. What it emits is to be cut afterwards, so sums are written as sums: a
mean is ReduceSum and a Mul by a constant, because a partial mean cannot be added up.
"""
