"""The journal, its readers, and values that are derived from records."""
