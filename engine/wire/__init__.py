"""The remoting protocol of RocketMQ without I/O: bytes in, commands out, and back (REMOTING.md).

`frames.py` cuts a stream of bytes into frames and bounds every length before anything is kept; `command.py` is what a
frame means, in both header serialisations; `codes.py` names the numbers; `address.py` reads where a peer is;
`registration.py` has the compressed body of a registration. Nothing here knows a socket or a store.
"""
