"""From measurements to tuned tables."""
