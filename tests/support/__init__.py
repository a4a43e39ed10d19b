"""What the tests share: stores to read, logs made in memory, proofs that nothing was written."""
