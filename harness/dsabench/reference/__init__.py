"""The reference runtime: a small but true DSA transformer, the engine that serves it, and a server with sglang's flags and endpoints.

`engine` is the model and continuous batching; `server` makes a program of it, `launch_server`; `router` joins prefill and
decode servers; `runtime` is how dsabench starts it. `train` makes the weights in `trained`. Its numbers describe itself, not
sglang.
"""
