"""The keys of NettyServerConfig and NettyClientConfig (4.9.8), of which a broker has one each. Sizes in bytes."""

from __future__ import annotations

from engine.broker_conf.keys import Row, keys_of
from engine.broker_conf.values import ValueKind

_INT, _LONG, _BOOL = ValueKind.INT, ValueKind.LONG, ValueKind.BOOLEAN

_HIGH: Row = ("writeBufferHighWaterMark", _INT, 0, "unsent bytes of a connection that stop its writers, 0: Netty's")
_LOW: Row = ("writeBufferLowWaterMark", _INT, 0, "unsent bytes of a connection below which they go on, 0: Netty's")

_SERVER: tuple[Row, ...] = (
    ("listenPort", _INT, 10911, "port of the broker; the VIP port is two below, slaves' one above"),
    ("serverWorkerThreads", _INT, 8, "threads that decode requests"),
    ("serverCallbackExecutorThreads", _INT, 0, "threads for callbacks, 0: 4"),
    ("serverSelectorThreads", _INT, 3, "threads of the sockets"),
    ("serverOnewaySemaphoreValue", _INT, 256, "one-way requests that may be on their way"),
    ("serverAsyncSemaphoreValue", _INT, 64, "asynchronous requests that may be on their way"),
    ("serverChannelMaxIdleTimeSeconds", _INT, 120, "an idle connection is closed after so many seconds"),
    ("serverSocketSndBufSize", _INT, 0, "send buffer of a socket, 0: the system's"),
    ("serverSocketRcvBufSize", _INT, 0, "receive buffer of a socket, 0: the system's"),
    _HIGH,
    _LOW,
    ("serverSocketBacklog", _INT, 1024, "connections that may wait for being accepted"),
    ("serverPooledByteBufAllocatorEnable", _BOOL, True, "buffers come from a pool"),
    ("useEpollNativeSelector", _BOOL, False, "epoll of Netty's own on Linux"),
)
_CLIENT: tuple[Row, ...] = (
    ("clientWorkerThreads", _INT, 4, "threads of the broker's own connections"),
    ("clientCallbackExecutorThreads", _INT, None, "threads for callbacks of them"),
    ("clientOnewaySemaphoreValue", _INT, 65_535, "one-way requests that may be on their way"),
    ("clientAsyncSemaphoreValue", _INT, 65_535, "asynchronous requests that may be on their way"),
    ("connectTimeoutMillis", _INT, 3000, "how long a connection may take to be made"),
    ("channelNotActiveInterval", _LONG, 60_000, "no longer used"),
    ("clientChannelMaxIdleTimeSeconds", _INT, 120, "an idle connection is closed after so many seconds"),
    ("clientSocketSndBufSize", _INT, 0, "send buffer of a socket, 0: the system's"),
    ("clientSocketRcvBufSize", _INT, 0, "receive buffer of a socket, 0: the system's"),
    ("clientPooledByteBufAllocatorEnable", _BOOL, False, "buffers come from a pool"),
    ("clientCloseSocketIfTimeout", _BOOL, True, "a request without an answer closes its connection"),
    ("useTLS", _BOOL, False, "the broker's own connections use TLS"),
    _HIGH,
    _LOW,
)
SERVER_KEYS = keys_of("NettyServerConfig", _SERVER)
CLIENT_KEYS = keys_of("NettyClientConfig", _CLIENT)
