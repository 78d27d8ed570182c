"""The process that owns a launch's tree: it starts the command, counts as its holder, and tells its end.

Nothing is imported here: the front end and the supervisor are two processes, and each pays at its start
for what it uses. `front` is the caller's side, `holding` the supervisor's; `lines` is what they say to
each other, `spawn` the fork and the program, `stopping` the end on request.
"""
