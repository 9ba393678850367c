"""Bodies of composites in primitive ops, chosen so that partial results can be joined."""
