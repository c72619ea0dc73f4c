"""A TCP proxy that resets its connections after so many octets of answers."""

import contextlib
import socket
import struct
import threading
from types import TracebackType


class CuttingProxy:
    """`cut_after` says for each cut how many octets of answers pass first; then the connection is reset, and the count
    begins anew. When the list is empty everything passes."""

    def __init__(self, server: tuple[str, int]) -> None:
        self.cut_after: list[int] = []
        self._passed = 0
        self._server = server
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "CuttingProxy":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._listener.close()
        for sock in self._open:
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._server)
            self._open += [client, server]
            threading.Thread(target=self._requests, args=(client, server), daemon=True).start()
            threading.Thread(target=self._answers, args=(server, client), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        try:
            while data := client.recv(1 << 16):
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        try:
            while data := server.recv(1 << 16):
                allowed = self._allowed(len(data))
                client.sendall(data[:allowed])
                if allowed < len(data):
                    # A reset instead of an end.
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    break
        except OSError:
            pass
        finally:
            # A socket that a thread is reading from would not be closed before that thread has returned.
            for sock in (client, server):
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RD)
                sock.close()

    def _allowed(self, count: int) -> int:
        with self._lock:
            if not self.cut_after:
                return count
            left = self.cut_after[0] - self._passed
            if count < left:
                self._passed += count
                return count
            self._passed = 0
            self.cut_after.pop(0)
            return min(left, count - 1)
