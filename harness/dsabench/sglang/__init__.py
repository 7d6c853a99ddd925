"""The real runtime: canonical settings → commands of the installed SGLang. Never imports it."""
