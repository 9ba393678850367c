"""Cases of operators: what a file of one's own descriptions names its cases with."""

from planner.features.ops.cases.examples import Case as Case
from planner.features.ops.cases.examples import Given as Given
from planner.features.ops.cases.examples import Known as Known
from planner.features.ops.cases.examples import make as make
