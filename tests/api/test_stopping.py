"""Searches that end before all of their work is done: what they have is a plan, and says so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fast_suite import chosen, draws
from plan_digests import MODELS, digest
from planner import api
from planner.artifacts.plan import Plan
from planner.commands import main as cli
from planner.errors import ModelError, UsageError
from planner.features.zoo.models import build
from planner.graph.files.to_onnx import write_model
from planner.results import AnotherEffort, PlanResult
from planner.stop import Stop, StoppedBy
from stopping import StopAt

MODEL = Path("m.onnx")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_model(build("mlp-2x24", batch=36), tmp_path / MODEL)
    return tmp_path


def planned(stop: Stop, out: str = "plan", model: Path = MODEL, **options: object) -> PlanResult:
    """A plan of 8 workers, thoroughly."""
    wanted = {"gpus": 8, "effort": "thorough", **options}
    return api.plan(model, out=Path(out), force=True, stop=stop, **wanted)  # type: ignore[arg-type]


def moments(counting: StopAt, count: int) -> range:
    """So many of the questions that a search has asked, the first among them."""
    return range(1, counting.asked + 1, -(-counting.asked // count))


at_moments = pytest.mark.parametrize("count", chosen([3, 12], fast=[3]))
"""A few of them, or a dozen."""


def read(folder: str = "plan") -> Plan:
    return Plan.from_json((Path(folder) / "plan.json").read_bytes())


def test_a_search_that_is_not_stopped_says_nothing_of_it() -> None:
    result = planned(Stop())
    assert "stopped_by" not in json.loads(Path("plan/plan.json").read_text())
    assert (read().stopped_by, result.left_out) == (None, ())


@at_moments
def test_wherever_a_search_is_stopped_there_is_a_plan_that_runs(count: int) -> None:
    counting = StopAt()
    whole = planned(counting)
    assert counting.asked > 10
    first = planned(Stop(), "quick", effort="quick", share="none")
    for number in moments(counting, count):
        result = planned(StopAt(number))
        plan = read()
        assert plan == result.plan
        assert plan.stopped_by == "interrupt"
        assert result.left_out
        assert whole.plan.cost <= plan.cost <= first.plan.cost
        if plan.certified_gap is not None and whole.plan.certified_gap is not None:
            assert plan.cost / (1 + plan.certified_gap) <= whole.plan.cost * (1 + 1e-9), "a bound is one of all plans"
    assert api.run(Path("plan"), verify=True).verified
    assert planned(StopAt(counting.asked + 1)).plan.stopped_by is None


@pytest.mark.parametrize("count", draws(3, 12))
@pytest.mark.parametrize("name", [pytest.param("bert_step.onnx", marks=pytest.mark.nightly), "lenet-5"])
def test_a_search_that_is_stopped_at_random_moments_has_a_plan_that_runs_verified(name: str, count: int) -> None:
    model = MODELS / name
    if not model.exists():
        model = Path("zoo.onnx")
        write_model(build(name, batch=8), model)
    counting = StopAt()
    whole = planned(counting, model=model)
    drawn = np.random.default_rng(5).integers(1, counting.asked + 1, count)
    assert len(drawn) == count
    stopped = 0
    for number in drawn.tolist():
        result = planned(StopAt(number), model=model)
        assert read() == result.plan
        if result.plan.stopped_by is None:  # the last questions are those of the summary: the plan is whole by then
            assert result.plan == whole.plan
        else:
            assert result.plan.stopped_by == "interrupt"
            stopped += 1
        outcome = api.run(Path("plan"), verify=True)
        assert outcome.verified, f"stopped at question {number} of {counting.asked}"
        assert outcome.moved_bytes == result.plan.moved_bytes
    assert stopped >= count // 2


def test_a_search_that_is_stopped_at_the_same_question_finds_the_same_plan() -> None:
    counting = StopAt()
    planned(counting)
    for number in (None, 1, counting.asked // 2):
        planned(StopAt(number), "one")
        planned(StopAt(number), "two")
        assert digest(Path("one")) == digest(Path("two"))


def test_what_ends_before_the_first_plan_ends_after_it() -> None:
    """The time may be over from the beginning: then the plan is the one that ``quick`` makes at first."""
    result = planned(StopAt(1, "time", from_the_beginning=True))
    first = planned(Stop(), "quick", effort="quick", share="none")
    assert result.plan.stopped_by == "time"
    assert result.plan.cost == first.plan.cost
    assert result.plan.certified_gap is None


def test_a_time_of_hardly_anything_leaves_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["plan", "m.onnx", "--gpus", "8", "--time", "0.001s", "-o"]
    assert cli.main([*line, "one", "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["stopped_by"] == "time"
    assert found["left_out"]
    assert found["another_effort"]["effort"] == "thorough"
    assert err == "the time is over: the best plan so far is written\n"
    assert cli.main([*line, "two"]) == 0
    out = capsys.readouterr().out
    assert "search stopped" in out
    assert "\nleft out" in out
    assert "(try --effort thorough: with more time, a bound" in " ".join(out.split())
    assert cli.main(["explain", "two"]) == 0
    assert "search stopped" in capsys.readouterr().out
    assert cli.main(["explain", "two", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stopped_by"] == "time"


def test_time_that_is_enough_is_the_work_of_thorough() -> None:
    result = api.plan(MODEL, gpus=8, time="1h", out=Path("timed"))
    assert result.plan.stopped_by is None
    planned(Stop(), "whole")
    assert digest(Path("timed")) == digest(Path("whole"))
    api.plan(MODEL, gpus=8, time="1h", effort="quick", out=Path("short"))
    planned(Stop(), "quick", effort="quick")
    assert digest(Path("short")) == digest(Path("quick"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0", "--time: '0' has no unit\nhint: write a time such as 30s, 5m or 1h"),
        ("0s", "--time: '0s' is no time at all\nhint: write a time such as 30s, 5m or 1h"),
        ("-5m", "--time: '-5m' is negative\nhint: write a time such as 30s, 5m or 1h"),
        ("5", "--time: '5' has no unit\nhint: write a time such as 30s, 5m or 1h"),
        ("5min", "--time: '5min' has the unknown unit 'min'\nhint: write a time such as 30s, 5m or 1h"),
        ("soon", "--time: 'soon' is not a time such as 30s, 5m or 1h"),
        ("nan", "--time: 'nan' is not a time such as 30s, 5m or 1h"),
    ],
)
def test_what_is_no_time_is_refused(text: str, says: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "m.onnx", "--gpus", "2", f"--time={text}"]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"error: {says}\n")
    assert [file.name for file in here.iterdir()] == ["m.onnx"]
    with pytest.raises(UsageError):
        api.plan(MODEL, gpus=2, time=text)


@at_moments
def test_a_price_that_was_not_looked_for_is_no_price(capsys: pytest.CaptureFixture[str], count: int) -> None:
    counting = StopAt()
    rules = {"gpus": 4, "pin": {"w1": "R"}, "forbid": (("x*", "R"),)}
    whole = planned(counting, **rules)
    assert all(price.is_found for price in whole.prices)
    found = set()
    for number in moments(counting, count):
        result = planned(StopAt(number), **rules)
        for price, wanted in zip(result.prices, whole.prices, strict=True):
            assert price == wanted or (price.price_bytes is None and not price.is_found)
            told = f"the price of --{price.kind} {price.rule}"
            assert (told in result.left_out) == (not price.is_found)
        found.add(sum(price.is_found for price in result.prices))
    assert found >= {0, 1}
    line = ["plan", "m.onnx", "--gpus", "4", "--pin", "w1=R", "--time", "0.001s", "-o"]
    assert cli.main([*line, "one"]) == 0
    assert "not found: the search was stopped" in capsys.readouterr().out
    assert cli.main([*line, "two", "--json"]) == 0
    [price] = json.loads(capsys.readouterr().out)["prices"]
    assert price == {"pin": "w1=R", "price_bytes": None, "is_found": False}


@pytest.mark.slow
def test_with_a_limit_on_memory_the_first_plan_is_one_that_fits() -> None:
    peak = max(planned(Stop(), gpus=4, effort="quick").plan.peak_bytes)
    limit = peak * 7 // 10
    tight = {"gpus": 4, "memory": f"{limit}B", "effort": "quick"}
    counting = StopAt()
    whole = planned(counting, **tight)
    assert counting.asked > 50
    costs = set()
    stopped = 0
    for number in moments(counting, 12):
        result = planned(StopAt(number), **tight)
        assert max(result.plan.peak_bytes) <= limit
        assert read() == result.plan
        costs.add(result.plan.cost)
        if result.plan.stopped_by is None:  # the last questions are those of the summary: the plan is whole by then
            assert result.plan == whole.plan
        else:
            assert result.plan.stopped_by == "interrupt"
            left = {"cheaper plans within the limit on memory", "more sets of activations to be computed again"}
            assert (left | {"deliveries that readers share where there is memory"}) & set(result.left_out)
            stopped += 1
    assert stopped > 8
    assert min(costs) == whole.plan.cost
    timed = planned(StopAt(1, "time", from_the_beginning=True), **tight)
    assert max(timed.plan.peak_bytes) <= limit
    assert timed.plan.stopped_by == "time"


@at_moments
def test_planning_for_the_least_time_can_be_stopped(count: int) -> None:
    counting = StopAt()
    machine = {"gpus": 4, "topology": "p2.8xlarge", "effort": "normal"}
    planned(counting, **machine)
    assert counting.asked > 5
    for number in moments(counting, count):
        result = planned(StopAt(number), **machine)
        assert read() == result.plan
        assert result.left_out
        assert result.plan.estimate is not None
    assert api.run(Path("plan"), verify=True).verified


@pytest.mark.parametrize("topology", chosen(["p2.8xlarge", "dgx-h100"], fast=["p2.8xlarge"]))
def test_with_a_time_a_plan_is_no_dearer_than_the_default(topology: str) -> None:
    """The time is over while the first bound is made, which the default on a machine does not make."""
    stop = StopWhenDue()

    def see(doing: str, **_: object) -> None:
        stop.is_over = stop.is_over or "for a bound" in doing

    machine = {"gpus": 4, "topology": topology, "effort": None, "models": False}
    default = planned(Stop(), "default", **machine).plan.estimate
    timed = planned(stop, time="1h", progress=see, **machine)
    assert timed.plan.stopped_by == "time"
    assert default is not None
    assert timed.plan.estimate is not None
    assert timed.plan.estimate.estimated_seconds <= default.estimated_seconds


class StopWhenDue(Stop):
    """Ends a search when it is told to."""

    is_over = False

    def reason(self) -> StoppedBy | None:
        """See ``Stop.reason``."""
        return "time" if self.is_over else None


def test_on_a_machine_the_next_effort_is_one_that_searches_otherwise() -> None:
    for effort in ("quick", "normal"):  # both search for the least time without a bound
        another = planned(Stop(), gpus=4, topology="p2.8xlarge", effort=effort).another_effort
        assert another == AnotherEffort("thorough", "a lower bound and further starts")
    another = planned(Stop(), gpus=4, topology="p2.8xlarge", effort="quick", objective="bytes").another_effort
    assert another is not None
    assert another.effort == "normal"


def test_another_effort_is_told_with_what_it_tries(capsys: pytest.CaptureFixture[str]) -> None:
    def last(*line: str) -> str:
        assert cli.main(["plan", "m.onnx", "--force", "-o", "plan", *line]) == 0
        text = " ".join(capsys.readouterr().out.split())
        return text.partition("optimality gap ")[2].partition(" load imbalance")[0]

    assert last("--gpus", "8", "--effort", "thorough") == "0% (optimal)"
    assert last("--gpus", "8") == "0% (optimal; more effort can only share transfers)"
    assert last("--gpus", "8", "--share", "none") == "0% (optimal)"
    assert last("--gpus", "8", "--effort", "quick").startswith("not computed (try --effort normal: a lower bound and ")
    assert "effort" not in last("--gpus", "4", "--strategy", "data")
    assert cli.main(["plan", "m.onnx", "--gpus", "8", "--effort", "quick", "--json", "-o", "two"]) == 0
    another = json.loads(capsys.readouterr().out)["another_effort"]
    assert another == {"effort": "normal", "tries": "a lower bound and further starts"}


def test_a_plan_that_was_stopped_by_something_else_is_refused() -> None:
    planned(StopAt(1))
    text = Path("plan/plan.json").read_text()
    assert Plan.from_json(text).to_json() == text
    with pytest.raises(ModelError, match="neither time nor interrupt"):
        Plan.from_json(text.replace('"stopped_by": "interrupt"', '"stopped_by": "boredom"'))
