"""One round of Apache's retention on a closed store."""
