"""``tofu doctor``."""

from __future__ import annotations

import os

import click

from planner import __version__
from planner.commands.exit_codes import EXIT_DONE
from planner.installed import require_runtime, runtime_notes, versions


@click.command(short_help="Versions, and whether plans run on this machine's CPU and GPUs.")
def doctor() -> int:
    """Print versions, and try a product, a convolution and a transfer on each GPU.

    Ends with 2 if plans cannot run at all; a machine without a GPU runs them on its CPU.

    \b
    Examples:
      tofu doctor
    """
    click.echo("\n".join((f"tofu {__version__}", *versions(), *runtime_notes())))
    require_runtime()
    # Imported once ONNX Runtime is known to be there: the probe computes with it.
    from planner.runtime.engine.gpu.devices import probe_cuda

    probe = probe_cuda()
    click.echo(f"CPU: {os.cpu_count()} cores, usable")
    click.echo(f"GPUs: {probe.count} usable" if not probe.missing else f"GPUs: none usable: {probe.missing}")
    if probe.missing:
        click.echo(f"hint: {probe.hint}")
    return EXIT_DONE
