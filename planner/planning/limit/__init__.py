"""A plan within a limit on memory: trials against programs, steps, what every plan takes at least, and refusals."""
