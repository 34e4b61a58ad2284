"""Playing many runs of many policies, and what they leave behind."""
