"""The commands, a module each: `app` is what `rstore_cli.app` registers. Imported only when they are run."""
