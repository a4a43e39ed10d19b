"""The broker's settings: read at the start, changed while it runs, told to who asks."""
