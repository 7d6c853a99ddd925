"""Servers to measure: how they are started, watched, asked and taken down."""
