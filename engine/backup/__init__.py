"""Backups of stores, and stores made from them: repositories in a directory or in object storage (BACKUP.md)."""
