"""YAML files → frozen specs, with every mistake named by file, line and key."""
