"""`show`, `plan`, `why`, `checkpoints` and `diff`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Engine
from pausepoint.cli.text import value
from tests.cli import documents
from tests.cli.kit import plain, run
from tests.cli.samples import execute, letters, within
from tests.cli.zoo import fill, here

Zoo = tuple[Path, dict[str, str]]


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    folder = tmp_path_factory.mktemp("zoo")
    return folder, fill(folder, "octopus", "fail", "wait", "guard", "call", "sleep", student="lunch")


def document(folder: Path, command: str, *args: str) -> Any:
    done = here(folder, command, *args, "--json")
    assert (done.code, done.stderr) == (0, "")
    documents.check(command, done.stdout)
    return json.loads(done.stdout)


def test_show_tells_what_failed_where_and_the_command_that_goes_on(zoo: Zoo) -> None:
    folder, ids = zoo
    done = run("show", ids["fail"][:8], cwd=folder)
    assert (done.code, done.stderr) == (0, "")
    text = done.stdout
    assert text.startswith(
        f"session   {ids['fail']}\nworkflow  brief, version 1\nstatus    failed\nstep      write#1\n"
    )
    order = [
        r"Failed in write#1: ValueError: no tone for it ␛[2J",
        "Traceback (most recent call last):",
        f"Resume:  pausepoint resume {ids['fail']}\n",
        '  facts  ["fact 0", "fact 1", "fact 2"]',
    ]
    assert [text.index(each) for each in order] == sorted(text.index(each) for each in order)
    assert "\x1b" not in text, "what a session kept must not steer a terminal"


def test_show_on_a_terminal_cuts_what_is_long(zoo: Zoo) -> None:
    folder, ids = zoo
    done = run("show", ids["octopus"], cwd=folder, tty=True)
    assert done.code == 0
    assert "\x1b[32mcompleted" in done.stdout
    [draft] = [line for line in plain(done.stdout).splitlines() if line.startswith("  draft")]
    assert draft.endswith("… (600 characters)")
    assert len(draft) == 80
    whole = here(folder, "show", ids["octopus"], "--full").stdout
    assert _draft() in whole


@pytest.mark.parametrize(
    ("topic", "said", "way"),
    [
        ("wait", "Waiting for a message.", "Send:  pausepoint send {} MESSAGE"),
        ("guard", "Paused by a guard after step review: too dull", "Change the state:  pausepoint edit {}"),
        ("sleep", "a worker wakes it then.", "Wake it now:       pausepoint resume {} --wake"),
        ("student", "Paused by bob: lunch", "Resume:  pausepoint resume {}"),
        ("call", "Waiting for a child.", "Show the child:  pausepoint show {}."),
    ],
)
def test_show_tells_why_a_session_stands_still_and_the_way_out(zoo: Zoo, topic: str, said: str, way: str) -> None:
    folder, ids = zoo
    session_id = ids.get(topic, topic)
    text = here(folder, "show", session_id).stdout
    assert said in text
    assert way.format(session_id) in text


def test_the_way_out_carries_the_store_and_the_target(tmp_path: Path) -> None:
    store = letters(tmp_path, ada="Ada")
    within(store, lambda engine: engine.session("ada").pause(by="bob"))
    text = here(tmp_path, "show", "ada", "--store", str(store)).stdout
    assert f"Resume:  pausepoint resume ada --store {store}\n" in text


def test_show_at_a_checkpoint_by_number_or_name(zoo: Zoo) -> None:
    folder, ids = zoo
    name = ids["octopus"]
    now = document(folder, "show", name)
    assert now["state"]["score"] == 600
    assert now["checkpoint"] is None
    then = document(folder, "show", f"{name[:7]}@research")
    assert then["state"] | {"facts": []} == {"topic": "octopus", "facts": [], "draft": "", "score": 0}
    assert then["checkpoint"]["name"] == "research#1"
    assert document(folder, "show", f"{name}@{then['seq']}") == then
    assert document(folder, "show", f"{name}@research#1") == then
    assert f"At checkpoint {then['seq']}, research#1" in here(folder, "show", f"{name}@research").stdout
    assert "At record 1, before the first checkpoint\n" in here(folder, "show", f"{name}@1").stdout
    missing = run("show", f"{name}@reserch", cwd=folder)
    assert (missing.code, missing.stdout) == (4, "")
    assert "Did you mean 'research'?" in missing.stderr
    beyond = run("show", f"{name}@99", cwd=folder)
    assert beyond.code == 4
    assert re.search(r"has no record 99\. Its log has the records 1 to \d+\. Nearby checkpoints: ", beyond.stderr)


def test_an_id_may_contain_an_at_sign(tmp_path: Path) -> None:
    letters(tmp_path, **{"ada@work": "Ada"})
    assert document(tmp_path, "show", "ada@work")["session_id"] == "ada@work"
    assert document(tmp_path, "show", "ada@work@write")["checkpoint"]["name"] == "write#1"


def test_one_field_is_printed_raw(zoo: Zoo) -> None:
    folder, ids = zoo
    done = run("show", ids["fail"], "--field", "topic", cwd=folder)
    assert (done.code, done.stdout, done.stderr) == (0, "fail\n", "")
    assert here(folder, "show", ids["fail"], "--field", "facts.1").stdout == "fact 1\n"
    assert json.loads(here(folder, "show", ids["fail"], "--field", "facts", "--json").stdout) == [
        "fact 0", "fact 1", "fact 2",
    ]  # fmt: skip
    mistyped = here(folder, "show", ids["fail"], "--field", "topci")
    assert mistyped.code == 4
    assert "Did you mean 'topic'?" in mistyped.stderr


def test_an_unknown_id_is_4_and_an_ambiguous_one_lists_the_candidates(tmp_path: Path) -> None:
    nothing = run("show", "ada", cwd=tmp_path)
    assert nothing.code == 4
    assert nothing.stderr.startswith("pausepoint: There is no store at ")
    letters(tmp_path, ada="Ada", adam="Adam", adele="Adele")
    unknown = run("show", "bob", "--json", cwd=tmp_path)
    assert (unknown.code, unknown.stdout) == (4, "")
    assert json.loads(unknown.stderr)["exit_code"] == 4
    several = here(tmp_path, "show", "ad")
    assert several.code == 2
    assert "3 session ids begin with 'ad': adele, adam, ada. Type more of the id." in several.stderr
    assert document(tmp_path, "show", "ada")["session_id"] == "ada", "the whole id is meant, if there is one"


def test_a_removed_session_is_said_to_be_removed(tmp_path: Path) -> None:
    store = letters(tmp_path, ada="Ada")
    within(store, lambda engine: engine.session("ada").remove(by="bob", reason="she asked"))
    done = here(tmp_path, "show", "ada")
    assert done.code == 4
    assert re.search(r"Session 'ada' \(letter\) was removed .* by bob: she asked", done.stderr)


def test_damage_is_told_beside_what_can_still_be_read(tmp_path: Path) -> None:
    store = letters(tmp_path, ada="Ada")
    execute(store, "UPDATE log SET payload = x'00' WHERE seq = 2")
    done = run("show", "ada", cwd=tmp_path)
    assert done.code == 1
    assert "status    waiting" in done.stdout
    assert "The state cannot be shown: " in done.stdout
    assert "record 2" in done.stdout
    shape = here(tmp_path, "show", "ada", "--json")
    documents.check("show", shape.stdout)
    assert (shape.code, json.loads(shape.stdout)["state"]) == (1, None)
    assert here(tmp_path, "show", "ada", "--field", "name").code == 1
    assert here(tmp_path, "events", "ada").code == 1


def test_what_was_redacted_is_called_so(tmp_path: Path) -> None:
    store = letters(tmp_path, ada="Ada")
    within(store, lambda engine: engine.session("ada").send("a secret"))

    async def redact(engine: Engine) -> None:
        await (await engine.session("ada").resume()).outcome()
        await engine.session("ada").redact(field="reply", value="(gone)", by="bob")

    within(store, redact)
    listed = run("checkpoints", "ada", cwd=tmp_path)
    assert (listed.code, listed.stderr) == (0, "")
    assert re.search(r"post#1 .*  redacted", listed.stdout)
    assert document(tmp_path, "show", "ada")["state"]["reply"] == "(gone)"
    then = here(tmp_path, "show", "ada@post#1")
    assert "redacted" in then.stdout
    assert "secret" not in then.stdout


# plan and why


def test_plan_tells_what_a_resume_would_do_and_runs_nothing(zoo: Zoo) -> None:
    folder, ids = zoo
    done = run("plan", ids["fail"][:8], cwd=folder)
    assert (done.code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"{ids['fail']} has failed: 1 visit done, 2 steps to run"
    assert lines[3] == "✓ done      research  its checkpoint is kept"
    assert lines[4] == r"▸ next      write     failed: ValueError: no tone for it ␛[2J"
    assert lines[5] == "· will run  review    follows write"
    assert lines[-1] == f"Resume:  pausepoint resume {ids['fail']}"
    found = document(folder, "plan", ids["fail"])
    assert [each["verdict"] for each in found["steps"]] == ["done", "next", "will run"]
    stuck = here(folder, "plan", ids["guard"]).stdout
    assert "! guard: too dull (after review)" in stuck
    assert f"pausepoint edit {ids['guard']}" in stuck


def test_plan_without_an_id_takes_what_resume_would(zoo: Zoo) -> None:
    folder, ids = zoo
    done = here(folder, "plan")
    assert done.code == 0
    assert done.stdout.startswith(ids["fail"])
    assert f"Picked the last session: {ids['fail']}" in done.stderr


def test_plan_without_the_code_says_how_to_name_it(tmp_path: Path) -> None:
    letters(tmp_path, ada="Ada")
    done = run("plan", "ada", cwd=tmp_path)
    assert (done.code, done.stdout) == (2, "")
    assert "Add --target" in done.stderr


def test_why_explains_one_step(zoo: Zoo) -> None:
    folder, ids = zoo
    done = run("why", ids["fail"], "research", cwd=folder)
    assert (done.code, done.stderr) == (0, "")
    first, last, redo = done.stdout.splitlines()
    assert first == "research is done and would not run again: its checkpoint is kept"
    assert re.fullmatch(r"Last visit: research#1, .*, took .*, wrote facts", last)
    assert redo == f"Redo it:  pausepoint rewind {ids['fail']} --to research#1"
    found = document(folder, "why", ids["fail"], "review")
    assert (found["verdict"], found["why"], found["last"]) == ("will run", "follows write", None)
    mistyped = here(folder, "why", ids["fail"], "reserch")
    assert mistyped.code == 4
    assert "Did you mean 'research'?" in mistyped.stderr


# checkpoints and diff


def test_checkpoints_are_listed_with_number_and_name(zoo: Zoo) -> None:
    folder, ids = zoo
    done = run("checkpoints", ids["octopus"][:8], cwd=folder)
    assert (done.code, done.stderr) == (0, "")
    assert [line.split()[1] for line in done.stdout.splitlines()[1:]] == ["research#1", "write#1", "review#1"]
    assert document(folder, "checkpoints", ids["octopus"])["checkpoints"][0]["fields"] == ["facts"]
    some = here(folder, "checkpoints", ids["octopus"], "--limit", "1", "--jsonl").stdout
    documents.check("checkpoints", some, "jsonl")
    assert json.loads(some)["name"] == "review#1"
    none = here(folder, "checkpoints", "student")
    assert (none.code, none.stdout) == (0, "")
    assert "no checkpoint yet" in none.stderr


def test_checkpoints_left_behind_by_a_rewind_are_marked(tmp_path: Path) -> None:
    store = letters(tmp_path, ada="Ada")
    within(store, lambda engine: engine.session("ada").rewind("write"))
    assert "rolled back by a rewind" in here(tmp_path, "checkpoints", "ada").stdout


def test_diff_between_checkpoints_in_every_form(zoo: Zoo) -> None:
    folder, ids = zoo
    name = ids["octopus"]
    done = run("diff", name, "research", "review", cwd=folder)
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:4] == [f"{name}  research → review", "draft", '  - ""', f'  + "{_draft()}"']
    two = document(folder, "diff", name, "research", "review#1")
    assert document(folder, "diff", f"{name}@research", "review") == two
    assert document(folder, "diff", name, "research")["changes"] == two["changes"], "to how it stands"
    assert [each["path"] for each in two["changes"]] == ["draft", "score"]
    assert "no differences" in here(folder, "diff", name, "review", "review").stdout
    grown = here(folder, "diff", name, "1", "research").stdout
    assert grown.splitlines()[1:] == ["facts  3 items added", *(f'  + "fact {each}"' for each in range(3))]


def _draft() -> str:
    return "fact 0 fact 1 fact 2" * 30


def test_diff_between_two_sessions(zoo: Zoo) -> None:
    folder, ids = zoo
    found = document(folder, "diff", f"{ids['octopus']}@research", f"{ids['fail']}@research")
    assert found["other_id"] == ids["fail"]
    assert [(each["path"], each["before"], each["after"]) for each in found["changes"]] == [
        ("topic", "octopus", "fail")
    ]
    assert here(folder, "diff", ids["octopus"], ids["fail"][:8]).code == 0


def test_diff_refuses_what_it_cannot_compare(zoo: Zoo) -> None:
    folder, ids = zoo
    assert here(folder, "diff", ids["octopus"]).code == 2
    unknown = here(folder, "diff", ids["octopus"], "reserch")
    assert unknown.code == 4
    assert "Did you mean 'research'?" in unknown.stderr


# in this process


def test_values_are_cut_with_their_size() -> None:
    assert value([1, 2, 3], 9) == "[1, 2, 3]"
    assert value(list(range(100)), 30) == "[0, 1, 2, 3, 4, 5… (100 items)"
    assert value({"a": "x" * 50}, 25) == '{"a": "xxxxxxx… (1 entry)'
    assert value("a\u009bb\nc") == r'"a‹U+009B›b\nc"'


@pytest.mark.long
def test_json_escapes_what_a_terminal_would_obey_and_still_means_the_same(tmp_path: Path) -> None:
    name = "Zo\u00eb \x9b31m\x7f \u202egnirts\u2066 \u2028 \ufeff"
    within(letters(tmp_path, ada=name), lambda engine: engine.session("ada").pause(reason=name))
    field = ("show", "ada", "--field", "name", "--json")
    for words in (("show", "ada", "--json"), ("events", "ada", "--jsonl"), field):
        done = run(*words, cwd=tmp_path)
        assert (done.code, "Zo\u00eb" in done.stdout) == (0, True), words
        assert not re.search("[\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\ufeff]", done.stdout), words
    found = run("show", "ada", "--json", cwd=tmp_path).stdout
    assert name in json.dumps(json.loads(found), ensure_ascii=False)
    assert "Zo\u00eb \\u009b31m\\u007f \\u202egnirts" in found


@pytest.mark.long
def test_show_lists_what_operations_received_and_returned(tmp_path: Path) -> None:
    (tmp_path / "reader.py").write_text(
        "from pausepoint import Context, workflow\n"
        "async def read(page: int, api_key: str) -> str:\n"
        "    return 'text ' * 200 if page == 7 else f'page {page}'\n"
        "@workflow\n"
        "async def reader(pages: int, ctx: Context) -> int:\n"
        "    for page in range(pages):\n"
        "        await ctx.do(read, page, api_key='4711')\n"
        "    return pages\n"
    )
    started = run("run", "reader.py", "--pages", "60", "--session-id", "r1", cwd=tmp_path)
    assert started.code == 0, started.stderr
    shown = run("show", "r1", "--operations", cwd=tmp_path)
    assert (shown.code, shown.stdout.count("  read  ")) == (0, 50)
    assert '    page     10\n    api_key  "‹masked›"\n    →        "page 10"\n' in shown.stdout
    assert "page 9" not in shown.stdout
    assert (
        "These are the last 50 operations. Show all, in full:  pausepoint show r1 --operations --full" in shown.stderr
    )
    whole = run(*shown.stderr.split()[-4:], cwd=tmp_path)
    assert (whole.stdout.count("  read  "), whole.stderr) == (60, "")
    assert "text " * 200 in whole.stdout
    rows = document(tmp_path, "show", "r1", "--operations")["operations"]
    assert (len(rows), rows[-1]["arguments"]) == (50, {"page": 59, "api_key": "‹masked›"})
    refused = run("show", "r1", "--operations", "--no-state", cwd=tmp_path)
    assert (refused.code, "Leave out --field and --no-state" in refused.stderr) == (2, True)
    assert "4711" not in whole.stdout + shown.stdout


@pytest.mark.long
def test_show_tells_a_session_as_a_conversation(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(
        "from pausepoint import Context, workflow\n"
        "async def think(messages: list) -> list:\n"
        "    call = {'type': 'tool_use', 'id': str(len(messages)), 'name': 'find', 'input': {'n': len(messages)}}\n"
        "    return [{'type': 'text', 'text': 'I look.\\x1b[2J\\nAgain.'}, call]\n"
        "async def find(n: int, token: str) -> str:\n"
        "    return f'hotel {n}' + ' ' * 500 + 'end'\n"
        "@workflow\n"
        "async def agent(task: str, ctx: Context) -> str:\n"
        "    messages = [{'role': 'user', 'content': task}]\n"
        "    while len(messages) < 60:\n"
        "        reply = await ctx.do(think, messages)\n"
        "        content = await ctx.do(find, reply[1]['input']['n'], token='4711', key=reply[1]['id'])\n"
        "        result = {'type': 'tool_result', 'tool_use_id': reply[1]['id'], 'content': content}\n"
        "        messages += [{'role': 'assistant', 'content': reply}, {'role': 'user', 'content': [result]}]\n"
        "    return await ctx.ask('Which one?')\n"
    )
    started = run("run", "agent.py", "--task", "Book a hotel.", "--session-id", "oslo", cwd=tmp_path)
    assert started.code == 3, started.stderr
    shown = run("show", "oslo", "--conversation", cwd=tmp_path)
    assert (shown.code, shown.stdout.count("assistant  think"), shown.stdout.count("tool  find")) == (0, 24, 25)
    assert "    I look.␛[2J\n    Again.\n    → find  " in shown.stdout
    assert '    n      59\n    token  "‹masked›"\n    →      "hotel 59' in shown.stdout
    assert shown.stdout.endswith("question  agent\n    Which one?\n")
    assert "Book a hotel." not in shown.stdout
    whole = run(*shown.stderr.split()[-4:], cwd=tmp_path)
    assert (whole.stdout.count("assistant  think"), whole.stderr) == (30, "")
    assert whole.stdout.startswith("user  think\n    Book a hotel.\n")
    assert "4711" not in whole.stdout + shown.stdout
    turns = document(tmp_path, "show", "oslo", "--conversation")["turns"]
    assert turns[-2]["arguments"] == {"n": 59, "token": "‹masked›"}
    for wrong in (("--operations",), ("--no-state",), ("--field", "task")):
        assert run("show", "oslo", "--conversation", *wrong, cwd=tmp_path).code == 2
