"""The command line: a file per command, imported only when its command is called."""
