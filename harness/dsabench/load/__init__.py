"""The load generator: draws the prompts, sends them on time, keeps what came back, and sums it up afterwards.

Forward only: `datasets` and `arrivals` say what is sent when → `drive` sends it through `transport`, which stamps and
keeps raw bytes → after the last byte `sse` and `parse` make frames of them → `summarise`. Nothing is parsed while
the clock runs.
"""
