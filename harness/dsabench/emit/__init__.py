"""How tuned defaults leave dsabench: table files, patches and plugins of the runtime, launch commands, pull requests."""
