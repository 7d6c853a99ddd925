"""Frozen values that all other modules share. They do no I/O."""
