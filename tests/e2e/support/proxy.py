"""A TCP relay before a gateway, which breaks off or holds back the answers to BatchGets where a test says so, or hides that
there is BatchGet."""

import contextlib
import socket
import threading
from typing import Literal

from support.listener import Listener
from support.store import Target

Step = tuple[Literal["break", "hold"], int]


class Relay(Listener):
    """Each answer to a POST takes the next of `plan`: after so many of its bytes it breaks off, or nothing more comes. With
    `hides_batch_get` it answers for itself that the endpoint has none."""

    def __init__(self, target: Target, hides_batch_get: bool = False) -> None:
        self.target = target
        self.hides_batch_get = hides_batch_get
        self.plan: list[Step] = []
        self.posts = 0
        self.held = threading.Event()
        super().__init__()

    @property
    def through(self) -> Target:
        """The target, asked through the relay."""
        return Target(self.endpoint, self.target.credentials)

    def serve(self, sock: socket.socket) -> None:
        state: dict[str, Step | None] = {"next": None}
        with socket.create_connection(self.target.address) as server:
            threading.Thread(target=self._answers, args=(sock, server, state), daemon=True).start()
            while data := sock.recv(65536):
                if self.hides_batch_get and b"?batch-get=" in data.partition(b"\r\n")[0]:
                    sock.sendall(b"HTTP/1.1 501 Not Implemented\r\ncontent-length: 0\r\n\r\n")
                    continue
                if data.startswith(b"POST "):
                    with self._lock:
                        self.posts += 1
                        state["next"] = self.plan.pop(0) if self.plan else None
                server.sendall(data)

    def _answers(self, client: socket.socket, server: socket.socket, state: dict[str, Step | None]) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if (step := state["next"]) is not None:
                    what, left = step
                    client.sendall(data[:left])
                    state["next"] = (what, left - len(data))
                    if len(data) < left:
                        continue
                    if what == "hold":
                        self.held.set()
                        return
                    break
                client.sendall(data)
            # As a connection ends whose other end was killed.
            client.shutdown(socket.SHUT_RDWR)
            server.shutdown(socket.SHUT_RDWR)
