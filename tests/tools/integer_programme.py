"""The least of all plans of a small graph, by an independent solver (HiGHS) of the same tables."""

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from planner.algebra.tiling import Tiling
from planner.cost.tables import Candidates
from planner.search.exact.choices import Choices
from planner.search.model.problem import Problem, Restriction, SearchVariable, no_restriction


def composites(
    problem: Problem, variable: SearchVariable, cuts: tuple[int, ...], restrict: Restriction = no_restriction
) -> Candidates:
    """Every tiling of a variable, those among them whose cuts nest in other orders."""
    found = [Tiling((), ())]
    for ways in cuts:
        longer = [restrict(variable, problem.extensions(variable, prefix, ways)) for prefix in found]
        found = [one for options in longer for one in options]
    nested = problem.spaces[variable.number].nests(cuts, most=10_000)
    found += [one for one in nested if restrict is no_restriction or problem.lets_through(restrict, variable, one)]
    return tuple(found)


def least_of_all(problem: Problem, cuts: tuple[int, ...], restrict: Restriction = no_restriction) -> int:
    """The joint optimum by integer programming: one binary for each value, and one for each pair of a table.

    Args:
        problem: the graph's variables and tables.
        cuts: the ways of each cut, outermost first.
        restrict: narrows the candidates of a variable.
    """
    choices = [problem.intern(composites(problem, variable, cuts, restrict)) for variable in problem.variables]
    start = np.concatenate([[0], np.cumsum([len(values) for values in choices])])
    tables, which = problem.joint_tables(Choices.of(choices))
    scopes = problem.scopes
    costs = [np.zeros(int(start[-1]))]
    rows: list[np.ndarray] = []
    columns: list[np.ndarray] = []
    signs: list[np.ndarray] = []
    right: list[float] = []

    def constrain(plus: np.ndarray, minus: np.ndarray, total: float) -> None:
        rows.append(np.full(len(plus) + len(minus), len(right)))
        columns.append(np.concatenate([plus, minus]))
        signs.append(np.concatenate([np.ones(len(plus)), -np.ones(len(minus))]))
        right.append(total)

    nothing = np.zeros(0, dtype=np.int64)
    for variable in range(len(choices)):
        constrain(np.arange(start[variable], start[variable + 1]), nothing, 1)
    used = int(start[-1])
    constant = 0
    for number, scope in zip(which.tolist(), scopes, strict=True):
        table = tables[number]
        if not scope:
            constant += int(table)
        elif len(scope) == 1:
            costs[0][start[scope[0]] : start[scope[0] + 1]] += table
        else:
            cells = used + np.arange(table.size).reshape(table.shape)
            used += table.size
            costs.append(table.ravel().astype(float))
            for value in range(table.shape[0]):
                constrain(cells[value], np.array([start[scope[0]] + value]), 0)
            for value in range(table.shape[1]):
                constrain(cells[:, value], np.array([start[scope[1]] + value]), 0)
    matrix = coo_array(
        (np.concatenate(signs), (np.concatenate(rows), np.concatenate(columns))), shape=(len(right), used)
    )
    integral = np.zeros(used)
    integral[: start[-1]] = 1
    result = milp(
        np.concatenate(costs),
        integrality=integral,
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix.tocsr(), right, right),
    )
    assert result.success, result.message
    return constant + round(result.fun)
