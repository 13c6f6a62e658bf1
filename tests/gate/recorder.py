"""A hook that writes down each of its calls: ``python recorder.py LOG``. Standard library only.

It refuses a call whose command contains "refuse-me". While the file ``LOG.hold`` exists, calls that contain its text
wait.
"""

from __future__ import annotations

import json
import os
import sys
import time


def main(log: str) -> None:
    given = json.load(sys.stdin)
    note(log, {**given, "at": time.time(), "sid": os.getsid(0), "hook": os.getpid()})
    if given["hook_event_name"] != "PreToolUse":
        return
    call = json.dumps(given["tool_input"])
    while is_held(f"{log}.hold", call):
        time.sleep(0.02)
    if "refuse-me" in call:
        answer = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "Not now."}
        print(json.dumps({"hookSpecificOutput": answer}))


def is_held(file: str, call: str) -> bool:
    try:
        with open(file) as hold:
            return hold.read() in call
    except FileNotFoundError:
        return False


def note(log: str, what: dict[str, object]) -> None:
    """Append one line, in one write: hooks run at the same time."""
    line = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(line, json.dumps(what).encode() + b"\n")
    os.close(line)


if __name__ == "__main__":
    main(sys.argv[1])
