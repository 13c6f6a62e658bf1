"""Decode texts that are not UTF-8: the old encodings of Western and Eastern Europe, of Cyrillic, Greek and East Asia.

Nothing in such a file says its encoding. The right one gives the letters that people use, in words; a wrong one gives
signs in the middle of words, or letters that no language has together.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable

SAMPLE = 2**17
"""So many bytes of lines with other letters than those of ASCII are enough to know the encoding."""

_WORD = re.compile(r"[^\W\d_]*[^\x00-\x7f][^\W\d_]*")
_ASCII = re.compile(r"[A-Za-z]")
_SIGNS = frozenset("“”„‚‘’«»–—…·•§°¿¡€©®ªº´ №")
_MORE_THAN_A_FEW = 4
"""So many letters beyond ASCII in a row are rare in a Latin alphabet."""

Score = Callable[[str], float]
"""How well a word with letters beyond ASCII fits an encoding."""


def _letters(usual: str) -> Score:
    """Return the score for a Latin alphabet: its own letters stand among those of ASCII."""
    letters = {*usual, *usual.upper()}

    def score(word: str) -> float:
        foreign = [each for each in word if each > "\x7f"]
        points = sum(1.0 if each in letters or each in _SIGNS else -1.5 for each in foreign)
        return points if len(foreign) < _MORE_THAN_A_FEW else -len(foreign)

    return score


def _alphabet(first: str, last: str) -> Score:
    """Return the score for another alphabet, whose words have only its letters. Mixed capitals are a wrong encoding."""

    def score(word: str) -> float:
        foreign = [each for each in word if each > "\x7f"]
        usual = sum((1.2 if each.islower() else 0.4) if first <= each <= last else 0.3 if each in _SIGNS else -1.5
                    for each in foreign)  # fmt: skip
        return -len(foreign) if _ASCII.search(word) and foreign[0] not in _SIGNS else usual

    return score


def _ideographs(code: str, first: int, last: int, kana: bool = False) -> Score:
    """Return the score for an East Asian language: frequent characters have the low numbers of their standard."""

    def score(word: str) -> float:
        syllables = sum("\u3040" <= each <= "\u30ff" for each in word)
        points = 2.5 * syllables if kana else 0.0
        for each in word:
            if each > "\x7f" and not "\u3000" <= each <= "\u30ff":
                usual = 2.0 if each < "\uac00" else 2.6  # syllables of Korean
                points += usual if first <= each.encode(code, "replace")[0] <= last else -2.0
        return points if syllables or not kana else points * 0.5

    return score


_WESTERN = ("äöüßéèêëàâáåæçíìîïñóòôøœúùûýÿ", "áâãàçéêíóôõúäöüšž")
_EASTERN = ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "ăâîşţ", "čćđšž")
"""The letters of languages: Portuguese and Estonian apart; Polish, Czech, Slovak, Hungarian, Romanian, Croatian."""

_CHARSETS: list[tuple[str, Score]] = [
    *(("cp1252", _letters(usual)) for usual in _WESTERN),
    *(("iso8859-2", _letters(usual)) for usual in _EASTERN),  # before cp1250, which other bytes give away
    *(("cp1250", _letters(usual)) for usual in _EASTERN),
    ("cp1251", _alphabet("Ё", "ґ")),
    ("koi8-r", _alphabet("Ё", "ё")),
    ("cp1253", _alphabet("Ά", "ώ")),
    ("iso8859-7", _alphabet("Ά", "ώ")),
    ("shift_jis", _ideographs("euc-jp", 0xB0, 0xCF, kana=True)),
    ("euc-jp", _ideographs("euc-jp", 0xB0, 0xCF, kana=True)),
    ("gb18030", _ideographs("gb2312", 0xB0, 0xD7)),
    ("euc-kr", _ideographs("euc-kr", 0xB0, 0xC8)),
    ("big5", _ideographs("big5", 0xA4, 0xC6)),
]
"""Each encoding, with the score of a text that is decoded with it. Of equal scores, the first one counts."""


def decoded(content: bytes) -> str:
    """Return the text of a file. What does not fit its encoding becomes a replacement character.

    >>> decoded("Käse und Brot".encode("latin-1")), decoded("Łódź jest daleko".encode("cp1250"))
    ('Käse und Brot', 'Łódź jest daleko')
    >>> decoded("Привет, мир".encode("koi8-r")), decoded("歴史の本を読む".encode("shift_jis")), decoded("a".encode("utf-16"))
    ('Привет, мир', '歴史の本を読む', 'a')
    """  # noqa: E501
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", "replace")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode(charset_of(content), "replace")


def charset_of(content: bytes) -> str:
    """Return the most likely encoding of a text that is not UTF-8."""
    lines = b"\n".join(line for line in content.split(b"\n") if not line.isascii())[:SAMPLE]
    words = {name: _counted(lines.decode(name, "replace")) for name in dict(_CHARSETS)}
    return max(_CHARSETS, key=lambda charset: _score(*words[charset[0]], charset[1]))[0]


def _counted(text: str) -> tuple[Counter[str], int]:
    """Return the words with other letters than those of ASCII, and how many bytes mean nothing in the encoding."""
    lost = sum(each == "\ufffd" or "\x80" <= each < "\xa0" for each in text)
    return Counter(_WORD.findall(text.replace("\ufffd", " "))), lost


def _score(words: Counter[str], lost: int, score: Score) -> float:
    return sum(count * score(word) for word, count in words.items()) - 5 * lost
