"""The real emulator of Firestore, for the tests of the mirror. It needs Java."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from google.cloud.firestore import Client

from tests.support.loop import PATIENCE
from tests.support.ports import free_port

JAR = "platform/cloud-firestore-emulator/cloud-firestore-emulator.jar"
SDKS = ("/usr/lib/google-cloud-sdk", "/usr/share/google-cloud-sdk", "~/google-cloud-sdk")
VARIABLE = "FIRESTORE_EMULATOR_HOST"
MAIN = "com.google.cloud.datastore.emulator.firestore.CloudFirestore"

HOW = (
    "The emulator of Firestore or Java 17 is not installed. Run `gcloud components install cloud-firestore-emulator` "
    "and `apt install default-jre-headless`, or set PAUSEPOINT_FIRESTORE_JAR to the path of the emulator."
)


def find() -> Path | None:
    """Return the path of the emulator, or None if this machine lacks it or Java."""
    if shutil.which("java") is None:
        return None
    named = os.environ.get("PAUSEPOINT_FIRESTORE_JAR")
    places = [Path(named)] if named else [Path(sdk).expanduser() / JAR for sdk in SDKS]
    return next((place for place in places if place.exists()), None)


class Emulator:
    """An emulator that can be stopped and started again. It keeps nothing when it stops."""

    def __init__(self, jar: Path, folder: Path) -> None:
        self.jar = jar
        self.log = folder / "emulator.log"
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", str(self.jar), MAIN, "start"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*words, "--host=127.0.0.1", f"--port={self.port}"], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        end = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self.process.poll() is None, self.log.read_text()
                assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(PATIENCE)

    def client(self) -> Client:
        """Return a client of a new, empty project."""
        return Client(project=f"project-{uuid.uuid4().hex[:8]}")


@contextmanager
def emulating(jar: Path, folder: Path) -> Iterator[Emulator]:
    """Run the emulator until the block ends. Clients that are made in the block use it."""
    emulator, before = Emulator(jar, folder), os.environ.get(VARIABLE)
    try:
        emulator.start()
        os.environ[VARIABLE] = f"127.0.0.1:{emulator.port}"
        yield emulator
    finally:
        emulator.stop()
        os.environ.pop(VARIABLE, None)
        if before is not None:
            os.environ[VARIABLE] = before
