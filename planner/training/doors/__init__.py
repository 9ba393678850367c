"""The doors through which a training step comes in besides a forward model and a flat graph.

- ``training_info``: ONNX's own training format, in and (``write_info``) out.
- ``artifacts``: what onnxruntime-training generates.
- ``gradients``: gradient-only graphs, which get an optimizer.

Each gives the same inner form: data and state in, results and next state out. ``read.read_step`` tells them apart.
"""
