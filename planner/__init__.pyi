# What `import planner` has, for type checkers; `make schemas` writes it.

from planner import api as api
from planner import errors as errors
from planner.api.building import build as build
from planner.api.checking import check as check
from planner.api.explanation import explain as explain
from planner.api.explanation import why as why
from planner.api.occupancy import memory as memory
from planner.api.planning import plan as plan
from planner.api.running import run as run
from planner.api.showing import as_json as as_json
from planner.api.showing import show as show
from planner.api.timing import simulate as simulate
from planner.api.training import grad as grad
from planner.errors import TofuError as TofuError
from planner.features.checkpoint.run import checkpoints as checkpoints
from planner.features.checkpoint.run import export_checkpoint as export_checkpoint
from planner.features.compare.run import compare as compare
from planner.features.diff.run import diff as diff
from planner.features.export.run import export as export
from planner.features.fit.run import fit as fit
from planner.features.profile.run import profile as profile
from planner.features.prove.run import prove as prove
from planner.features.report.run import report as report
from planner.features.zoo.run import zoo as zoo
from planner.features.zoo.run import zoo_models as zoo_models

__version__: str
__all__ = [
    "TofuError",
    "as_json",
    "build",
    "check",
    "checkpoints",
    "compare",
    "diff",
    "explain",
    "export",
    "export_checkpoint",
    "fit",
    "grad",
    "memory",
    "plan",
    "profile",
    "prove",
    "report",
    "run",
    "show",
    "simulate",
    "why",
    "zoo",
    "zoo_models",
]
