"""The ACL and what else tells who may ask: in pieces and in a daemon."""
