"""How the weights of `--model trained` were made: `python -m dsabench.reference.train --out FOLDER`."""
