"""Tables of items and logs, made into hierarchies and data."""
