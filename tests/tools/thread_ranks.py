"""The ranks of the engine ``mpi`` as threads of a test, over a channel that delays (``fake_channel.py``)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from fake_channel import FakeChannel, PostOffice
from planner.runtime.engine.core.interface import InProcessEngine
from planner.runtime.engine.mpi.message_engine import MakeBackend, MessageEngine
from planner.runtime.engine.mpi.world import World
from planner.runtime.plan_files import LoadedPlan
from planner.runtime.values.state import Values
from planner.runtime.values.tiles import gather_tiles

STEPS = 3
SECONDS = 300.0


def together(
    plan: LoadedPlan,
    office: PostOffice,
    work: Callable[[MessageEngine], Any],
    highest_tag: int = 32767,
    ranks: tuple[int, ...] = (),
    make_backend: MakeBackend | None = None,
) -> list[Any]:
    """Does work on every rank, each a thread with one worker; what comes of it, by rank.

    Args:
        plan: of as many workers as the office has ranks.
        office: what delivers between them.
        work: what each does with its engine.
        highest_tag: of the channels.
        ranks: of the workers; () for the same number.
        make_backend: where each worker computes; None: on the CPU.

    Raises:
        the exception of the first rank that has one.
    """
    found: list[Any] = [None] * office.size
    failures: list[BaseException] = []

    def run(channel: FakeChannel) -> None:
        try:
            with World(channel, "here", SECONDS, print) as world:
                world.meet()
                world.ranks = ranks or world.ranks
                engine = MessageEngine(
                    plan.models[world.worker],
                    plan.program.workers,
                    world,
                    plan.program.state,
                    make_backend=make_backend,
                    has_process=False,
                )
                with engine:
                    found[channel.rank] = work(engine)
        except BaseException as error:  # noqa: BLE001 -- whatever it is, the test raises it
            failures.append(error)

    channels = [FakeChannel(office, rank, highest_tag) for rank in range(office.size)]
    threads = [threading.Thread(target=run, args=(channel,), daemon=True) for channel in channels]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * SECONDS)
    if failures:
        raise failures[0]
    assert not any(thread.is_alive() for thread in threads), "ranks wait for ever"
    return found


def stepped(engine: Any, values: Values, shapes: dict[str, tuple[int, ...]]) -> tuple[dict[str, bytes], Any]:
    """The bits of all results after some steps, and the bytes that the last one moved."""
    engine.fill(values.tile)
    for step in range(STEPS):
        iteration = engine.iterate(advances=step > 0)
    return {
        name: value.tobytes() for name, value in gather_tiles(engine, list(shapes), shapes).items()
    }, iteration.moved_bytes


def shapes_of(plan: LoadedPlan) -> dict[str, tuple[int, ...]]:
    """Of all results."""
    return {name: plan.graph.tensors[name].shape for name in plan.program.outputs}


def alone(plan: LoadedPlan) -> tuple[dict[str, bytes], Any]:
    """The same in one process, over shared memory."""
    with InProcessEngine(plan.models, plan.program.state) as engine:
        return stepped(engine, Values(plan.graph), shapes_of(plan))


def apart(plan: LoadedPlan, seed: int, **more: Any) -> tuple[dict[str, bytes], Any]:
    """The same on ranks, over a channel that delays and lets overtake as the seed says; more: see ``together``."""
    office = PostOffice(len(plan.program.workers), seed)
    found = together(plan, office, lambda engine: stepped(engine, Values(plan.graph), shapes_of(plan)), **more)
    assert all(bits == {} and moved == () for bits, moved in found[1:]), "another rank than 0 holds a whole"
    assert office.arrived
    return found[0]
