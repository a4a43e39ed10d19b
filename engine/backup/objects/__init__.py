"""Where a repository's objects lie: names and bytes, and nothing that knows what they mean."""
