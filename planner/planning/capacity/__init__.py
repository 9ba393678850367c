"""How many GPUs hold a model: what plans of each number of workers take, and with which batch (``tofu fit``).

Beside this, ``planner.planning.limit`` makes one plan fit into the memory there is.
"""
