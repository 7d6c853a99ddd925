"""What may be concluded from numbers: percentiles with their n, intervals, comparisons with the boot as unit."""
