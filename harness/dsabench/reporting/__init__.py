"""Pictures and pages made from records; never a number of their own."""
