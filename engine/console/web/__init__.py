"""How pages are served: sessions, guards, rendering, bounded reading, runs and streams. Knows no page."""
