"""What an agent plays in: problems, environments, contexts and data sets."""
