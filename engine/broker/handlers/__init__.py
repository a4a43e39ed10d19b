"""What the broker answers, a module a matter: a handler takes a request and gives its answer, or none for now."""
