"""A workers' process that does some harm when a worker comes to a segment."""

from __future__ import annotations

import os

HARM = """
import os, signal, threading, time
from planner.runtime.engine.process import child
from planner.runtime.engine.core import worker_executor as executor
from planner.artifacts.program import Segment

prepare = executor.WorkerExecutor._segment

def segment(self, step, model):
    run = prepare(self, step, model)
    if (model.program.worker, step.name) != {place}:
        return run
    def harm():
        {harm}
        return run()
    return harm

executor.WorkerExecutor._segment = segment
child.main()
"""
"""To be formatted with ``place``, a worker and the name of its segment, and ``harm``, what is done there."""


def is_gone(process_id: int) -> bool:
    """True if there is no such process, not even as a zombie."""
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return True
    return False
