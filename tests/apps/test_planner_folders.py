"""A folder as a book, and texts in other encodings than UTF-8."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pausepoint import Engine
from pausepoint.apps.input import BadInput
from pausepoint.apps.planner import folders, planner, sessions
from pausepoint.apps.planner.__main__ import main
from pausepoint.apps.planner.folders import read_folder
from pausepoint.apps.planner.materials import content_of
from pausepoint.apps.planner.models import Upload
from pausepoint.engine import BlockingEngine
from tests.apps.calls import Call, calling
from tests.apps.pdfs import make_pdf
from tests.apps.planner_kit import go_on, run

WORDS = "some plain words that say a little about the matter at hand and then stop\n"

call = calling(main)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[BlockingEngine]:
    with Engine(tmp_path / "planner.db", workflows=[planner]) as found:
        yield found


def written(folder: Path, files: dict[str, str]) -> Path:
    """A folder with these texts."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return folder


def chapter(title: str) -> str:
    return f"# {title}\n\n{WORDS}\n## More of it\n\n{WORDS * 3}"


# which files, and in which order


@pytest.mark.parametrize(
    ("files", "order"),
    [
        (["ch10.md", "ch2.md", "ch1.txt", "preface.md", "appendix.md"], ["preface", "ch1", "ch2", "ch10", "appendix"]),
        (["2/b.md", "2/README.md", "10/a.md", "1.rst"], ["1", "2/README", "2/b", "10/a"]),
        (["Über.md", "apples.md", "intro.md"], ["intro", "apples", "Über"]),
    ],
)
def test_the_names_of_the_files_say_the_order(tmp_path: Path, files: list[str], order: list[str]) -> None:
    folder = written(tmp_path / "book", {name: chapter(name) for name in files})
    assert [name.rpartition(".")[0] for name in read_folder(folder).chapters] == order


def test_a_summary_says_what_belongs_to_the_book(tmp_path: Path) -> None:
    summary = (
        "# Summary\n\n[Start](title.md)\n- [Two](b.md)\n  - [More](sub/a%20b.md#top)\n- [One](./a.md)\n- [Draft]()\n"
    )
    names = ["title.md", "a.md", "b.md", "sub/a b.md", "draft.md"]
    folder = written(tmp_path / "src", {name: chapter(name) for name in names} | {"SUMMARY.md": summary})
    found = read_folder(tmp_path)
    assert found.chapters == ["src/title.md", "src/b.md", "src/sub/a b.md", "src/a.md"]
    assert found.notes == ["Skipped 1 file (not in SUMMARY.md): src/draft.md."]
    assert read_folder(folder).chapters == ["title.md", "b.md", "sub/a b.md", "a.md"]


def test_an_index_says_what_comes_first_and_is_no_chapter_if_it_is_only_a_list(tmp_path: Path) -> None:
    tree = (
        "Eels\n====\n\n.. toctree::\n   :maxdepth: 2\n\n   long\n   On short eels <short>\n   sea/*\n\nThat is all.\n"
    )
    names = ["short.rst", "long.rst", "other.rst", "sea/b.rst", "sea/a.rst"]
    folder = written(tmp_path, {name: f"{name}\n=========\n\n{WORDS}" for name in names} | {"index.rst": tree})
    assert read_folder(folder).chapters == ["long.rst", "short.rst", "sea/a.rst", "sea/b.rst", "other.rst"]
    (folder / "index.rst").write_text(tree + WORDS * 20)
    assert read_folder(folder).chapters[0] == "index.rst"


def test_what_is_skipped_is_named_with_the_reason(tmp_path: Path) -> None:
    outside = written(tmp_path / "outside", {"secret.md": chapter("Secret")})
    folder = written(tmp_path / "book", {
        "a.md": chapter("A"), ".hidden.md": "x", ".git/config.md": "x", "node_modules/x/README.md": "x", "empty.md": "",
        "~$a.md": "x", "b.md": chapter("B"), **{f"img/{number}.png": "x" for number in range(7)},
    })  # fmt: skip
    make_pdf(folder / "b.pdf", [["text"]])
    make_pdf(folder / "locked.pdf", [["text"]], encrypted=True)
    (folder / "out.md").symlink_to(outside / "secret.md")
    (folder / "way").symlink_to(outside)
    (folder / "loop").symlink_to(folder)
    (folder / "gone.md").symlink_to(folder / "nowhere.md")
    found = read_folder(folder)
    assert found.chapters == ["a.md", "b.md"]
    assert sorted(found.notes) == [
        "Skipped 1 file (a link that leads out of the folder): out.md.",
        "Skipped 1 file (same name as b.md): b.pdf.",
        "Skipped 1 file (the file is empty): empty.md.",
        "Skipped 1 file (the pdf is encrypted): locked.pdf.",
        "Skipped 2 files (a link to a folder): loop, way.",
        "Skipped 7 files (a type that cannot be read): img/0.png, img/1.png, img/2.png, img/3.png,"
        " img/4.png and 2 more.",
    ]


def test_a_folder_without_files_and_one_with_too_many_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadInput, match=r"The folder has no file that can be read \(\.pdf, "):
        read_folder(tmp_path)
    written(tmp_path, {f"{number}.md": chapter("A") for number in range(6)})
    monkeypatch.setattr(folders, "MOST_FILES", 5)
    with pytest.raises(BadInput, match="has 6 files that can be read, and a book has at most 5"):
        read_folder(tmp_path)
    monkeypatch.setattr(folders, "MOST_ENTRIES", 5)
    with pytest.raises(BadInput, match=r"has more than 5 files\. Name the folder of one book"):
        read_folder(tmp_path)


# a session


@pytest.mark.long
def test_a_file_of_a_folder_is_a_chapter_with_the_title_of_its_text_or_its_metadata_or_its_name(
    engine: BlockingEngine, tmp_path: Path
) -> None:
    folder = written(tmp_path / "eels", {
        "01-start.md": chapter("Eels"), "02-two.md": f"# One\n\n{WORDS}\n# Two\n\n{WORDS}",
        "03.md": f'---\ntitle: "Of rivers"\nweight: 3\n---\n\n{WORDS}\n## Deep\n\n{WORDS}',
        "04-long_eels.txt": WORDS * 3, "05.md": chapter("Indexes"), "06.md": chapter("Exercises"),
        "07.md": chapter("Exercises") + WORDS, "08.md": "# Not yet\n\nComing soon.\n", "LICENSE.md": chapter("License"),
    })  # fmt: skip
    uploads, notes = folders.expanded([Upload(path=folder, course_ids=["calc2"])])
    document = run(engine, uploads=uploads)
    topics = [each.topic for each in document.ingestion_state.course_topic_evidence if each.course_id == "calc2"]
    assert topics == ["Eels", "Two", "Of rivers", "Long eels", "Indexes", "Exercises", "Exercises (2)"]
    assert notes == []
    assert {file.book for file in document.file_registry.values()} == {"eels"}
    assert [(each.filename, each.why) for each in document.ingestion_state.set_aside] == [
        ("08.md", "next to no text"), ("LICENSE.md", "licence or copyright"),
    ]  # fmt: skip


def test_a_row_names_a_chapter_of_a_folder_by_its_title_and_not_by_its_file(
    engine: BlockingEngine, tmp_path: Path
) -> None:
    folder = written(tmp_path / "notes", {"01-sets.md": chapter("Sets"), "02-maps.md": chapter("Maps")})
    uploads, _ = folders.expanded([Upload(path=folder, course_ids=["calc2"])])
    tasks = [row.task_description for row in run(engine, uploads=uploads).planning_state.plan_rows]
    assert any("Study Sets, “More of it”; Maps, “More of it”" in task for task in tasks), tasks
    assert not any("01-sets" in task for task in tasks)


def test_chapters_of_a_few_words_are_studied_if_their_folder_has_no_others(
    engine: BlockingEngine, tmp_path: Path
) -> None:
    texts = {"a.md": "# Sets\n\nA set has members.\n", "b.md": "# Maps\n\nA map has values.\n", "c.md": "# Later\n"}
    uploads, _ = folders.expanded([Upload(path=written(tmp_path / "notes", texts), course_ids=["calc2"])])
    state = run(engine, uploads=uploads).ingestion_state
    topics = [each.topic for each in state.course_topic_evidence if each.course_id == "calc2"]
    assert topics == ["Sets", "Maps"]
    assert [(each.filename, each.why) for each in state.set_aside] == [("c.md", "next to no text")]


@pytest.mark.long
def test_a_folder_is_added_again_with_its_new_chapters_in_their_places(
    here: Path,
    call: Call,
    tmp_path: Path,
) -> None:
    folder = written(here / "book", {"2.md": chapter("Two"), "10.md": chapter("Ten"), "x.png": "x"})
    assert call("create", "--session-id", "s1", "--course", "a:A:2031-01-01", "--start", "2030-12-20").code == 3
    added = call("file", "s1", folder, "--course", "a")
    assert (added.code, added.err) == (0, f"planner: {folder}: Skipped 1 file (a type that cannot be read): x.png.\n")
    written(folder, {"3.md": chapter("Three")})
    again = call("file", "s1", f"{folder}/", "--course", "a")
    assert again.out.count("is already in the session") == 2
    files = call("document", "s1").document["file_registry"].values()
    assert [file["filename"] for file in files] == ["2.md", "3.md", "10.md"]
    assert call("resume", "s1").code == 0
    plan = call("document", "s1").document
    assert [each["topic"] for each in plan["estimation_state"]["topic_estimates"]] == ["Two", "Three", "Ten"]


@pytest.mark.long
def test_a_chapter_that_has_changed_is_replaced_and_not_added(here: Path, call: Call) -> None:
    folder = written(here / "book", {"1.md": chapter("One"), "sub/2.md": chapter("Two")})
    assert call("create", "--session-id", "s1", "--course", "a:A:2031-01-01", "--start", "2030-12-20").code == 3
    assert call("file", "s1", "book", "--course", "a").code == 0
    before = call("document", "s1").document["file_registry"]
    written(folder, {"sub/2.md": chapter("Second"), "3.md": chapter("Three")})
    refused = call("file", "s1", "book", "--course", "a")
    assert (refused.code, call("document", "s1").document["file_registry"]) == (2, before)
    command = refused.err.partition("Replace it: ")[2].split()
    assert "Book 'book' has another content under the name 'sub/2.md'." in refused.err
    assert call(*command[command.index("replace") :]).code == 0
    named = [file["filename"] for file in call("document", "s1").document["file_registry"].values()]
    assert named == ["1.md", "3.md", "sub/2.md"]
    written(here, {"1.md": chapter("First")})
    alone = call("file", "s1", "1.md", "--course", "a", "--book", "book")
    command = alone.err.partition("Replace it: ")[2].split()
    assert call(*command[command.index("replace") :]).code == 0
    assert call("resume", "s1").code == 0
    found = call("document", "s1").document["estimation_state"]["topic_estimates"]
    assert [each["topic"] for each in found] == ["First", "Three", "Second"]


@pytest.mark.long
def test_a_folder_is_material_from_the_start_and_some_files_are_a_book_on_request(
    here: Path,
    call: Call,
) -> None:
    written(here / "book", {"2.md": chapter("Two"), "10.md": chapter("Ten")})
    written(here, {"c1.md": f"# I\n\n{WORDS}\n# II\n\n{WORDS * 2}", "c10.md": chapter("C10"), "c2.md": chapter("C2")})
    made = call(
        "create", "--session-id", "s1", "--course", "a:A:2031-01-01", "--start", "2030-12-20", "--file", "a:book"
    )
    assert made.code == 3
    assert call("resume", "s1").code == 0
    more = call("file", "s1", "c1.md", "c10.md", "c2.md", "--course", "a", "--book", "Crabs", "--run")
    assert more.code == 0
    found = call("document", "s1").document["estimation_state"]["topic_estimates"]
    assert [each["topic"] for each in found] == ["Two", "Ten", "C1", "C2", "C10"]


def test_an_empty_folder_is_refused_before_anything_is_stored(here: Path, call: Call) -> None:
    (here / "book").mkdir()
    done = call("create", "--course", "a:A:2031-01-01", "--file", "a:book")
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert "book: The folder has no file that can be read" in done.err
    assert not (here / ".pausepoint").exists()


# removing and replacing


@pytest.mark.long
def test_a_removed_file_is_gone_from_the_plan_and_the_marks_of_a_replaced_one_stay(
    here: Path,
    call: Call,
) -> None:
    written(here, {"a.md": f"# A\n\n{WORDS}\n# B\n\n{WORDS}", "c.md": f"# C\n\n{WORDS}\n# D\n\n{WORDS}"})
    made = ["create", "--session-id", "s1", "--course", "a:A:2031-01-01", "--start", "2030-12-20"]
    assert call(*made, "--file", "a:a.md", "--file", "a:c.md").code == 3
    assert call("resume", "s1").code == 0
    assert call("done", "s1", "B").code == 0
    written(here, {"new.md": f"# B\n\n{WORDS}\n# E\n\n{WORDS}"})
    replaced = call("replace", "s1", "a.md", "new.md", "--run")
    assert (replaced.code, "a.md was replaced: new.md." in replaced.out) == (0, True)
    document = call("document", "s1").document
    assert [each["topic"] for each in document["estimation_state"]["topic_estimates"]] == ["B", "E", "C", "D"]
    assert [each["topic"] for each in document["user_inputs"]["progress"]] == ["B"]
    planned = {part["topic"] for row in document["planning_state"]["plan_rows"] for part in row["parts"]}
    assert planned == {"E", "C", "D"}
    removed = call("remove", "s1", "c.md", "--run")
    assert (removed.code, "Removed 1 file: c.md." in removed.out) == (0, True)
    document = call("document", "s1").document
    assert [each["filename"] for each in document["file_registry"].values()] == ["new.md"]
    assert [each["topic"] for each in document["estimation_state"]["topic_estimates"]] == ["B", "E"]
    assert call("remove", "s1", "c.md").code == 2


def test_a_file_is_removed_before_the_session_has_begun(here: Path, call: Call) -> None:
    written(here, {"a.md": chapter("A"), "b.md": chapter("B")})
    made = ["create", "--session-id", "s1", "--course", "a:A:2031-01-01", "--start", "2030-12-20"]
    assert call(*made, "--file", "a:a.md", "--file", "a:b.md").code == 3
    assert call("remove", "s1", "a.md").code == 0
    assert call("resume", "s1").code == 0
    found = call("document", "s1").document
    assert [each["source_files"] for each in found["estimation_state"]["topic_estimates"]] == [["b.md"]]


@pytest.mark.long
def test_a_book_follows_its_folder(here: Path, call: Call) -> None:
    folder = written(here / "book", {"1.md": chapter("One"), "2.md": chapter("Two"), "3.md": chapter("Three")})
    made = ["create", "--session-id", "s1", "--course", "a:A:2031-01-01", "--start", "2030-12-20"]
    assert call(*made, "--file", "a:book").code == 3
    assert call("resume", "s1").code == 0
    (folder / "1.md").unlink()
    written(folder, {"2.md": chapter("Second"), "4.md": chapter("Four")})
    assert call("replace", "s1", "book", "book", "--run").code == 0
    found = call("document", "s1").document
    assert [each["topic"] for each in found["estimation_state"]["topic_estimates"]] == ["Second", "Three", "Four"]


@pytest.mark.long
def test_folders_of_one_name_are_two_books(here: Path, call: Call) -> None:
    for course in ("calc", "phys"):
        written(here / course / "notes", {"1.md": chapter(f"First {course}"), "2.md": chapter(f"Second {course}")})
    courses = ["--course", "calc:Calculus:2031-01-01", "--course", "phys:Physics:2031-01-01", "--start", "2030-12-20"]
    made = call("create", "--session-id", "s1", *courses, "--file", "calc:calc/notes", "--file", "phys:phys/notes")
    assert made.code == 3
    assert call("resume", "s1").code == 0
    found = call("document", "s1").document
    assert [(each["book"], each["filename"], each["course_ids"]) for each in found["file_registry"].values()] == [
        (f"{course}/notes", name, [course]) for course in ("calc", "phys") for name in ("1.md", "2.md")
    ]
    assert [each["topic"] for each in found["estimation_state"]["topic_estimates"]] == [
        "First calc", "Second calc", "First phys", "Second phys"
    ]  # fmt: skip
    assert call("remove", "s1", "calc/notes").code == 0


@pytest.mark.long
def test_a_folder_with_the_name_of_a_book_of_another_course_is_a_book_of_its_own(here: Path, call: Call) -> None:
    for course in ("calc", "phys"):
        written(here / course / "notes", {"1.md": chapter(f"First {course}")})
    courses = ["--course", "calc:Calculus:2031-01-01", "--course", "phys:Physics:2031-01-01", "--start", "2030-12-20"]
    assert call("create", "--session-id", "s1", *courses, "--file", "calc:calc/notes").code == 3
    assert call("resume", "s1").code == 0
    assert call("file", "s1", "phys/notes", "--course", "phys", "--run").code == 0
    found = call("document", "s1").document
    assert [each["book"] for each in found["file_registry"].values()] == ["notes", "phys/notes"]
    written(here / "calc" / "notes", {"2.md": chapter("Second calc")})
    assert call("file", "s1", "calc/notes", "--course", "calc", "--run").code == 0  # the same folder, added again
    books = [each["book"] for each in call("document", "s1").document["file_registry"].values()]
    assert books == ["notes", "notes", "phys/notes"]


@pytest.mark.long
def test_two_chapters_of_one_name_in_a_book_are_refused(here: Path, call: Call) -> None:
    written(here, {"a/1.md": chapter("A"), "b/1.md": chapter("B"), "c/2.md": chapter("C"), "d/2.md": chapter("D")})
    written(here / "d", {"1.md": chapter("E")})
    made = ["create", "--session-id", "s1", "--course", "a:A:2031-01-01", "--start", "2030-12-20"]
    assert call(*made, "--file", "a:d").code == 3
    assert call("resume", "s1").code == 0
    refused = call("file", "s1", "a/1.md", "b/1.md", "--course", "a", "--book", "x")
    assert refused.code == 2
    assert f"{here}/b/1.md: Book 'x' would have two chapters called '1.md'. The other is {here}/a/1.md. " in refused.err
    refused = call("replace", "s1", "1.md", "c")
    assert refused.code == 2
    assert "c/2.md: Book 'd' has '2.md' already. To replace all of it, name the book: " in refused.err


@pytest.mark.long
def test_a_folder_in_the_place_of_a_file_keeps_its_role_and_says_what_is_not_read(here: Path, call: Call) -> None:
    written(here, {"a.md": chapter("A"), "old.md": "1. Integrate x.", "new/1.md": "1. Solve y.", "new/2.png": "x"})
    made = ["create", "--session-id", "s1", "--course", "a:A:2031-01-01", "--start", "2030-12-20"]
    assert call(*made, "--file", "a:a.md", "--exercises", "a:old.md").code == 3
    assert call("resume", "s1").code == 0
    replaced = call("replace", "s1", "old.md", "new", "--run")
    assert replaced.code == 0
    assert "new: Skipped 1 file (a type that cannot be read): 2.png." in replaced.err
    files = call("document", "s1").document["file_registry"].values()
    assert [(each["filename"], each["role"]) for each in files] == [("a.md", "book"), ("1.md", "exercises")]


# texts that are not UTF-8

TEXTS = [
    ("latin-1", "# Größen\n\nDie Länge ist eine Größe. Für Schüler: Übungen löst man täglich.\n"),
    ("cp1252", "# L’été\n\nIl « a été » à la forêt – où ça ? Les élèves français s’ennuient déjà…\n"),
    ("latin-1", "# Cálculo\n\nLa función está en el índice. ¿Qué significa «año»? Mañana, señor.\n"),
    ("cp1250", "# Łodzie\n\nŻeglarze są mądrzy i płyną dalej. Jeśli wieje wiatr, źle się dzieje.\n"),
    *(
        (charset, text)
        for charset in ("cp1250", "iso8859-2")
        for text in (
            "# Úhoři\n\nÚhoři žijí v řece. Příběh je dlouhý, šťastný a žádný člověk ho nezná.\n",
            "# Úhory\n\nMuži žijú pri rieke. Príbeh je dlhý, šťastný a ľúbezný.\n",
            "# Anghile\n\nAnghila trăieşte în râu şi înoată spre mare, ştiută de toţi pescarii.\n",
            "# Angolnák\n\nA fűzfa és az őszi erdő között élő angolna hosszú útja.\n",
            "# Jegulje\n\nŽivot je čudan, a šuma šumi. Žena čeka.\n",
        )
    ),
    ("cp1251", "# Угри\n\nУгри живут в реке и плывут в море. Это длинная история.\n"),
    ("koi8-r", "# Угри\n\nУгри живут в реке и плывут в море. Это длинная история.\n"),
    ("iso8859-7", "# Χέλια\n\nΤα χέλια ζουν στο ποτάμι και πηγαίνουν στη θάλασσα.\n"),
    ("shift_jis", "# 鰻\n\nこれは鰻についての本です。川から海へ行きます。\n"),
    ("euc-jp", "# 鰻\n\nこれは鰻についての本です。川から海へ行きます。\n"),
    ("gb18030", "# 鳗鱼\n\n这是一本关于鳗鱼的书。它们从河里游到海里。\n"),
    ("euc-kr", "# 뱀장어\n\n이것은 뱀장어에 관한 책입니다. 강에서 바다로 갑니다.\n"),
    ("utf-16", "# Größen\n\nDie Länge ist eine Größe.\n"),
    ("utf-8-sig", "# Größen\n\nDie Länge ist eine Größe.\n"),
]


@pytest.mark.parametrize(("charset", "text"), TEXTS)
def test_a_text_in_another_encoding_is_read_as_its_words(tmp_path: Path, charset: str, text: str) -> None:
    path = tmp_path / "notes.md"
    path.write_bytes(text.encode(charset))
    content, kind = content_of(path)
    found = path.read_bytes() if content == path else content
    assert isinstance(found, bytes)
    assert (found.decode("utf-8-sig"), kind) == (text, "text/markdown")


@pytest.mark.long
def test_a_text_in_another_encoding_is_a_file_of_a_session(engine: BlockingEngine, tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_bytes(f"# Größen\n\n{WORDS}\nDie Länge ist eine Größe.".encode("latin-1"))
    document = run(engine, uploads=[Upload(path=path, course_ids=["calc2"])])
    assert document.ingestion_state.course_topic_evidence[0].topic == "Größen"
    other = tmp_path / "more.txt"
    other.write_bytes(f"Chapter 1: Übungen\n\n{WORDS}\nChapter 2: Größe\n\n{WORDS}".encode("utf-16"))
    sessions.add_file(engine, "s1", Upload(path=other, course_ids=["calc2"]))
    topics = [each.topic for each in go_on(engine).ingestion_state.course_topic_evidence]
    assert topics[:3] == ["Größen", "Übungen (more.txt)", "Größe"]


def test_a_file_whose_name_is_no_text_is_skipped(tmp_path: Path) -> None:
    written(tmp_path, {"a.md": chapter("A"), os.fsdecode(b"Gr\xf6\xdfe.md"): chapter("B")})
    found = read_folder(tmp_path)
    assert (found.chapters, found.notes) == (["a.md"], ["Skipped 1 file (its name is not valid text): Gr??e.md."])
