"""Cases of operators: what a file of one's own descriptions names its cases with."""

from planner.features.ops.cases.case import Case as Case
from planner.features.ops.cases.case import Given as Given
from planner.features.ops.cases.case import Known as Known
from planner.features.ops.cases.case import make as make
