"""Makes the exports in tests/models/fresh: ``python tests/tools/fresh_exports.py``, with torch and transformers.

The networks of `pytorch_networks.py`, 8 wide and never trained, as PyTorch's exporter writes them with
``optimize=False`` (NAME.onnx) and by default (NAME.optimized.onnx). Of its metadata only what the network's parameters
were called and which rule made an op is kept. Made with torch 2.13 and transformers 5.24.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import torch

from pytorch_networks import batch_of, cases

FOLDER = Path(__file__).parents[1] / "models" / "fresh"
KEPT = ("pkg.torch.export.ExportedProgram.graph_signature", "pkg.onnxscript.rewriter.rule_name")
WIDTH = 8


def main() -> None:
    """See the top of this file."""
    FOLDER.mkdir(exist_ok=True)
    for case in cases(WIDTH):
        name = case.name.partition(" ")[0].lower()
        for is_optimized in (True, False):
            given = batch_of(case, 0)[case.given][:2]
            proto = torch.onnx.export(
                case.network.train(), (given,), dynamo=True, optimize=is_optimized, verbose=False,
                input_names=[case.given], output_names=["scores"],
            ).model_proto  # fmt: skip
            del proto.graph.value_info[:], proto.metadata_props[:]
            for holder in (proto.graph, *proto.graph.node, *proto.graph.initializer):
                kept = [entry for entry in holder.metadata_props if entry.key in KEPT]
                del holder.metadata_props[:]
                holder.metadata_props.extend(kept)
            onnx.save(proto, FOLDER / f"{name}{'.optimized' if is_optimized else ''}.onnx")


if __name__ == "__main__":
    main()
