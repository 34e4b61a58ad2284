"""From a table of items and a log to a posterior and an agent."""
