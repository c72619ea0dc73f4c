"""A TCP proxy that resets its connections after so many octets of answers."""

import contextlib
import socket
import struct
import threading
from types import TracebackType

from support.listener import Listener


class CuttingProxy(Listener):
    """`cut_after` says for each cut how many octets of answers pass first; then the connection is reset, and the count
    begins anew. When the list is empty everything passes."""

    def __init__(self, server: tuple[str, int]) -> None:
        self.cut_after: list[int] = []
        self._passed = 0
        self._server = server
        super().__init__()

    def __enter__(self) -> "CuttingProxy":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    def serve(self, sock: socket.socket) -> None:
        with socket.create_connection(self._server) as server:
            answers = threading.Thread(target=self._answers, args=(server, sock), daemon=True)
            answers.start()
            while data := sock.recv(1 << 16):
                server.sendall(data)
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_WR)
            answers.join()

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
