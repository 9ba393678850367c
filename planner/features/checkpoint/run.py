"""``tofu checkpoint``: what a folder of checkpoints holds, and its weights without a run."""

from __future__ import annotations

from pathlib import Path

from planner.api.arguments import checked
from planner.features.checkpoint.checkpoints import CheckpointList, ExportedCheckpoint, list_checkpoints
from planner.features.checkpoint.checkpoints import export_checkpoint as _export
from planner.features.checkpoint.loading import Module, load
from planner.progress import Progress, silent


@checked
def checkpoints(directory: Path, *, progress: Progress = silent) -> CheckpointList:
    """Reads the checkpoints of a folder, and holds each against its digests.

    Args:
        directory: of all checkpoints of a run, or one of them.
        progress: told what is being done.

    Raises:
        UsageError: there are none.

    Example:
        ::

            for row in planner.checkpoints("ck").rows:
                print(row.number, row.problem or "whole")
    """
    progress("reading checkpoints")
    return list_checkpoints(directory)


@checked
def export_checkpoint(
    directory: Path,
    output: Path,
    *,
    number: int | None = None,
    forward: Path | None = None,
    progress: Progress = silent,
) -> ExportedCheckpoint:
    """Writes whole weights, and the rest of the state, of a checkpoint; no plan is needed and no step is run.

    Args:
        directory: of all checkpoints of a run, or one of them.
        output: ``.safetensors`` or ``.npz``, or ``.onnx`` with ``forward``.
        number: after how many steps; None: of the newest checkpoint that is whole.
        forward: the forward model that gets the weights.
        progress: told what is being done.

    Raises:
        TofuError: there is no such checkpoint, it is damaged, or the file cannot be written.

    Example:
        ::

            planner.export_checkpoint("ck", "weights.safetensors")
    """
    progress("reading checkpoints")
    return _export(directory, output, number, forward)


@checked
def load_into(module: Module, source: Path, *, forward: Path | None = None) -> tuple[str, ...]:
    """Loads trained weights into the PyTorch module that was exported.

    Optimizer states are left out. Buffers and frozen parameters (``requires_grad`` is False) that are not in the source
    stay as they are. Tied parameters need one of their names.

    Args:
        module: of PyTorch.
        source: a ``.safetensors`` or ``.npz`` file of ``tofu run -o``; or a folder of checkpoints, of which the newest
            is taken, or one of them.
        forward: the ONNX file of the module, for weights that the exporter transposed and called ``val_15``.

    Returns:
        The names that were loaded.

    Raises:
        TofuError: the source cannot be read, or names or shapes do not fit the module; all of them are listed, and
            nothing is loaded.

    Example:
        ::

            planner.load_into(network, "trained.safetensors")
    """
    return load(module, source, forward)
