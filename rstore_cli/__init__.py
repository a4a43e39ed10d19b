"""The command line of rstore: a command = parse, one engine call, render."""
