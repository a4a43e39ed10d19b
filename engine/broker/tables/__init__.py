"""What the broker knows of topics, groups, offsets, filters and members; most of it is kept in config/."""
