"""Ops in steps, which compute a chunk while the next one's operands come (SPAA'21, section 2.2).

With n chunks an op takes L + t_X(1) + (n - 1) max(t_X, t_C) + t_C(n) where all chunks are alike: L is the latency, t_X
what a chunk's operands take to come, t_C what it computes. Where parts of the result are joined chunk by chunk, a join
goes on while the next chunk computes, and the last one after that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.artifacts.plan import OpStrategy
from planner.cost.seconds.exchange import ExchangeTime
from planner.graph.core.model import Op


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The exchanges of an op in steps."""

    arriving: tuple[tuple[str, ...], ...]
    """By chunk, names of exchanges that bring its operands."""
    joining: tuple[str, ...]
    """By chunk, the name of the exchange that would join the part that it makes."""

    @classmethod
    def of(cls, op: Op, strategy: OpStrategy) -> Pipeline:
        """The exchanges of an op; by the names that buffers have in ``planner.partition``."""
        assert strategy.steps is not None, "an op in steps"
        chunks = range(strategy.steps.count)
        slots = [(slot, name) for slot, name in enumerate(op.inputs) if name]
        arriving = tuple(tuple(f"fetch {name}@{op.name}.{slot}.{chunk}" for slot, name in slots) for chunk in chunks)
        return cls(arriving, tuple(f"fetch {op.outputs[0]}@reduced.{chunk}" for chunk in chunks))

    @property
    def names(self) -> frozenset[str]:
        """The names of all exchanges."""
        return frozenset(name for chunk in self.arriving for name in chunk).union(self.joining)

    def hidden_seconds(self, times: Mapping[str, ExchangeTime], compute_seconds: float) -> float:
        """The time of exchanges that compute hides: what these and that would take one after the other, less the above.

        Args:
            times: of exchanges, by name; those that are not there take nothing.
            compute_seconds: of all chunks together.
        """
        exchange_times = [times[name] for name in sorted(self.names) if name in times]
        latency = max((time.latency_seconds for time in exchange_times), default=0.0)
        serial = sum(time.seconds for time in exchange_times) + compute_seconds

        def flowing(name: str) -> float:
            return times[name].seconds - times[name].latency_seconds if name in times else 0.0

        come = [sum(map(flowing, names)) for names in self.arriving] + [0.0]
        join = [0.0, *map(flowing, self.joining)]
        chunk_seconds = compute_seconds / len(self.arriving)
        during = sum(max(chunk_seconds, come[chunk + 1] + join[chunk]) for chunk in range(len(self.arriving)))
        return max(0.0, serial - (latency + come[0] + during + join[-1]))
