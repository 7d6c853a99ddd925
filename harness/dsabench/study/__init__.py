"""The main job: search the settings of a config, confirm the best, judge it."""
