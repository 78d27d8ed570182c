"""What the doors on standard input and output share: lines in, lines out, requests in progress.

Rule 1: `pipes` and `grammar` import next to nothing: a host waits for the first answer.
Rule 2: `calls` is the loop's side: bounded, cancellable, mail consumed only after a flush.

Source: reference/native.md 4.4; reference/reliability.md K33.
"""
