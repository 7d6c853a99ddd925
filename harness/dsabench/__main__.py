"""`python -m dsabench`."""

from dsabench.cli.main import main

main()
