"""What a task learns: coefficients over the masks, their rounding and their code."""
