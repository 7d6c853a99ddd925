"""The whole job in one run: check the machine, sweep, tune, prove the tables, write the report and the pull request."""
