"""Sockets: ports, TLS, connections in both directions, and the switchboard that hands requests to their handlers."""
