"""What the broker answers, a module for each matter: a handler takes a request and gives its answer, or none for now."""
