"""Known combinations of settings that the runtime runs into after its own argument code let them pass."""
