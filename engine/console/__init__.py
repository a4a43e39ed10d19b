"""The console: pages over the same engine calls as the commands, in a browser (CONSOLE.md)."""
