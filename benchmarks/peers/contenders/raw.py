"""The least that a durable program pays: the standard library's sqlite3, WAL, synchronous=FULL, one commit per step."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from pathlib import Path

from benchmarks.peers.contender import Contender, Job, Sample, main, message, reply, settle, stored, text

SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (id INTEGER PRIMARY KEY, status TEXT, ballast BLOB, note TEXT);
CREATE TABLE IF NOT EXISTS steps (session INTEGER, n INTEGER, data TEXT, PRIMARY KEY (session, n)) WITHOUT ROWID;
"""


class Raw(Contender):
    """Plain SQLite."""

    name = "raw"

    def versions(self) -> dict[str, str]:
        return {"SQLite": sqlite3.sqlite_version}

    def lone(self, job: Job) -> Sample:
        database = _open(job)
        n = 0
        while job.more(n):
            job.begins(n)
            _step(database, 1, n, text(n))
            n += 1
        job.mark()
        return job.per_step()

    growing = lone  # a new row of 1 KiB in both

    def crowd(self, job: Job) -> Sample:
        database = _open(job)
        job.mark()
        for session in range(job.sessions):
            database.execute("INSERT INTO sessions (id, status) VALUES (?, 'running')", (session,))
            database.commit()
        done = 0
        for n in range(job.steps):
            for session in range(job.sessions):
                if job.in_time:
                    _step(database, session, n, text(n))
                    done += 1
        for session in range(job.sessions):
            database.execute("UPDATE sessions SET status = 'completed' WHERE id = ?", (session,))
            database.commit()
        return job.took(done)

    def beside(self, job: Job) -> Sample:
        database = _open(job)
        database.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, note TEXT)")
        database.execute("INSERT INTO sessions (id, ballast) VALUES (1, ?)", (text(0, job.size["ballast"]),))
        database.execute("INSERT INTO notes VALUES (1, '')")
        database.commit()
        n = 0
        while job.more(n):
            job.begins(n)
            database.execute("UPDATE notes SET note = ? WHERE id = 1", (text(n, 100),))
            database.commit()
            n += 1
        job.mark()
        return job.per_step()

    def resume_prepare(self, job: Job) -> Sample:
        database = _open(job)
        for n in range(job.steps):
            _step(database, 1, n, text(n))
        os._exit(0)

    def resume(self, job: Job) -> Sample:
        begin = time.perf_counter()
        [(n, data)] = _open(job).execute("SELECT n, data FROM steps WHERE session = 1 ORDER BY n DESC LIMIT 1")
        assert (n, data) == (job.steps - 1, text(job.steps - 1))
        return Sample(time.perf_counter() - begin)

    def questions(self, job: Job) -> Sample:
        database = _open(job)
        asked = json.dumps({"question": "Formal or playful?", "choices": ["formal", "playful"]})
        session = 0
        while session < job.sessions and job.in_time:
            database.execute("INSERT INTO sessions (id, status, note) VALUES (?, 'waiting', ?)", (session, asked))
            database.commit()
            session += 1
        database.close()
        settle(job.folder / "raw.db")
        return Sample(count=session, bytes=stored(job.folder))

    def map(self, job: Job) -> Sample:
        database = _open(job)
        begin = time.perf_counter()
        for n in range(job.size["items"]):
            _step(database, 1, n, text(n, 100))
        return Sample(time.perf_counter() - begin, job.size["items"])

    def pause(self, job: Job) -> Sample:
        database = _open(job)
        for session in range(job.sessions):
            database.execute("INSERT INTO sessions (id, status) VALUES (?, 'running')", (session,))
        database.commit()
        begin = time.perf_counter()
        for session in range(job.sessions):
            database.execute("INSERT INTO steps VALUES (?, 0, 'done')", (session,))
            database.execute("UPDATE sessions SET status = 'paused' WHERE id = ?", (session,))
            database.commit()
        return Sample(time.perf_counter() - begin)

    def chat_prepare(self, job: Job) -> Sample:
        database = _open(job)
        for n in range(job.size["turns"]):
            _turn(database, n)
        return Sample()

    def chat(self, job: Job) -> Sample:
        begin = time.perf_counter()
        database = _open(job)
        [(last,)] = database.execute("SELECT max(n) FROM steps WHERE session = 1")
        first = last // 2 + 1
        for n in range(first, first + job.size["warm"]):
            _turn(database, n)
        if job.size["warm"]:
            begin, first = time.perf_counter(), first + job.size["warm"]
        for n in range(first, first + job.size["turns"]):
            _turn(database, n)
        return Sample(time.perf_counter() - begin, job.size["turns"], notes={"total": time.time() - job.spawned})

    def listing_prepare(self, job: Job) -> Sample:
        database = _open(job)
        for session in range(job.sessions):
            database.execute("INSERT INTO sessions (id, status) VALUES (?, 'completed')", (session,))
            database.execute("INSERT INTO steps VALUES (?, 0, 'done')", (session,))
        database.commit()
        return Sample(count=job.sessions)

    def listing(self, job: Job) -> Sample:
        database = _open(job)
        begin = time.perf_counter()
        for _ in range(job.size["reads"]):
            found = database.execute("SELECT id, status FROM sessions ORDER BY id DESC LIMIT 50").fetchall()
            assert len(found) == 50
        return Sample(time.perf_counter() - begin, job.size["reads"])


def _open(job: Job) -> sqlite3.Connection:
    path: Path = job.folder / "raw.db"
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = WAL").fetchone()
    database.execute("PRAGMA synchronous = FULL")
    database.executescript(SCHEMA)
    return database


def _step(database: sqlite3.Connection, session: int, n: int, data: str) -> None:
    database.execute("INSERT INTO steps VALUES (?, ?, ?)", (session, n, data))
    database.commit()


def _turn(database: sqlite3.Connection, n: int) -> None:
    """Store a message; read the last twenty; store the answer."""
    _step(database, 1, 2 * n, message(n))
    database.execute("SELECT data FROM steps WHERE session = 1 ORDER BY n DESC LIMIT 20").fetchall()
    _step(database, 1, 2 * n + 1, reply(n))


if __name__ == "__main__":
    main(Raw())
