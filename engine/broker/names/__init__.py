"""Routes: the embedded name service, and registration with other name servers."""
