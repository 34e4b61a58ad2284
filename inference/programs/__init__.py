"""Backends that need only a NumPyro program: NUTS and stochastic variational inference."""
