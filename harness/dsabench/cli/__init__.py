"""The commands, one file each. Whatever is heavy is imported inside the command that needs it."""
