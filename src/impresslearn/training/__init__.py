"""Optimisation: one loop with its recipe, objectives and progress on the terminal."""
