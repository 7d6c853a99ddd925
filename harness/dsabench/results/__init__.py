"""The journal, everything read from it, and the values derived from records."""
