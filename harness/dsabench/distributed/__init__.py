"""Boots of a study on the machines of a cluster."""
