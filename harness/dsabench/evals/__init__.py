"""Accuracy: questions, graders, a runner for many requests in flight, and what may be concluded from the scores."""
