"""The reference runtime as a program: sglang's flags and HTTP endpoints over the engines of `dsabench.reference.engine`.

`start` is what `python -m dsabench.reference.launch_server` runs. `arguments`, `tables` and `resolve_settings` make settings of
flags, environment and tuned tables; `rank_pool`, `rank_messages` and `rank_process` run engines in processes of their own;
`exchange`, `generate_api`, `openai_api`, `metrics` and `app` answer HTTP; `disaggregation` moves what a prefill server has
computed.
"""
