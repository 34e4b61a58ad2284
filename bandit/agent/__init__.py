"""An agent behind an application: decisions, late rewards, new actions."""
