"""Read YAML files into frozen values; report each mistake with file, line and key."""
