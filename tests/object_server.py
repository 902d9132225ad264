"""A small server of objects, as far as S3 is used here, that counts requests and refuses them when it is told to."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

__all__ = ["ObjectServer", "Request", "serve_objects"]

PAGE = 4  # keys of a listing that are answered at once


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    method: str
    key: str
    n_bytes: int = 0
    credential: str = ""


@dataclass
class ObjectServer:
    """Objects by ``bucket/key``, and what is asked about them."""

    address: str
    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    refusals: list[tuple[int, str]] = field(default_factory=list)  # one for each of the next requests
    cuts: int = 0  # how many of the next contents break off

    def put(self, bucket: str, key: str, content: bytes) -> None:
        self.objects[f"{bucket}/{key}"] = content

    def got(self) -> list[Request]:
        """Requests for contents."""
        return [request for request in self.requests if request.method == "GET" and request.key]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served: ObjectServer

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(is_head=True)

    def do_GET(self) -> None:
        self._answer(is_head=False)

    def _answer(self, *, is_head: bool) -> None:
        url = urlsplit(self.path)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        count = int(span[2]) - int(span[1]) + 1 if span else 0
        signed = re.search(r"Credential=([^/]*)/", self.headers.get("Authorization") or "")
        request = Request(self.command, key, count, signed[1] if signed else "")
        self.served.requests.append(request)
        if self.served.refusals:
            self._refuse(*self.served.refusals.pop(0))
        elif not key:
            self._list(bucket, parse_qs(url.query))
        elif f"{bucket}/{key}" not in self.served.objects:
            self._refuse(404, "NoSuchKey")
        else:
            self._send_object(self.served.objects[f"{bucket}/{key}"], span, is_head=is_head)

    def _send_object(self, content: bytes, span: re.Match[str] | None, *, is_head: bool) -> None:
        tag = _tag(content)
        if self.headers.get("If-Match", tag) != tag:
            return self._refuse(412, "PreconditionFailed")
        piece = content[int(span[1]) : int(span[2]) + 1] if span else content
        headers = {"ETag": tag, "Last-Modified": formatdate(0, usegmt=True)}
        if span:
            headers["Content-Range"] = f"bytes {span[1]}-{span[2]}/{len(content)}"
        return self._send(206 if span else 200, piece, headers, is_head=is_head)

    def _list(self, bucket: str, query: dict[str, list[str]]) -> None:
        names = sorted(name for name in self.served.objects if name.startswith(f"{bucket}/"))
        if not names:
            return self._refuse(404, "NoSuchBucket")
        first = int(query.get("continuation-token", ["0"])[0])
        keys = [name.partition("/")[2] for name in names]
        keys = [key for key in keys if key.startswith(query.get("prefix", [""])[0])]
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{_tag(self.served.objects[f'{bucket}/{key}'])}</ETag><Size>1</Size></Contents>"
            for key in keys[first : first + PAGE]
        )
        more = first + PAGE < len(keys)
        following = f"<NextContinuationToken>{first + PAGE}</NextContinuationToken>" if more else ""
        text = f"<IsTruncated>{str(more).lower()}</IsTruncated>{following}{contents}"
        return self._send(200, f"<ListBucketResult>{text}</ListBucketResult>".encode(), {})

    def _refuse(self, status: int, code: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>told to</Message></Error>"
        self._send(status, text.encode(), {}, is_head=self.command == "HEAD")

    def _send(self, status: int, content: bytes, headers: dict[str, str], *, is_head: bool = False) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(content))}).items():
            self.send_header(name, value)
        self.end_headers()
        if not is_head and status < 300 and self.served.cuts:
            self.served.cuts -= 1
            content, self.close_connection = content[: len(content) // 2], True
        if not is_head:
            self.wfile.write(content)


@lru_cache(maxsize=64)
def _tag(content: bytes) -> str:
    return f'"{hashlib.md5(content).hexdigest()}"'


@contextmanager
def serve_objects() -> Iterator[ObjectServer]:
    """A server on a port of loopback, for a time."""
    handler = type("Handler", (_Handler,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        handler.served = ObjectServer(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield handler.served
        finally:
            server.shutdown()
            thread.join()
