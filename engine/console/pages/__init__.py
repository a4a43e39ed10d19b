"""What each page shows: one engine call, as JSON, and the template that draws it. Nothing here changes anything."""
