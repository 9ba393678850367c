"""Cases of operators: what a file of one's own descriptions names its cases with."""

from planner.verify.cases.examples import Case as Case
from planner.verify.cases.examples import Given as Given
from planner.verify.cases.examples import Known as Known
from planner.verify.cases.examples import make as make
