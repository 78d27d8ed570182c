"""The intercom broker's rules: who is registered, who sees whom, what is routed, held, and read.

Pure: it is told what came over which link, and orders what is kept, written and closed.
"""
