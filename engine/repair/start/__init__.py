"""What Apache's own start would do to a store, computed and not done."""
