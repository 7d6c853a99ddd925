"""What is wrong with a machine, an installation or a running server, and the command that mends it."""
