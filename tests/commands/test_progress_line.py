"""The line that tells what a command does: on a terminal, and where there is none."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from command_line import ROOT, model_file
from fast_suite import chosen
from planner import api
from planner.commands import main as cli
from planner.commands import progress_line as lines
from planner.commands.progress_line import ProgressLine, progress_line
from planner.counted import counted, counts_told, phase, phases_told
from planner.features.zoo.models import build
from planner.graph.files.to_onnx import write_model


class Clock:
    """A clock that goes when it is told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def in_place(clock: Clock, columns: int = 60) -> tuple[ProgressLine, io.StringIO]:
    stream = io.StringIO()
    line = ProgressLine(stream, is_in_place=True, clock=clock)
    line._columns = lambda: columns  # type: ignore[method-assign]
    return line, stream


def shown(stream: io.StringIO) -> str:
    """What a terminal shows in the end of its last line."""
    screen = ""
    for part in re.split(r"(\r|\n|\x1b\[K)", stream.getvalue()):
        if part in ("\r", "\n"):
            column = 0
            screen = "" if part == "\n" else screen
        elif part == "\x1b[K":
            screen = screen[:column]
        elif part:
            screen, column = screen[:column] + part + screen[column + len(part) :], column + len(part)
    return screen


def test_on_a_terminal_the_line_is_written_again_in_its_place(clock: Clock) -> None:
    line, stream = in_place(clock)
    line("bounding all plans, round 12", cost=2_000_000, lower=1_960_000)
    assert shown(stream) == "0 s  bounding all plans, round 12  cost 2.0 MB  gap 2%"
    clock.now += 75
    line("making a program", cost=2_000_000)
    assert shown(stream) == "1:15  making a program  cost 2.0 MB"
    clock.now += 1
    line.tick()
    assert shown(stream) == "1:16  making a program  cost 2.0 MB"
    assert "\n" not in stream.getvalue()
    line.end()
    assert shown(stream) == ""
    written = stream.getvalue()
    line.tick()
    assert stream.getvalue() == written


@pytest.mark.parametrize(("lower", "says"), [(None, ""), (0, ""), (-3, ""), (500, "  gap 0%"), (400, "  gap 25.0%")])
def test_a_gap_is_told_where_a_bound_is_known(lower: int | None, says: str, clock: Clock) -> None:
    line, stream = in_place(clock)
    line("x", cost=500, lower=lower)
    assert shown(stream) == f"0 s  x  cost 500 B{says}"


@pytest.mark.parametrize(
    ("doing", "columns", "says"),
    [
        ("abcdefgh", 14, "0 s  abcdefgh"),
        ("abcdefgh", 13, "0 s  abcdef…"),
        ("層層層層", 14, "0 s  層層層層"),
        ("層層層層", 13, "0 s  層層層…"),
        ("層層層層", 12, "0 s  層層…"),
        ("\x1b[31mred\n", 40, "0 s  \\x1b[31mred\\n"),
    ],
)
def test_the_line_is_cut_to_the_terminal(doing: str, columns: int, says: str, clock: Clock) -> None:
    line, stream = in_place(clock, columns)
    line(doing)
    assert shown(stream) == says


def test_a_note_stays_above_the_line(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    line, stream = in_place(clock)
    line("step 1 of 3")
    line.note("note: weights are drawn")
    assert shown(stream) == ""
    assert capsys.readouterr().err == "note: weights are drawn\n"
    line("step 2 of 3")
    assert shown(stream) == "0 s  step 2 of 3"


def test_elsewhere_there_is_a_line_every_ten_seconds(clock: Clock) -> None:
    stream = io.StringIO()
    line = ProgressLine(stream, is_in_place=False, clock=clock)
    for second in range(35):
        clock.now = 100.0 + second
        line(f"round {second}")
        line.tick()
    assert stream.getvalue() == "10 s  round 10\n20 s  round 20\n30 s  round 30\n"
    line.end()
    assert stream.getvalue().endswith("round 30\n")


def test_phases_are_counted_with_the_time_that_the_user_gave(clock: Clock) -> None:
    line, stream = in_place(clock, 90)
    with phases_told(("reading", "searching", "writing"), line, {"searching": 300.0}):
        phase("searching")
        clock.now += 72
        line("improving a plan", cost=2_000_000)
        assert shown(stream) == "[2/3 searching] 1:12, at most 2 min left  improving a plan  cost 2.0 MB"
        phase("reading")
        phase("no phase of these")
        clock.now = 260.0
        line.tick()
        assert shown(stream) == "[2/3 searching] 2:40, at most 40 s left  improving a plan  cost 2.0 MB"
        clock.now = 301.0
        line.tick()
        assert "left" not in shown(stream)
        phase("writing")
        line.tick()
        assert shown(stream) == "[3/3 writing] 3:21"
        line("writing the plan")
        assert shown(stream) == "[3/3 writing] 3:21  writing the plan"
    line.end()
    line.tick()
    assert shown(stream) == ""


def test_a_tenth_of_counted_items_tells_when_the_others_are_done(clock: Clock) -> None:
    line, stream = in_place(clock, 90)
    told = []
    with counts_told(line):
        for _ in counted(range(100), "making programs: op", 4096):
            told.append(shown(stream))
            clock.now += 1
    assert told[10] == "10 s  making programs: op 10 of 100"
    assert told[11] == "11 s  making programs: op 11 of 100, about 90 s left"
    assert told[40] == "40 s  making programs: op 40 of 100, about 60 s left"
    assert told[98] == "1:38  making programs: op 98 of 100"
    line.count("making programs: op", 1, 100)
    assert shown(stream) == "1:40  making programs: op 1 of 100"  # of another program: nothing is known of its pace
    line.count("making programs: op", 20, 100)
    clock.now += 30
    line("joining")
    assert shown(stream) == "2:10  joining"


def test_a_plan_tells_the_phases_of_its_request_in_their_order(tmp_path: Path) -> None:
    class Listener:
        def __init__(self) -> None:
            self.phases: list[tuple[str, int, int]] = []

        def __call__(self, doing: str, *, cost: int | None = None, lower: int | None = None) -> None:
            pass

        def begin(self, phase: str, number: int, phases: int, ends_at: float | None) -> None:
            self.phases.append((phase, number, phases))

        def count(self, doing: str, done: int, items: int) -> None:
            pass

    model = tmp_path / "m.onnx"
    write_model(build("mlp-2x24", batch=36), model)

    def phases(**options: Any) -> list[str]:
        listener = Listener()
        api.plan(model, out=tmp_path / "p", force=True, models=False, progress=listener, **options)
        names, numbers, counts = zip(*listener.phases, strict=True)
        assert numbers == tuple(range(1, counts[0] + 1)), "no phase is counted that does not come"
        return list(names)

    few = ["reading", "searching", "making programs", "writing", "summary"]
    assert phases(gpus=2) == few
    assert phases(gpus=2, pin={"w1": "R"}) == [*few[:2], "pricing rules", *few[2:]]
    assert phases(gpus=2, time="1h") == [*few[:3], "searching further", *few[3:]]
    on_machine = ["comparing strategies", "searching for time", "making programs", "comparing machines"]
    assert phases(topology="p2.8xlarge", gpus=2) == [*few[:2], *on_machine, *few[3:]]


def test_a_stream_that_is_gone_is_no_error(clock: Clock) -> None:
    stream = io.StringIO()
    stream.close()
    for one in (stream, None):
        line = ProgressLine(one, is_in_place=False, clock=clock)
        clock.now += 11
        line("x")
        line.end()


def test_what_a_stream_cannot_encode_is_written_as_an_escape(clock: Clock) -> None:
    content = io.BytesIO()
    line = ProgressLine(io.TextIOWrapper(content, encoding="ascii"), is_in_place=False, clock=clock)
    clock.now += 11
    line("層")
    assert content.getvalue() == b"11 s  \\u5c64\n"


def test_a_thread_keeps_the_time(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(lines, "TICK_SECONDS", 0.01)
    ticked = threading.Event()
    with progress_line("reading") as line:
        shows = line.tick

        def tick() -> None:
            shows()
            ticked.set()

        line.tick = tick  # type: ignore[method-assign]
        assert ticked.wait(300)
    assert capsys.readouterr().err.endswith("\r\x1b[K")
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]


class Terminal:
    """A process whose stderr is a terminal, which shows what it does."""

    def __init__(self, folder: Path, *arguments: str, term: str = "xterm") -> None:
        main, other = pty.openpty()
        # Not by ``-m``: there CPython ends by the signal and not with 130 where Ctrl-C comes within an ``exec`` of a
        # text, which is how dataclasses are made while modules are imported, though ``main`` has caught the error.
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "cli.py"), *arguments],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=other,
            text=True,
            env={**os.environ, "TERM": term, "PYTHONPATH": str(ROOT)},
            preexec_fn=_heed_interrupts,
        )
        os.close(other)
        self._main = main
        self.text = ""

    def wait_for(self, *words: str) -> None:
        """Reads until one of the texts was shown."""
        while not any(word in self.text for word in words):
            assert self._read(), f"the command ended: {self.text!r}"

    def _read(self) -> bool:
        try:
            content = os.read(self._main, 4096)
        except OSError:  # nobody has the other end any more
            return False
        self.text += content.decode()
        return bool(content)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, str]:
        """Waits; the exit code and what was printed on stdout."""
        reading = threading.Thread(target=self._read_all)
        reading.start()
        out, _ = self.process.communicate(timeout=600)
        reading.join()
        return self.process.returncode, out

    def _read_all(self) -> None:
        while self._read():
            pass


def _heed_interrupts() -> None:
    """In a job in the background, as tests may be, interrupts are ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def terminal(folder: Path, *arguments: str, **options: Any) -> Iterator[Terminal]:
    there = Terminal(folder, *arguments, **options)
    try:
        yield there
    finally:
        there.process.kill()
        there.process.wait()
        assert there.process.stdout is not None
        there.process.stdout.close()
        os.close(there._main)


MODEL = str(ROOT / "tests" / "models" / "bert_step.onnx")
INFERS = "note: this graph only infers; `tofu grad` makes a training step\r\n"
THOROUGHLY = ("plan", MODEL, "--gpus", "4", "--effort", "thorough", "-o", "plan")


def test_a_command_on_a_terminal_leaves_no_line_behind(tmp_path: Path) -> None:
    with terminal(tmp_path, "plan", str(model_file(tmp_path, "x")), "--gpus", "2", "--json", "-o", "plan") as there:
        code, out = there.end()
    assert code == 0
    assert json.loads(out)["workers"] == 2
    assert there.text.endswith("\r\x1b[K")
    assert "\n" not in there.text.replace(INFERS, "")
    assert "\x1b[31m" not in there.text


def test_a_dumb_terminal_gets_no_line_of_a_short_command(tmp_path: Path) -> None:
    model = str(model_file(tmp_path, "x"))
    with terminal(tmp_path, "plan", model, "--gpus", "2", "-o", "plan", term="dumb") as there:
        code, _ = there.end()
    assert (code, there.text) == (0, INFERS)


def test_an_interrupt_before_the_first_plan_loses_nothing_that_was_there(tmp_path: Path) -> None:
    with terminal(tmp_path, *THOROUGHLY) as there:
        there.wait_for("analysing")
        there.interrupt()
        code, out = there.end()
    assert (code, out) == (130, "")
    assert there.text.endswith("\r\x1b[Kinterrupted\r\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_an_interrupt_after_the_first_plan_leaves_that_plan(tmp_path: Path) -> None:
    with terminal(tmp_path, *THOROUGHLY, "--json") as there:
        there.wait_for("for a bound", "bounding")
        there.interrupt()
        code, out = there.end()
    assert code == 0
    assert "interrupted: the best plan so far is written" in there.text
    assert json.loads(out)["stopped_by"] == "interrupt"
    assert json.loads((tmp_path / "plan" / "plan.json").read_text())["stopped_by"] == "interrupt"


def test_a_run_tells_what_it_does(tmp_path: Path) -> None:
    api.plan(model_file(tmp_path, "x"), gpus=4, out=tmp_path / "plan")
    with terminal(tmp_path, "run", "plan", "--verify") as there:
        code, out = there.end()
    assert code == 0
    assert out.splitlines()[-1].split() == ["verdict", "verified"]
    for doing in ("reading the plan", "loading worker 4 of 4", "making sessions: worker 4 of 4", "step 1 of 1"):
        assert doing in there.text


@pytest.mark.slow
def test_a_second_interrupt_ends_the_command(tmp_path: Path) -> None:
    with terminal(tmp_path, *THOROUGHLY) as there:
        there.wait_for("for a bound", "bounding")
        there.interrupt()
        there.wait_for("interrupted: ")
        there.interrupt()
        code, out = there.end()
    assert (code, out) == (130, "")
    # On a line of its own: a new one, or that of the progress, which is cleared.
    assert there.text.endswith(("\ninterrupted\r\n", "\x1b[Kinterrupted\r\n"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("moment", chosen(["analysing", "bounding"], fast=["analysing"]))
def test_a_termination_ends_the_command_at_once(moment: str, tmp_path: Path) -> None:
    with terminal(tmp_path, *THOROUGHLY) as there:
        there.wait_for(moment, "for a bound")
        there.process.send_signal(signal.SIGTERM)
        code, out = there.end()
    assert (code, out) == (143, "")
    assert not list(tmp_path.iterdir())


def test_in_a_library_an_interrupt_is_what_it_always_is(tmp_path: Path) -> None:
    """Handlers are the command line's."""
    before: Callable[..., Any] | int | None = signal.getsignal(signal.SIGINT)
    api.plan(model_file(tmp_path, "x"), gpus=2, out=tmp_path / "plan")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("place", [0, 3])
def test_quiet_and_verbose_may_stand_behind_the_command(
    place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Quiet: nothing on stderr, where the usual command has notes; verbose: a line for all that is done."""
    monkeypatch.chdir(tmp_path)
    line = ["plan", str(model_file(tmp_path, "x")), "--gpus", "2", "--force", "-o", "p"]

    def said(*flag: str) -> str:
        assert cli.main([*line[:place], *flag, *line[place:]]) == 0
        return capsys.readouterr().err

    assert said("-q") == said("--quiet") == ""
    assert "this graph only infers" in said()
    verbose = said("-v").splitlines()
    assert len(verbose) > 3
    assert any("writing the plan" in told for told in verbose)
