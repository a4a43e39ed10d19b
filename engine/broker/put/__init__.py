"""Messages that the broker puts: sends, delayed ones, transactions, events; and flow control."""
