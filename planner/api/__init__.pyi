# What `planner.api` has, for type checkers; `make schemas` writes it.

from planner import as_json as as_json
from planner import build as build
from planner import check as check
from planner import checkpoints as checkpoints
from planner import compare as compare
from planner import diff as diff
from planner import explain as explain
from planner import export as export
from planner import export_checkpoint as export_checkpoint
from planner import fit as fit
from planner import grad as grad
from planner import load_into as load_into
from planner import memory as memory
from planner import plan as plan
from planner import profile as profile
from planner import prove as prove
from planner import report as report
from planner import run as run
from planner import show as show
from planner import simulate as simulate
from planner import why as why
from planner import zoo as zoo
from planner import zoo_models as zoo_models
