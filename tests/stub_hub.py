"""A stub of the Hugging Face Hub on loopback: repositories in memory, as its client uses them."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

OWNER = "birds"  # the only owner for whom the token counts
TOKEN = "hf_of_a_test"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class StubHub(ThreadingHTTPServer):
    """`repositories` are files by path, by repository; `requests` are lines such as GET /path."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.requests: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def stub_hub() -> Iterator[StubHub]:
    with StubHub() as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()


class Handler(BaseHTTPRequestHandler):
    """The requests that uploading and downloading a small repository make."""

    protocol_version = "HTTP/1.1"
    server: StubHub

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append(f"POST {self.path}")
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.refuse(401, "Invalid username or password.")
        if self.path == "/api/validate-yaml":
            return self.send({"errors": [], "warnings": []})
        if self.path == "/api/repos/create":
            return self.create(json.loads(content))
        match = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(preupload|commit)/main", self.path)
        assert match, self.path
        files = self.server.repositories[match[1]]
        if match[2] == "preupload":
            paths = [file["path"] for file in json.loads(content)["files"]]
            modes = [
                {"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in paths
            ]
            return self.send({"files": modes})
        for line in content.splitlines():
            operation = json.loads(line)
            if operation["key"] == "file":
                value = operation["value"]
                files[value["path"]] = base64.b64decode(value["content"])
        url = f"{self.server.address}/{match[1]}/commit/{COMMIT}"
        return self.send({"success": True, "commitOid": COMMIT, "commitUrl": url, "hookOutput": ""})

    def create(self, wanted: dict[str, str]) -> None:
        owner = wanted.get("organization", OWNER)
        if owner != OWNER:
            return self.refuse(403, "You don't have the rights to create a model here.")
        repository = f"{owner}/{wanted['name']}"
        url = f"{self.server.address}/{repository}"
        if repository in self.server.repositories:
            return self.send({"error": "You already created this model repo", "url": url}, 409)
        self.server.repositories[repository] = {}
        return self.send({"url": url, "name": repository, "id": repository})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.server.requests.append(f"{self.command} {self.path}")
        path = self.path.partition("?")[0]
        if match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/(main|v1|[0-9a-f]{40})/(.+)", path):
            return self.send_file(self.server.repositories[match[1]][match[3]])
        match = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?", path)
        assert match, path
        if match[1] not in self.server.repositories:
            return self.refuse(401, "Repository not found", code="RepoNotFound")
        if match[3] not in (None, "main", "v1", COMMIT):
            return self.refuse(404, "Invalid rev id", code="RevisionNotFound")
        files = self.server.repositories[match[1]]
        if match[2] == "tree":
            return self.send(
                [
                    {"type": "file", "path": path, "size": len(content), "oid": digest(content)}
                    for path, content in files.items()
                ]
            )
        siblings = [{"rfilename": path} for path in files]
        return self.send({"id": match[1], "sha": COMMIT, "siblings": siblings, "tags": []})

    def send_file(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{digest(content)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def send(self, values: object, status: int = 200) -> None:
        content = json.dumps(values).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def refuse(self, status: int, message: str, code: str | None = None) -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", message)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""


def digest(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()
