"""An HTTP server as a process of its own, that keeps the numbers of the rows that it takes.

    python -m tests.http_receiver PORT FOLDER

It appends each number to FOLDER/written, refuses a text that begins with "refused" and a wrong token, and, if there is a file
FOLDER/lose, removes it and does not answer the request that it has just kept.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.killable import Killable
from tests.port_ranges import free_range
from tests.zookeeper_servers import eventually

TOKEN = "Bearer right"


class HttpReceiver(Killable):
    """The process. folder: where it keeps what it takes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "log")
        self.folder = folder
        self.port = free_range(1)[0]

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.launch([sys.executable, "-m", "tests.http_receiver", str(self.port), str(self.folder)])
        eventually(self._answers)

    def _answers(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://127.0.0.1:{self.port}/", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def written(self) -> list[int]:
        """The numbers that it has taken."""
        path = self.folder / "written"
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


class Handler(BaseHTTPRequestHandler):
    """Takes rows. A subclass has the folder."""

    protocol_version = "HTTP/1.1"
    folder: Path

    def do_GET(self) -> None:
        self.answer(200)

    def do_POST(self) -> None:
        row = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["authorization"] != TOKEN:
            self.answer(401)
        elif row["text"].startswith("refused"):
            self.answer(422)
        else:
            with (self.folder / "written").open("a") as file:
                file.write(f"{row['number']}\n")
            if (lose := self.folder / "lose").exists():
                lose.unlink()
                self.close_connection = True
            else:
                self.answer(200)

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    Handler.folder = Path(sys.argv[2])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
