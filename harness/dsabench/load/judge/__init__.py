"""What the samples are worth: metrics, the steady state, stalls, and why a run measures nothing."""
