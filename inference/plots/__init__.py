"""Pictures of posteriors and comparisons."""
