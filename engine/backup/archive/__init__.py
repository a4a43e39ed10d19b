"""The archive of a store: segments that the store has deleted, kept in a repository and read where they lie."""
