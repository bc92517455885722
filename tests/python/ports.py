"""Ports for tests that run at the same time, each in a process of its own.

A block of 20 belongs to whoever holds its last port: the kernel gives that to one process, and takes it back when the
process ends. Two runs that looked for each other on the same ports would find the wrong ranks.
"""
import atexit
import collections
import contextlib
import random
import socket
import threading

BLOCK, FIRST, END = 20, 20000, 32000  # below what the kernel gives to clients
HELD = 200  # blocks of one process; the oldest goes back first
_blocks = list(range(FIRST, END, BLOCK))
random.Random().shuffle(_blocks)
_next, _held, _lock = 0, collections.deque(), threading.Lock()
atexit.register(lambda: [claim.close() for claim in _held])


def lease_ports():
    """The first of 16 free ports that no other test has while this process lives, or until it has leased HELD more."""
    global _next
    with _lock:
        for _ in _blocks:
            port = _blocks[_next % len(_blocks)]
            _next += 1
            claim = socket.socket()
            try:
                claim.bind(("127.0.0.1", port + BLOCK - 1))
                with contextlib.ExitStack() as probes:
                    for number in range(port, port + 16):
                        probe = probes.enter_context(socket.socket())
                        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                        probe.bind(("127.0.0.1", number))
            except OSError:
                claim.close()
                continue
            _held.append(claim)
            if len(_held) > HELD:
                _held.popleft().close()
            return port
    raise RuntimeError("no block of ports is free")
