"""The reference runtime as a program: sglang's flags and HTTP endpoints over the engines of `dsabench.reference.engine`.

`arguments`, `overrides`, `hisparse`, `parallel`, `devices`, `tables` and `resolve` make settings of flags, environment and
tuned tables; `family`, `calls`, `rank` and `worker` run engines in processes of their own; `asked`, `messages`, `exchange`,
`openai_messages`, `openai`, `metrics` and `server` answer HTTP; `parcels` and `handover` move what a prefill server has
computed. `start` is what `python -m dsabench.reference.launch_server` runs.
"""
