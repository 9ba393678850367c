"""Strategies of the literature that other networks than transformers, or mixtures of experts, have no plan by."""

OF_TRANSFORMERS = frozenset({"context", "expert", "fsdp-megatron", "megatron"})
