"""A small server of objects, as far as S3 is used here, that counts requests and refuses them when it is told to.

Objects are listed, read whole or by ranges, written whole, on conditions or in parts, and removed one by one or many at
once. Any bucket that holds an object is there, and others once they are named in `buckets`.
"""

from __future__ import annotations

import hashlib
import re
import threading
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

__all__ = ["ObjectServer", "Refusal", "Request", "serve_objects"]

PAGE = 4  # keys of a listing that are answered at once


@dataclass(frozen=True)
class Request:
    """What was asked for; `n_bytes` are those of a range that is read, or of a body."""

    method: str
    key: str
    n_bytes: int = 0
    credential: str = ""
    query: str = ""


Refusal = tuple[int, str]  # status and code


@dataclass
class ObjectServer:
    """Objects by ``bucket/key``, and what is asked about them."""

    address: str
    objects: dict[str, bytes] = field(default_factory=dict)
    buckets: set[str] = field(default_factory=set)  # empty ones
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)  # parts of what is not complete
    requests: list[Request] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)  # one for each of the next requests
    judge: Callable[[Request], Refusal | None] | None = None  # refuses what it has an answer for
    knows_conditions: bool = True
    cuts: int = 0  # how many of the next contents break off
    lock: threading.Lock = field(default_factory=threading.Lock)  # of a write on a condition

    def put(self, bucket: str, key: str, content: bytes) -> None:
        self.objects[f"{bucket}/{key}"] = content

    def got(self) -> list[Request]:
        """Requests for contents."""
        return [request for request in self.requests if request.method == "GET" and request.key]

    def wrote(self) -> list[Request]:
        """Requests that wrote an object, a part or the list of its parts."""
        return [request for request in self.requests if request.method in ("PUT", "POST") and request.key]

    def names(self, prefix: str = "") -> list[str]:
        """``bucket/key`` of every object that begins so."""
        return sorted(name for name in self.objects if name.startswith(prefix))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # contents would wait for the acknowledgement of their headers
    served: ObjectServer

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def _answer(self) -> None:
        url = urlsplit(self.path)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        count = int(span[2]) - int(span[1]) + 1 if span else len(body)
        signed = re.search(r"Credential=([^/]*)/", self.headers.get("Authorization") or "")
        request = Request(self.command, key, count, signed[1] if signed else "", url.query)
        self.served.requests.append(request)
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        refusal = self.served.refusals.pop(0) if self.served.refusals else None
        if refusal is None and self.served.judge is not None:
            refusal = self.served.judge(request)
        if refusal is not None:
            self._refuse(*refusal)
        elif not self._has_bucket(bucket):
            self._refuse(404, "NoSuchBucket")
        elif self.command in ("GET", "HEAD"):
            self._read(bucket, key, query, span)
        elif self.command == "PUT":
            self._write(f"{bucket}/{key}", query, body)
        elif self.command == "POST":
            self._post(bucket, key, query, body)
        else:
            self._remove(f"{bucket}/{key}", query)

    def _has_bucket(self, bucket: str) -> bool:
        return bucket in self.served.buckets or any(name.startswith(f"{bucket}/") for name in list(self.served.objects))

    def _read(self, bucket: str, key: str, query: dict[str, str], span: re.Match[str] | None) -> None:
        if not key:
            return self._list(bucket, query)
        content = self.served.objects.get(f"{bucket}/{key}")
        if content is None:
            return self._refuse(404, "NoSuchKey")
        tag = _tag(content)
        if self.headers.get("If-Match", tag) != tag:
            return self._refuse(412, "PreconditionFailed")
        piece = content[int(span[1]) : int(span[2]) + 1] if span else content
        headers = {"ETag": tag, "Last-Modified": formatdate(0, usegmt=True)}
        if span:
            headers["Content-Range"] = f"bytes {span[1]}-{int(span[1]) + len(piece) - 1}/{len(content)}"
        return self._send(206 if span else 200, piece, headers)

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        keys = [name.partition("/")[2] for name in self.served.names(f"{bucket}/{prefix}")]
        entries, folders = [], []
        for key in keys:
            below = key[len(prefix) :]
            if delimiter and delimiter in below:
                folders.append(prefix + below.partition(delimiter)[0] + delimiter)
            else:
                entries.append(key)
        first = int(query.get("continuation-token", "0"))
        contents = "".join(map(partial(self._entry, bucket), entries[first : first + PAGE]))
        common = (
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in dict.fromkeys(folders)
        )
        more = first + PAGE < len(entries)
        following = f"<NextContinuationToken>{first + PAGE}</NextContinuationToken>" if more else ""
        text = f"<IsTruncated>{str(more).lower()}</IsTruncated>{following}{contents}{'' if first else ''.join(common)}"
        return self._send(200, f"<ListBucketResult>{text}</ListBucketResult>".encode(), {})

    def _entry(self, bucket: str, key: str) -> str:
        content = self.served.objects[f"{bucket}/{key}"]
        return (
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{_tag(content)}</ETag><Size>{len(content)}</Size></Contents>"
        )

    def _write(self, name: str, query: dict[str, str], body: bytes) -> None:
        if "uploadId" not in query:
            return self._put(name, body)
        if query["uploadId"] not in self.served.uploads:
            return self._refuse(404, "NoSuchUpload")
        self.served.uploads[query["uploadId"]][int(query["partNumber"])] = body
        return self._send(200, b"", {"ETag": _tag(body)})

    def _put(self, name: str, content: bytes) -> None:
        if not self._store(name, content):
            return self._refuse(412, "PreconditionFailed")
        return self._send(200, b"", {"ETag": _tag(content)})

    def _store(self, name: str, content: bytes) -> bool:
        """Whether the conditions of the request hold; if so, the object is what was sent."""
        with self.served.lock:
            found = self.served.objects.get(name)
            fits = self.headers.get("If-Match") in (None, None if found is None else _tag(found))
            if not self.served.knows_conditions:
                fits, found = True, None
            if not fits or (self.headers.get("If-None-Match") == "*" and found is not None):
                return False
            self.served.objects[name] = content
            return True

    def _post(self, bucket: str, key: str, query: dict[str, str], body: bytes) -> None:
        if "delete" in query:
            keys = [entry.text or "" for entry in ET.fromstring(body).iter() if _bare(entry) == "Key"]
            for one in keys:
                self.served.objects.pop(f"{bucket}/{one}", None)
            text = "".join(f"<Deleted><Key>{escape(one)}</Key></Deleted>" for one in keys)
            return self._send(200, f"<DeleteResult>{text}</DeleteResult>".encode(), {})
        if "uploads" in query:
            name = uuid.uuid4().hex
            self.served.uploads[name] = {}
            text = f"<Bucket>{bucket}</Bucket><Key>{escape(key)}</Key><UploadId>{name}</UploadId>"
            result = "InitiateMultipartUploadResult"
            return self._send(200, f"<{result}>{text}</{result}>".encode(), {})
        return self._complete(f"{bucket}/{key}", query.get("uploadId", ""), body)

    def _complete(self, name: str, upload: str, body: bytes) -> None:
        if upload not in self.served.uploads:
            return self._refuse(404, "NoSuchUpload")
        parts, numbers = self.served.uploads[upload], ET.fromstring(body).iter()
        wanted = [int(entry.text or 0) for entry in numbers if _bare(entry) == "PartNumber"]
        if not wanted or not set(wanted) <= set(parts):
            return self._refuse(400, "InvalidPart")
        content = b"".join(parts[number] for number in sorted(wanted))
        if not self._store(name, content):
            return self._refuse(412, "PreconditionFailed")
        del self.served.uploads[upload]
        result, key = "CompleteMultipartUploadResult", escape(name.partition("/")[2])
        text = f"<{result}><Key>{key}</Key><ETag>{escape(_tag(content))}</ETag></{result}>"
        return self._send(200, text.encode(), {})

    def _remove(self, name: str, query: dict[str, str]) -> None:
        if "uploadId" in query:
            self.served.uploads.pop(query["uploadId"], None)
        else:
            self.served.objects.pop(name, None)
        self._send(204, b"", {})

    def _refuse(self, status: int, code: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>told to</Message></Error>"
        self._send(status, text.encode(), {})

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(content))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.command == "GET" and status < 300 and self.served.cuts:
            self.served.cuts -= 1
            content, self.close_connection = content[: len(content) // 2], True
        self.wfile.write(content)


def _bare(entry: ET.Element) -> str:
    """Name of an element, without its namespace."""
    return entry.tag.rpartition("}")[2]


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
