"""The hot loop. While it runs, bytes are stamped and spooled, and nothing else is done with them.

`share` says what one worker has to do → `worker` runs it on an event loop: `dispatch` sends what is due over
`connection`s, which receive into the `spool`; `pulse` measures the loop itself. `processes` spreads shares over
workers.
"""
