"""What a change removes or overwrites: saved before, listed, taken back (undo), removed in the end."""
