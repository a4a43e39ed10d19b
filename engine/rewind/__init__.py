"""An old master goes back to where its log and the new master's diverged, and follows it; a slave becomes a master."""
