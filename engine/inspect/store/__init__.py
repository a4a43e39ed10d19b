"""What lies in a store: its files, what they hold, and what earlier repairs left. Judges nothing."""
