"""What a request is to a handler: the table of codes, its fields and bodies, and the ways of answering it."""
