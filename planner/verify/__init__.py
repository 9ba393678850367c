"""Descriptions verified, not trusted: every strategy executed split and whole, and compared."""
