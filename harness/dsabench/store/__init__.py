"""The journal of records and the samples beside it."""
