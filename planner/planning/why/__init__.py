"""Reasons of a plan: what each op needs and what that costs, what else was possible, and a summary."""
