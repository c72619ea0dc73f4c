"""A TCP relay before a gateway, which breaks off or holds back the answers to BatchGets where a test says so, or hides that
there is BatchGet."""

import socket
import threading
from dataclasses import dataclass, field
from typing import Literal

from support.store import Target


@dataclass
class Relay:
    """Each answer to a POST takes the next of `plan`: after so many of its bytes it breaks off, or nothing more comes. With
    `hides_batch_get` it answers for itself that the endpoint has none."""

    target: Target
    plan: list[tuple[Literal["break", "hold"], int]] = field(default_factory=list)
    posts: int = 0
    hides_batch_get: bool = False

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self.held = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def through(self) -> Target:
        """The target, asked through the relay."""
        return Target(f"http://127.0.0.1:{self._listener.getsockname()[1]}", self.target.credentials)

    def stop(self) -> None:
        self._listener.close()
        with self._lock:
            for sock in self._open:
                sock.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self.target.address)
            except OSError:
                return
            with self._lock:
                self._open += [client, server]
            state: dict[str, tuple[str, int] | None] = {"next": None}
            threading.Thread(target=self._requests, args=(client, server, state), daemon=True).start()
            threading.Thread(target=self._answers, args=(client, server, state), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, state: dict[str, tuple[str, int] | None]) -> None:
        try:
            while data := client.recv(65536):
                if self.hides_batch_get and b"?batch-get=" in data.partition(b"\r\n")[0]:
                    client.sendall(b"HTTP/1.1 501 Not Implemented\r\ncontent-length: 0\r\n\r\n")
                    continue
                if data.startswith(b"POST "):
                    with self._lock:
                        self.posts += 1
                        state["next"] = self.plan.pop(0) if self.plan else None
                server.sendall(data)
            server.close()
        except OSError:
            pass

    def _answers(self, client: socket.socket, server: socket.socket, state: dict[str, tuple[str, int] | None]) -> None:
        try:
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
        except OSError:
            pass
