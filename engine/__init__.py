"""The store engine of rstore: Apache RocketMQ 4.9's bytes, read, written, recovered (the house: README.md)."""
