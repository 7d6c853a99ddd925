"""A server that shows the metrics of a scene, as sglang names them, and burns a core if the scene says so.

`python staged_server.py SCENE.json` prints its port. A scene: {"info": /server_info, "ranks": [{name: value}], "growing": {name: by}, "burns"}.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SCENE: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))


class Handler(BaseHTTPRequestHandler):
    looks = 0

    def do_GET(self) -> None:
        if self.path == "/server_info":
            self._say(200, json.dumps(SCENE["info"]))
        elif self.path == "/metrics" and "text" in SCENE:
            self._say(SCENE.get("status", 200), SCENE["text"])
        elif self.path == "/metrics":
            Handler.looks += 1
            if Handler.looks > SCENE.get("dies_after", 10_000):
                self.server.shutdown()
                return
            self._say(200, self._metrics())
        else:
            self._say(404, "")

    @staticmethod
    def _metrics() -> str:
        lines: dict[str, list[str]] = {}
        for number, rank in enumerate(SCENE["ranks"]):
            labels = 'model_name="m",tp_rank="0"' + (f',dp_rank="{number}"' if len(SCENE["ranks"]) > 1 else "")
            for name, value in rank.items():
                # A list is walked along, look after look.
                shown = value[Handler.looks % len(value)] if isinstance(value, list) else value
                shown += SCENE.get("growing", {}).get(name, 0) * Handler.looks
                lines.setdefault(name, []).append(f"sglang:{name}{{{labels}}} {shown}")
        texts = []
        for name, of_name in lines.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            texts += [f"# HELP sglang:{name} …", f"# TYPE sglang:{name} {kind}", *of_name]
        return "\n".join(texts) + "\n"

    def _say(self, status: int, text: str) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name)
        pass


def burn() -> None:
    while True:
        sum(range(100_000))


if __name__ == "__main__":
    served = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(served.server_address[1], flush=True)
    if SCENE.get("burns"):
        threading.Thread(target=burn, daemon=True).start()
    served.serve_forever()
