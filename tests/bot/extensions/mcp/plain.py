"""A server in bare JSON lines: starts in no time, lists what a file says, and misbehaves as its arguments say.

`plain.py WAY TOOLS COUNTER`: TOOLS is a file with the tools' JSON, COUNTER one that gets a line at each start.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

way, tools, counter = sys.argv[1:4]
with Path(counter).open("a") as file:
    print(os.getpid(), file=file)

match way:
    case "exit":
        print("ModuleNotFoundError: No module named 'workshop'", file=sys.stderr)
        sys.exit(3)
    case "garbage":
        while True:
            print("{" * 100)
    case "endless":
        while True:
            sys.stdout.write("{" + "x" * 65536)
    case "flood":
        noise = "import sys\nwhile True: sys.stderr.write('noise ' * 10000 + chr(10))"
        subprocess.Popen([sys.executable, "-c", noise], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    case "late" if not Path(f"{tools}.there").exists():
        sys.exit(3)
    case "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked or way == "mute":
        continue
    answer = {"jsonrpc": "2.0", "id": asked["id"]}
    match asked["method"], asked.get("params", {}):
        case "initialize", {"protocolVersion": version}:
            info = {"name": "plain", "version": "1"}
            answer["result"] = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list", _:
            answer["result"] = {"tools": json.loads(Path(tools).read_text())}
        case "tools/call", {"name": "die"}:
            os._exit(3)
        case "tools/call", {"name": "hang"}:
            continue
        case "tools/call", {"name": "raw", "arguments": {"result": result}}:
            answer = b'{"jsonrpc": "2.0", "id": %d, "result": %s}\n' % (asked["id"], bytes.fromhex(result))
            sys.stdout.buffer.write(b"\xef\xbb\xbf" + answer)
            sys.stdout.flush()
            continue
        case "tools/call", {"name": "change"}:
            print(json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
            answer["result"] = {"content": []}
        case "tools/call", {"name": "child"}:
            child = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL)
            answer["result"] = {"content": [{"type": "text", "text": str(child.pid)}]}
        case "tools/call", {"name": "environment"}:
            answer["result"] = {"content": [{"type": "text", "text": json.dumps(dict(os.environ))}]}
        case "tools/call", params:
            answer["result"] = {"content": [{"type": "text", "text": json.dumps(params.get("arguments"))}]}
        case _:
            answer["error"] = {"code": -32601, "message": "Method not found"}
    print(json.dumps(answer), flush=True)

if way == "stubborn":
    time.sleep(600)
