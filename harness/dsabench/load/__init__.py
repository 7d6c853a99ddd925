"""The load generator: what is sent, when, how it is stamped, and what the numbers are worth.

before the clock                  while the clock runs                      after the last byte
draw/prompts,                     client/dispatcher: a heap of due          drive: the times of all workers together
draw/as_bench_serving: prompts    sessions; what is due is sent             read/recording: a counting sort by request
requests: a body per request      client/connection: the kernel writes      read/recognise: token counts of usual frames
schedule: when each is due        into the arena; a stamp, 16 bytes of      (numpy), read/fast_generate: replies
plan: LoadPlan                    index, and llhttp looks for the end       read/generate, read/openai: exact replies
drive: workers, open files,       client/spool: a full arena goes to an     read/replies: a sample per request
connections                       unnamed file                              judge: steady state, stalls, validity, machine
                                  client/monitor: every 25 ms lag,          judge/summary, or bench_serving: metrics
                                  unread bytes, overdue requests

From the ground up: plan, requests, schedule, draw, client, read, judge, drive, and on top load_test (a workload) and
bench_serving (a command line).
"""
