"""The hot path: while the clock runs, bytes are stamped and written, and nothing else is done with them.

`worker` says what one worker has to do and runs it on an event loop: its `dispatcher` sends what is due over
`connection`s, which receive into the `spool`; the `monitor` measures the loop itself. `worker_process` makes processes of
workers.
"""
