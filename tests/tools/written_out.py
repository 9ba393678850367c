"""A matrix of few elements as the whole array."""

from __future__ import annotations

import numpy as np

from planner.graph.core.bands import Band


def written_out(band: Band) -> np.ndarray:
    """[rows, columns] float64."""
    matrix = np.zeros((band.rows, band.columns))
    np.add.at(matrix, (np.arange(band.rows)[:, None], band.places), band.weights)
    return matrix
