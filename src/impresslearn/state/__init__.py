"""The committed state of a learner, and the backends that keep it."""
