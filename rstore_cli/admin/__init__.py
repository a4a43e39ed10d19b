"""The commands of `rstore admin`, a module a noun: parse, one question or plan of the engine, render."""
