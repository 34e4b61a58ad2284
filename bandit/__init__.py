"""What to do next: policies, environments, the loop, experiments and the command line."""
