"""SGLang's own answer to a setting: its argument code, run without a GPU in a process of its own."""
