"""What the machine is, what runs on it, whether it is quiet."""
