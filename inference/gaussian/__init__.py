"""Gaussian posteriors: the algebra, the ways to keep what is known, and the backends made of them."""
