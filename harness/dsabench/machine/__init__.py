"""What the machine is, what runs on it, and whether it is quiet."""
