"""What picks an action: Thompson sampling, its baselines, and upper confidence bounds."""
