"""The proof itself: programs of workers, followed and held against the ops of their model."""
