"""Statistics: percentiles, intervals, comparisons with the boot as unit, change points."""
