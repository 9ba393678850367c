"""A partitioned program on a machine, step by step: when each worker computes, fetches and waits, and what is sent."""
