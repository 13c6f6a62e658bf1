"""Which commands and tool calls need an approval: however a restricted command is written, it is found."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pausepoint.gate import restriction, restriction_of_call

PUSH = ["git push"]


@pytest.mark.parametrize(
    "command",
    [
        "git -C repo push",
        "git --no-pager push",
        "git -c a=b -C 'a b' push origin",
        "git --git-dir=x --work-tree y push",
        "A=1 B='x y' git push",
        "sudo -u x git push",
        "env -i PATH=x /usr/bin/git push",
        "bash -lc 'cd x && git -C y push'",
        """sh -c "sh -c 'git push'" """,
        "ls | xargs git push",
        "if git push; then :; fi",
        "(git push)",
        "git \\\n push",
        "g\"\"it 'pu'sh",
        "\\git push",
        "$'git' push",
        "git $(cat options) push",
        "git `cat options` push",
        "git $OPTIONS push",
        'echo "$(git push)"',
        "git 2>&1 push",
        "git >'a b' push",
        "git &>log push",
        "git <(cat x) push",
        "cat <<X\nit's\nX\ngit push",
        "true # and then git push",
        'echo "git push"',  # it may be a command for another shell
        ["git", "-C", "repo", "push"],
        ["sh", "-c", "git push"],
    ],
)
def test_a_restricted_command_is_found_however_it_is_written(command: str | list[str]) -> None:
    assert restriction(command, PUSH) == "git push"


@pytest.mark.parametrize(
    "command",
    [
        "git pull",
        "git status; npm push",
        "git log && push",
        "git commit -m push",
        "git remote push",
        "legit push",
        ["git", "commit", "push"],
        "",
        "'",
    ],
)
def test_words_of_different_commands_do_not_make_one(command: str | list[str]) -> None:
    assert restriction(command, PUSH) is None


def test_an_option_of_a_pattern_may_come_anywhere_behind_its_first_word() -> None:
    patterns = ["git push --force", "rm -r*"]
    assert restriction("git push origin main --force", patterns) == "git push --force"
    assert restriction("git --force push", patterns) == "git push --force"
    assert restriction("git push origin", patterns) is None
    assert restriction("rm -v -rf x", patterns) == "rm -r*"
    assert restriction("rm x", patterns) is None
    assert restriction("npm install left-pad --force", ["npm * --force"]) == "npm * --force"


PLAIN = st.text("abcxyz./=", min_size=1, max_size=6)
OPTION = st.one_of(
    PLAIN.map(lambda word: [f"-{word}"]),
    PLAIN.map(lambda word: [f"--{word}=1"]),
    st.tuples(PLAIN, PLAIN).map(lambda words: [f"--{words[0]}", words[1]]),
    st.tuples(PLAIN, PLAIN).map(lambda words: [f"-{words[0]}", f"{words[1]} {words[1]}"]),
)
WRAPPERS: list[Callable[[str], str]] = [
    lambda text: f"sudo -u joe {text}",
    lambda text: f"A=1 env B=2 {text}",
    lambda text: f"sh -c {shlex.quote(text)}",
    lambda text: f'echo "$(cat x)"; {text} | tee log',
    lambda text: f"echo $({text})",
    lambda text: f"true && {{ {text}; }} > out 2>&1",
    lambda text: f"find . | xargs -n 1 {text}",
    lambda text: text.replace(" ", " \\\n "),
]


@pytest.mark.long
@settings(max_examples=60)
@given(
    options=st.lists(OPTION, max_size=3), rest=st.lists(PLAIN, max_size=2),
    wrappers=st.lists(st.sampled_from(WRAPPERS[:-1]), max_size=3), program=st.sampled_from(["git", "/usr/bin/git"]),
)  # fmt: skip
def test_neither_options_nor_wrappers_hide_a_command(
    options: list[list[str]], rest: list[str], wrappers: list[Callable[[str], str]], program: str
) -> None:
    text = shlex.join([program, *(word for option in options for word in option), "push", *rest])
    assert restriction(WRAPPERS[-1](text), PUSH) == "git push"
    for wrap in wrappers:
        text = wrap(text)
    assert restriction(text, PUSH) == "git push"
    assert restriction(text.replace("push", "pull"), PUSH) is None


@settings(max_examples=60)
@given(text=st.text("git push;|<>&-\n*", max_size=60))
def test_whatever_comes_before_it_a_command_on_its_own_line_is_found(text: str) -> None:
    assert restriction(f"{text}\ngit push", PUSH) == "git push"


@settings(max_examples=60)
@given(text=st.text("git push$()`'\"\\;|<>&-\n*", max_size=60))
def test_any_text_can_be_parsed(text: str) -> None:
    assert restriction(text, ["nothing"]) is None


@pytest.mark.parametrize("unit", ["git -a ", "$(", "'\"", "git push ", "(`", '"\\', "git "])
def test_hostile_commands_take_no_longer_than_others(unit: str) -> None:
    began = time.process_time()
    restriction(unit * (16_384 // len(unit)), ["git push --force", "*force*", "git*x", "a b c"])
    assert time.process_time() - began < 3


def test_a_tool_call_is_matched_by_its_name_and_by_its_command() -> None:
    patterns = ["Write", "mcp__*", "git push"]
    assert restriction_of_call("Write", {"path": "x"}, patterns) == "Write"
    assert restriction_of_call("mcp__mail__send", {}, patterns) == "mcp__*"
    assert restriction_of_call("Bash", {"command": "git --no-pager push"}, patterns) == "git push"
    assert restriction_of_call("shell", {"command": ["bash", "-lc", "git push"]}, patterns) == "git push"
    assert restriction_of_call("exec", {"cmd": "git push", "command": None}, patterns) == "git push"
    assert restriction_of_call("Read", {"command": 3, "path": "git push"}, patterns) is None
    assert restriction_of_call("Bash", {"command": ["git", 7, "status"]}, patterns) is None
