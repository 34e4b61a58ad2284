"""Judging posteriors: by each other, by simulation, and hierarchies by their evidence."""
