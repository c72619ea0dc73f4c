"""One signed request out, one answer back, over pooled connections of this process.

Credentials, region, endpoint, proxies and certificates are found and used as botocore does it for every AWS tool.
Invariant: connections, sessions and locks belong to one process. After a fork the child makes its own, and what it
inherited is never used.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import botocore.exceptions
import urllib3.exceptions
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.httpsession import URLLib3Session
from botocore.session import Session
from botocore.utils import get_environ_proxies

from ._endpoint import endpoint_of
from ._errors import BrokenOff, ConfigurationError, EndpointError, RequestError, RequestPermissionError
from ._part import xml_text
from ._process import current

USER_AGENT = "batchgate-python"
# Of an answer that is not a batch, this much is read: S3's errors and our capabilities are far smaller.
DOCUMENT_BYTES_MAX = 1 << 16


@dataclass(frozen=True)
class Settings:
    """What the caller said, and what was found where he said nothing. Plain values: they cross forks and pickles."""

    endpoint_url: str | None
    region_name: str | None
    profile_name: str | None
    aws_access_key_id: str | None
    aws_secret_access_key: str | None = field(repr=False)
    aws_session_token: str | None = field(repr=False)
    verify: bool | str | None
    connect_timeout: float
    read_timeout: float
    connections_max: int


class Response:
    """An answer whose head has come. Its body is read by `read`; whoever stops before the end must `close`."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._read = raw.read1
        self.status: int = raw.status

    def header(self, name: str) -> str | None:
        value = self._raw.headers.get(name)
        return None if value is None else str(value)

    def headers(self) -> list[tuple[str, str]]:
        return [(str(name), str(value)) for name, value in self._raw.headers.items()]

    def read(self, bytes_max: int) -> bytes:
        """1 to `bytes_max` octets as they arrive, none at the end; `BrokenOff` if the message breaks."""
        try:
            return self._read(bytes_max)  # type: ignore[no-any-return]
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise BrokenOff(f"the answer broke off: {error}") from error

    def read_document(self) -> bytes:
        """A short body, or its beginning; ends the answer."""
        pieces, size = [], 0
        try:
            while size < DOCUMENT_BYTES_MAX and (piece := self.read(DOCUMENT_BYTES_MAX - size)):
                pieces.append(piece)
                size += len(piece)
            return b"".join(pieces)
        finally:
            if size >= DOCUMENT_BYTES_MAX:
                self.close()

    def close(self) -> None:
        """Ends the connection, unless the body was read to its end: then it is back in the pool already."""
        self._raw.close()

    def retry_after(self) -> float:
        """What the answer asks to wait, in seconds; 0 if it asks for nothing."""
        value = self.header("retry-after") or ""
        return float(value) if re.fullmatch(r"\d{1,6}", value) else 0.0

    def error_document(self) -> bytes:
        """The body of an error, as far as it came."""
        try:
            return self.read_document()
        except BrokenOff:
            return b""

    def error(self, what: str, document: bytes | None = None) -> RequestError:
        """The answer as an error; reads its body, unless that is given."""
        document = self.error_document() if document is None else document
        code, said = xml_text(document, "Code"), xml_text(document, "Message")
        request_id = xml_text(document, "RequestId") or self.header("x-amz-request-id") or ""
        message = f"{what}: {self.status} {code}{': ' + said if said else ''} (request id {request_id or 'unknown'})"
        kind = RequestPermissionError if self.status == 403 else RequestError
        return kind(message, status=self.status, code=code, request_id=request_id)


class _Making:
    """The lock under which `_Process`es are made: held by a thread at the time of a fork it would stay locked in the child,
    so the child begins with a fresh one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


_making = _Making()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_making.__init__)  # type: ignore[misc]


class Transport:
    """Sends for one client. Threads share it."""

    def __init__(self, settings: Settings) -> None:
        self._process: _Process | None = None
        self.settings = settings

    def send(self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"") -> Response:
        """One attempt. `path` is percent-encoded and holds the query. `BrokenOff` if another may do better."""
        process = self._of_this_process()
        request = AWSRequest(
            method,
            f"{self.endpoint_url}{path}",
            {"User-Agent": USER_AGENT, **(headers or {})},
            body,
            stream_output=True,
        )
        try:
            # Asked for each request anew: credentials that expire are refreshed here.
            S3SigV4Auth(process.credentials.get_frozen_credentials(), "s3", self._region_name()).add_auth(request)
        except botocore.exceptions.BotoCoreError as error:
            raise ConfigurationError(f"no usable credentials: {error}") from error
        try:
            return Response(process.http.send(request.prepare()).raw)
        except botocore.exceptions.SSLError as error:
            raise EndpointError(f"{self.endpoint_url}: {error}") from error
        except (botocore.exceptions.ConnectionError, botocore.exceptions.HTTPClientError) as error:
            raise BrokenOff(f"no answer from {self.endpoint_url}: {error}") from error

    @property
    def endpoint_url(self) -> str:
        """Where requests go."""
        if self.settings.endpoint_url is None:
            self._resolve()
        assert self.settings.endpoint_url is not None, "resolved above"
        return self.settings.endpoint_url

    def close(self) -> None:
        """Closes the idle connections. The transport may be used again."""
        process, self._process = self._process, None
        if process is not None and process.id == current.id:
            process.http.close()

    def _region_name(self) -> str:
        if self.settings.region_name is None:
            self._resolve()
        return self.settings.region_name or "us-east-1"

    def _resolve(self) -> None:
        """Endpoint and region as a stock client has them. Making one is slow, so it is done once and kept."""
        settings = self.settings
        try:
            session = Session(profile=settings.profile_name)
            region = settings.region_name or session.get_config_variable("region") or os.environ.get("AWS_REGION")
            region = region or "us-east-1"
            endpoint = settings.endpoint_url
            if endpoint is None:
                endpoint = endpoint_of(session.create_client("s3", region_name=region).meta.endpoint_url)
        except (botocore.exceptions.BotoCoreError, ValueError) as error:
            raise ConfigurationError(f"no endpoint: {error}") from error
        self.settings = replace(settings, endpoint_url=endpoint, region_name=region)

    def once(self) -> AbstractContextManager[Any]:
        """What only one thread of this process does at a time."""
        return self._of_this_process().lock

    def _of_this_process(self) -> _Process:
        process = self._process
        if process is None or process.id != current.id:
            with _making.lock:
                process = self._process
                if process is None or process.id != current.id:
                    process = self._process = _Process(self.settings, self.endpoint_url)
        return process


class _Process:
    """What belongs to one process: its connections and its source of credentials."""

    def __init__(self, settings: Settings, endpoint_url: str) -> None:
        self.id = current.id
        self.lock = threading.Lock()
        try:
            session = Session(profile=settings.profile_name)
            verify = settings.verify
            if verify is None:
                verify = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE") or True
            credentials: Any = None
            if settings.aws_access_key_id is None and settings.aws_secret_access_key is None:
                credentials = session.get_credentials()
            elif settings.aws_access_key_id and settings.aws_secret_access_key:
                credentials = Credentials(
                    settings.aws_access_key_id, settings.aws_secret_access_key, settings.aws_session_token
                )
            if credentials is None:
                raise ConfigurationError("no credentials: neither given nor found where AWS tools look for them")
            self.credentials = credentials
            make: Any = URLLib3Session  # whose published types are narrower than it is
            self.http = make(
                verify=verify,
                proxies=get_environ_proxies(endpoint_url),
                timeout=(settings.connect_timeout, settings.read_timeout),
                max_pool_connections=settings.connections_max,
                # Without it the last segment of a request waits for the answer to the one before.
                socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
            )
        except botocore.exceptions.BotoCoreError as error:
            raise ConfigurationError(str(error)) from error
