"""One device that swaps to host memory: the baseline of Tofu, section 7.1, for models that do not fit.

Ops run one by one in the graph's order. Everything lies in host memory at first; an op's inputs are brought to the
device before it runs, and room is made for them and for its outputs:

- the tensors that are taken from the device are those used least recently (Tofu names a least recently used algorithm);
- a tensor of which the host has a copy is dropped and not copied again: tensors are written once, so that all are
  read-only from then on;
- the tensors of the op that runs, and of the next one, are not swapped out, unless there is no room otherwise;
- while an op runs, the inputs of the next one are fetched, as far as there is room.

What nobody reads any more is dropped, and a next state takes the place of its state; what is on the device after a
step is there in the next. On a CPU the device is a limit on the bytes of the arrays that count as the device's, and a
swap is a copy in memory; fragmentation and the kernels' own workspaces are left out, which favours this baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from planner.errors import InfeasibleError
from planner.graph.core.model import Graph, Op, Tensor
from planner.graph.files.to_onnx import to_model
from planner.runtime.engine.core.sessions import SessionMaker, bind, carried, cores
from planner.runtime.judge.whole import require_constants


@dataclass(frozen=True, slots=True)
class SwapStep:
    """What one step did."""

    outputs: Mapping[str, np.ndarray]
    """The results and next states, wherever they are."""
    in_bytes: int
    """Copied from the host to the device."""
    out_bytes: int
    """And back."""
    peak_bytes: int
    """On the device at a time, at most."""


class Device:
    """Which tensors are on the device and on the host, and the copies between the two.

    Args:
        limit_bytes: what all tensors on the device may take.
        host: the tensors that are in host memory at first.
        copy: of an array, between the two.
    """

    def __init__(
        self, limit_bytes: int, host: Mapping[str, np.ndarray], copy: Callable[[np.ndarray], np.ndarray] = np.copy
    ) -> None:
        self.limit_bytes = limit_bytes
        self._copy = copy
        self.host = dict(host)
        self.held: dict[str, np.ndarray] = {}
        """On the device, the least recently used first."""
        self.bytes = self.peak_bytes = self.in_bytes = self.out_bytes = 0

    def make_room(self, wanted: int, kept: Collection[str]) -> bool:
        """Swaps out the least recently used tensors but for ``kept`` ones; False if there is no room even so."""
        if self.bytes + wanted <= self.limit_bytes:
            return True
        for name in tuple(self.held):
            if self.bytes + wanted <= self.limit_bytes:
                break
            if name not in kept:
                if name not in self.host:
                    self.host[name] = self._copy(self.held[name])
                    self.out_bytes += self.held[name].nbytes
                self._drop_from_device(name)
        return self.bytes + wanted <= self.limit_bytes

    def place(self, name: str, array: np.ndarray) -> None:
        """Puts a tensor on the device, for which there is room."""
        assert self.bytes + array.nbytes <= self.limit_bytes, f"no room for {name}"
        self.held[name] = array
        self.bytes += array.nbytes
        self.peak_bytes = max(self.peak_bytes, self.bytes)

    def bring(self, name: str, kept: Collection[str]) -> bool:
        """Fetches a tensor from the host, unless it is here; False if there is no room."""
        if name in self.held:
            self.held[name] = self.held.pop(name)
            return True
        if not self.make_room(self.host[name].nbytes, kept):
            return False
        self.in_bytes += self.host[name].nbytes
        self.place(name, self._copy(self.host[name]))
        return True

    def forget(self, name: str) -> None:
        """Drops a tensor that nobody reads any more."""
        self.host.pop(name, None)
        if name in self.held:
            self._drop_from_device(name)

    def rename(self, old: str, new: str) -> None:
        """A next state becomes the state."""
        for place in (self.host, self.held):
            if old in place:
                place[new] = place.pop(old)

    def value(self, name: str) -> np.ndarray:
        """A tensor, wherever it is."""
        return self.held[name] if name in self.held else self.host[name]

    def _drop_from_device(self, name: str) -> None:
        self.bytes -= self.held.pop(name).nbytes


Run: TypeAlias = Callable[[Mapping[str, np.ndarray], Mapping[str, np.ndarray]], None]
"""Of an op: from its inputs into its outputs, by name."""


class Swaps:
    """The way of a training graph's tensors to a device of limited memory and back.

    Args:
        graph: with all its constants.
        device: with what is in host memory before the first step.
        empty: an array for a tensor.

    Raises:
        InfeasibleError: an op alone needs more than the device has.
    """

    def __init__(self, graph: Graph, device: Device, empty: Callable[[Tensor], np.ndarray]) -> None:
        self._graph = graph
        self._device = device
        self._empty = empty
        states = {pair.current for pair in graph.state if pair.current != pair.following}
        self._resident = {*graph.inputs, *graph.constants} - states
        self._last = {name: number for number, op in enumerate(graph.ops) for name in op.inputs if name}
        if largest_op_bytes(graph) > device.limit_bytes:
            raise InfeasibleError(
                f"an op alone needs {largest_op_bytes(graph)} bytes, and the device has {device.limit_bytes}",
                hint="a smaller batch, or a larger device",
            )

    def run(self, number: int, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> None:
        """Computes an op of the graph; here nothing, so that only bytes are counted."""

    def step(self) -> SwapStep:
        """One training step; the next one goes on from its states."""
        graph, device = self._graph, self._device
        device.in_bytes = device.out_bytes = 0
        device.peak_bytes = device.bytes
        with ThreadPoolExecutor(1) as fetcher:
            for number, op in enumerate(graph.ops):
                mine = _tensors(op)
                following = graph.ops[number + 1] if number + 1 < len(graph.ops) else None
                soon = mine | (_tensors(following) if following is not None else set())
                inputs, outputs = self._prepare(op, mine, soon)
                fetching = fetcher.submit(self._prefetch, following, soon) if following is not None else None
                self.run(number, inputs, outputs)
                if fetching is not None:
                    fetching.result()
                for name in mine:
                    if self._is_over(name, number):
                        device.forget(name)
        outputs = {name: device.value(name) for name in graph.outputs}
        found = SwapStep(outputs, device.in_bytes, device.out_bytes, device.peak_bytes)
        for name in graph.outputs:
            if name not in self._resident and name not in {pair.following for pair in graph.state}:
                device.forget(name)
        for pair in graph.state:
            if pair.current != pair.following:
                device.forget(pair.current)
                device.rename(pair.following, pair.current)
        return found

    def _prepare(self, op: Op, mine: set[str], soon: set[str]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Brings what an op reads, and makes room for what it makes."""
        device, tensors = self._device, self._graph.tensors
        for name in dict.fromkeys(filter(None, op.inputs)):
            assert device.bring(name, soon) or device.bring(name, mine), f"no room for {name} of {op.name}"
        made = {name: self._empty(tensors[name]) for name in filter(None, op.outputs)}
        for name, array in made.items():
            assert device.make_room(array.nbytes, soon) or device.make_room(array.nbytes, mine), f"no room for {name}"
            device.place(name, array)
        return {name: device.held[name] for name in op.inputs if name}, made

    def _prefetch(self, op: Op, kept: set[str]) -> None:
        for name in dict.fromkeys(filter(None, op.inputs)):
            is_there = name in self._device.held or name in self._device.host
            if not is_there or not self._device.bring(name, kept):
                return

    def _is_over(self, name: str, number: int) -> bool:
        return name not in self._resident and name not in self._graph.outputs and self._last.get(name, number) <= number


class SwappingModel(Swaps):
    """A training graph that runs on one device of limited memory.

    Args:
        graph: with all its constants.
        values: of every input, before the first step.
        limit_bytes: what the tensors on the device may take.
        is_shared: its sessions share memory, for which the process must have made none before.

    Raises:
        InfeasibleError: an op alone needs more.
    """

    def __init__(
        self, graph: Graph, values: Mapping[str, np.ndarray], limit_bytes: int, *, is_shared: bool = False
    ) -> None:
        require_constants(graph)
        constants = {name: value for name, value in graph.constants.items() if value is not None}
        super().__init__(graph, Device(limit_bytes, {**values, **constants}), _allocated)
        self._maker = SessionMaker(cores(), is_shared=is_shared)
        self._sessions: dict[Any, Any] = {}
        self._runs = [self._session(op) for op in graph.ops]

    def run(self, number: int, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> None:
        """Computes an op of the graph."""
        self._runs[number](inputs, outputs)

    def _session(self, op: Op) -> Run:
        """A call of one op on arrays; equal ops on equal shapes share a session."""
        graph = self._graph
        read, made = (tuple(dict.fromkeys(filter(None, names))) for names in (op.inputs, op.outputs))
        short = {name: f"t{place}" for place, name in enumerate(dict.fromkeys((*read, *made)))}
        alone = replace(
            op,
            name="op",
            inputs=tuple(short.get(name, "") for name in op.inputs),
            outputs=tuple(short.get(name, "") for name in op.outputs),
        )
        tensors = {short[name]: replace(graph.tensors[name], name=short[name]) for name in short}
        key = (alone, tuple(tensors.items()))
        if key not in self._sessions:
            single = Graph(
                name=op.name,
                tensors=tensors,
                ops=(alone,),
                inputs=tuple(short[name] for name in read),
                outputs=tuple(short[name] for name in made),
                constants={},
                opset=graph.opset,
            )
            self._sessions[key] = self._maker.session(carried(to_model(single)))
        session = self._sessions[key]

        def call(inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> None:
            given, wanted = (
                {short[name]: (array, graph.tensors[name].dtype) for name, array in arrays.items()}
                for arrays in (inputs, outputs)
            )
            session.run_with_iobinding(bind(session, given, wanted))

        return call


def counted(graph: Graph, limit_bytes: int) -> SwapStep:
    """What a step copies, once what the first one leaves on the device is there; nothing is computed or allocated.

    Args:
        graph: a training graph.
        limit_bytes: what the tensors on the device may take.

    Raises:
        InfeasibleError: an op alone needs more.
    """
    host = {name: _imagined(graph.tensors[name]) for name in (*graph.inputs, *graph.constants)}
    swaps = Swaps(graph, Device(limit_bytes, host, lambda array: array), _imagined)
    swaps.step()
    return swaps.step()


def _allocated(tensor: Tensor) -> np.ndarray:
    return np.empty(tensor.shape, tensor.dtype.array_dtype)


def _imagined(tensor: Tensor) -> np.ndarray:
    """An array with the shape and the bytes of a tensor, all of whose elements are the same one."""
    return np.broadcast_to(np.zeros((), tensor.dtype.array_dtype), tensor.shape)


def largest_op_bytes(graph: Graph) -> int:
    """What the op with the largest inputs and outputs needs: no device may have less."""
    return max(sum(graph.tensors[name].size_bytes for name in _tensors(op)) for op in graph.ops)


def _tensors(op: Op) -> set[str]:
    return {name for name in (*op.inputs, *op.outputs) if name}
