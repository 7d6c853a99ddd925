"""After the last byte: recorded bytes to replies, and replies to samples.

`recording` sorts what came by request and takes it out of HTTP's framing, `json_stream` makes frames of it, and an
endpoint's module (`generate`, `openai`) a reply of the frames. `recognise` and `fast_generate` give the same replies of
usual /generate answers without parsing JSON. `replies` is the way in.
"""
