"""What the daemon tells of itself: counts, metrics, health, and the socket where commands ask it."""
