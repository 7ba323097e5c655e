"""What a learner has committed, and the protocol of what keeps it."""
