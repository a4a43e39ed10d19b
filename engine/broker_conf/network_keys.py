"""The keys of NettyServerConfig and NettyClientConfig (4.9.8), of which a broker has one each. Sizes in bytes."""

from __future__ import annotations

from engine.broker_conf.keys import Row, keys_of
from engine.broker_conf.values import ValueKind

_INT, _LONG, _BOOL = ValueKind.INT, ValueKind.LONG, ValueKind.BOOLEAN

_HIGH: Row = (
    "writeBufferHighWaterMark",
    _INT,
    0,
    "unsent bytes of a connection above which writers stop, 0: Netty's default",
)
_LOW: Row = (
    "writeBufferLowWaterMark",
    _INT,
    0,
    "unsent bytes of a connection below which writers resume, 0: Netty's default",
)

_SERVER: tuple[Row, ...] = (
    ("listenPort", _INT, 10911, "port of the broker; the VIP port is two below, slaves' one above"),
    ("serverWorkerThreads", _INT, 8, "threads that decode requests"),
    ("serverCallbackExecutorThreads", _INT, 0, "threads for callbacks, 0: 4"),
    ("serverSelectorThreads", _INT, 3, "threads that read and write sockets"),
    ("serverOnewaySemaphoreValue", _INT, 256, "maximum one-way requests in flight"),
    ("serverAsyncSemaphoreValue", _INT, 64, "maximum asynchronous requests in flight"),
    ("serverChannelMaxIdleTimeSeconds", _INT, 120, "seconds after which an idle connection is closed"),
    ("serverSocketSndBufSize", _INT, 0, "send buffer of a socket, 0: the system's default"),
    ("serverSocketRcvBufSize", _INT, 0, "receive buffer of a socket, 0: the system's default"),
    _HIGH,
    _LOW,
    ("serverSocketBacklog", _INT, 1024, "maximum connections that wait to be accepted"),
    ("serverPooledByteBufAllocatorEnable", _BOOL, True, "buffers come from a pool"),
    ("useEpollNativeSelector", _BOOL, False, "epoll of Netty's own on Linux"),
)
_CLIENT: tuple[Row, ...] = (
    ("clientWorkerThreads", _INT, 4, "threads of the broker's own connections"),
    ("clientCallbackExecutorThreads", _INT, None, "threads for callbacks of these connections"),
    ("clientOnewaySemaphoreValue", _INT, 65_535, "maximum one-way requests in flight"),
    ("clientAsyncSemaphoreValue", _INT, 65_535, "maximum asynchronous requests in flight"),
    ("connectTimeoutMillis", _INT, 3000, "timeout of connecting"),
    ("channelNotActiveInterval", _LONG, 60_000, "no longer used"),
    ("clientChannelMaxIdleTimeSeconds", _INT, 120, "seconds after which an idle connection is closed"),
    ("clientSocketSndBufSize", _INT, 0, "send buffer of a socket, 0: the system's default"),
    ("clientSocketRcvBufSize", _INT, 0, "receive buffer of a socket, 0: the system's default"),
    ("clientPooledByteBufAllocatorEnable", _BOOL, False, "buffers come from a pool"),
    ("clientCloseSocketIfTimeout", _BOOL, True, "a request without an answer closes its connection"),
    ("useTLS", _BOOL, False, "the broker's own connections use TLS"),
    _HIGH,
    _LOW,
)
SERVER_KEYS = keys_of("NettyServerConfig", _SERVER)
CLIENT_KEYS = keys_of("NettyClientConfig", _CLIENT)
