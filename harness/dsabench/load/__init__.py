"""The load generator: draws the prompts, sends them on time, keeps what came back, and sums it up afterwards.

Forward only: `datasets` and `arrivals` say what is sent when, as a `plan` → `drive` has it sent by `client`, which stamps
and spools raw bytes → the `recording` → after the last byte `answers` makes replies of it with `readers` and
`recognise` → `summarise`. Nothing is parsed while the clock runs.
"""
