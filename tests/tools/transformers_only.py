"""Strategies of the literature that other networks than transformers have no plan by."""

OF_TRANSFORMERS = frozenset({"context", "fsdp-megatron", "megatron"})
