"""Copy a store in a SQLite file while engines use it: python backup.py STORE FOLDER

The folder must not exist. It gets pausepoint.db and the files of the sessions, readable by you only.
"""

import os
import shutil
import sys
from pathlib import Path

import apsw

store, folder = Path(sys.argv[1]), Path(sys.argv[2])
if not store.is_file():
    sys.exit(f"There is no store at {store}.")
os.umask(0o077)
folder.mkdir(parents=True)
source = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY)
source.set_busy_timeout(30_000)
source.execute("VACUUM INTO ?", (str(folder / "pausepoint.db"),))  # one moment of the store, however long it takes
source.close()
files = Path(f"{store}.sessions")
if files.exists():  # after the database: every file that the copy names was there before
    shutil.copytree(files, folder / "pausepoint.db.sessions", symlinks=True)
print(f"{folder} has {sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()):,} bytes")
