"""What the machine is and what runs on it."""
