"""Frozen values that every other layer speaks in. No I/O here."""
