"""Exact posteriors mixed over the few numbers that are unknown besides vectors."""
