"""Plans for other runtimes: a step in JAX, placements for PyTorch."""
