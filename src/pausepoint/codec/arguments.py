"""The arguments of an operation, as people read them: a replay does not need them, and nothing decodes them again.

The stored form is a JSON object of names and values, with the tags of `pausepoint.codec.values`, and three more:

    $masked      a value whose name says that it is a secret, such as ``password`` or ``api_key``
    $cut         [size in bytes, beginning]: there was no room for the value
    $:Name       the content of a model, a dataclass or an enum; null if the value cannot be stored

Values that are stored whole take at most `ROOM` bytes together, and the beginnings of the others as many again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from typing import Any

import msgspec

from pausepoint.codec.values import as_plain, decode, fingerprint
from pausepoint.codec.walk import (
    DEFAULT_LIMITS,
    INT_MAX,
    INT_MIN,
    OpenWalk,
    Refusal,
    decode_json,
    encode_json,
    encode_sorted,
    type_name,
    write,
)
from pausepoint.errors import ValueRefused

ROOM = 4096
"""How many bytes the values that are stored whole take together."""

LABEL = 80
"""The most characters of a label."""

BEGINNING = 1000
"""How many bytes of a value are stored if there is no room for the whole."""

MOST = 32
"""How many arguments are stored on their own. The rest is stored as one value."""

NOT_RECORDED = msgspec.Raw()
"""The arguments of an operation that were not recorded."""

_MASKED = object()
_MASK = b'{"$masked":true}'
_QUOTE = '"'
_LIST = b"[%b]"
_WORD = re.compile(r"[A-Z]*[a-z]+|[A-Z]+")
_ALWAYS = "password", "passwd", "pwd", "passphrase", "secret", "secrets", "authorization", "credential", "credentials"
_AT_THE_END = "token", "cookie", "cookies", "apikey", "auth", "bearer"
_KEYS = "api", "access", "private", "signing", "encryption"


@lru_cache(maxsize=4096)
def is_secret(name: str) -> bool:
    """Return whether a name says that its value is a secret.

    >>> [name for name in ("apiKey", "X-Auth-Token", "db_password_2", "max_tokens", "key") if is_secret(name)]
    ['apiKey', 'X-Auth-Token', 'db_password_2']
    """
    words = ["", *(word.lower() for word in _WORD.findall(name))]
    is_key = words[-1] in ("key", "keys") and words[-2] in _KEYS
    return is_key or words[-1].endswith(_AT_THE_END) or any(word.endswith(_ALWAYS) for word in words)


class Arguments:
    """The arguments of a call by name, each encoded once; as nothing if it cannot be stored."""

    __slots__ = ("texts", "values")

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self.texts = {name: _encoded(value) for name, value in values.items()}

    def fingerprint(self, bound: tuple[Any, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """Return ``fingerprint(*bound, args, kwargs)`` of these arguments. Raises `ValueRefused`."""
        texts, last = [*self.texts.values()], len(args)
        special = bound or b"" in texts or (kwargs and any(name[:1] == "$" for name in kwargs))
        if special or len(texts) != last + len(kwargs):
            return fingerprint(*bound, args, kwargs)
        named = sorted(zip(kwargs, texts[last:], strict=True)) if kwargs else ()
        end = b",".join([_key(name) + text for name, text in named])
        return sha256(b'[{"$tuple":[%b]},{%b}]' % (b",".join(texts[:last]), end)).digest()

    @property
    def digests(self) -> str:
        """A short digest of each argument, to compare it with that of another call; empty if one has none."""
        if b"" in self.texts.values():
            return ""
        return ",".join([f"{name}={sha256(_LIST % text).hexdigest()[:6]}" for name, text in self.texts.items()])

    def stored(self) -> msgspec.Raw:
        """Return what the log keeps of the arguments."""
        parts: dict[str, bytes] = {}
        for name, text in self.texts.items():
            if is_secret(name) and _hides(name, self.values[name]):
                text = _MASK
            elif not text or (b'":' in text and _has_secrets(text)):
                text = _shown(self.values[name])
            parts[name] = _key(name) + text
        whole = b"{%b}" % b",".join(parts.values())
        return msgspec.Raw(whole if len(whole) <= ROOM else _fitting(parts))


def arguments_of(stored: msgspec.Raw) -> dict[str, Any] | None:
    """Return recorded arguments as plain JSON data for people; None if they were not recorded.

    >>> from datetime import date
    >>> arguments_of(Arguments({"day": date(2024, 2, 29), "password": "4711", "client": print}).stored())
    {'day': '2024-02-29', 'password': '‹masked›', 'client': '‹builtin_function_or_method›'}
    """
    if not bytes(stored):
        return None
    arguments: dict[str, Any] = decode_json(stored)
    return {name: _plain(value) for name, value in arguments.items()}


def value_of(data: bytes) -> Any:
    """Return a result as plain JSON data for people; only the beginning of a large one."""
    if len(data) > ROOM:
        return cut(len(data), data[:BEGINNING].decode(errors="ignore"))
    return as_plain(decode(data)) if b'"$' in data else decode_json(data)


def line_of(arguments: Mapping[str, Any]) -> str:
    """Return the arguments in one line. A long one lacks its middle: items of a map often begin alike.

    >>> line_of({"topic": "octopus", "count": 3, "tags": ["a"]})
    'octopus, 3, ["a"]'
    """
    texts = (value if type(value) is str else encode_json(value).decode() for value in arguments.values())
    text = " ".join(", ".join(_short(each, 4 * LABEL) for each in islice(texts, LABEL)).split())
    return _short(text, LABEL)


def _short(text: str, most: int) -> str:
    end = most * 2 // 5
    return text if len(text) <= most else f"{text[: most - end - 1]}…{text[-end:]}"


def _plain(value: Any) -> Any:
    if type(value) is list:
        return [_plain(item) for item in value]
    if type(value) is not dict:
        return value
    if len(value) == 1:
        ((tag, content),) = value.items()
        if tag in ("$tuple", "$set", "$frozenset"):
            return _plain(content)
        if tag == "$masked":
            return "‹masked›"
        if tag == "$cut":
            return cut(*content)
        if tag[:2] == "$:":
            return f"‹{tag[2:]}›" if content is None else _plain(content)
        if tag == "$map":
            pairs = [(_plain(key), _plain(item)) for key, item in content]
            return dict(pairs) if all(type(key) is str for key, _ in pairs) else [[*pair] for pair in pairs]
        if tag[:1] == "$":
            return as_plain(decode(encode_json(value)))
    return {name: _plain(item) for name, item in value.items()}


def cut(size: int, beginning: str = "") -> str:
    """Return the beginning of a value of ``size`` bytes, which stands for the whole."""
    return f"{beginning.removeprefix(_QUOTE)}… ‹{size:,} bytes›"


def _fitting(parts: dict[str, bytes]) -> bytes:
    """Return arguments, each encoded with its name, with the largest ones cut."""
    texts = {name: part[len(_key(name)) :] for name, part in parts.items()}
    if len(texts) > MOST:
        rest = [texts.pop(name) for name in list(texts)[MOST - 1 :]]
        texts[f"and {len(rest):,} more"] = _LIST % b",".join(rest)
    room, most = ROOM, min(BEGINNING, ROOM // len(texts))
    for name in sorted(texts, key=lambda name: len(texts[name])):
        text = texts[name]
        if len(text) <= room:
            room -= len(text)
        else:
            texts[name] = encode_json({"$cut": [len(text), text[:most].decode(errors="ignore")]})
    return b"{%b}" % b",".join([_key(name) + text for name, text in texts.items()])


@lru_cache(maxsize=4096)
def _key(name: str) -> bytes:
    return encode_json(name.encode("utf-8", "backslashreplace").decode()) + b":"


def _encoded(value: Any) -> bytes:
    kind = type(value)
    try:
        if kind is str or (kind is int and INT_MIN <= value <= INT_MAX):
            return encode_json(value)
        return write(OpenWalk(DEFAULT_LIMITS), value, "", encode_sorted)
    except (ValueRefused, UnicodeEncodeError):
        return b""


def _hides(name: object, value: object) -> bool:
    return type(name) is str and value is not None and type(value) is not bool and is_secret(name)


def _has_secrets(text: bytes) -> bool:
    """Return whether encoded JSON may have a key that names a secret."""
    *before, _ = text.split(b'":')
    return any(_is_suspect(each[each.rfind(b'"') + 1 :]) for each in before)


@lru_cache(maxsize=4096)
def _is_suspect(key: bytes) -> bool:
    return key == b"$map" or is_secret(key.decode())


def _shown(value: object) -> bytes:
    try:
        return write(_ShownWalk(DEFAULT_LIMITS), value, "")
    except ValueRefused:
        return encode_json({f"$:{type_name(value)}": None})


class _ShownWalk(OpenWalk):
    """Masks secrets, and shows the type of what cannot be stored."""

    __slots__ = ()

    def named(self, owner: object, parts: dict[str, Any], *options: Any) -> dict[str, Any]:
        return super().named(owner, _masked(parts), *options)

    def pairs(self, value: dict[Any, Any], depth: int) -> list[list[Any]]:
        return super().pairs(_masked(value), depth)

    def other(self, value: Any, depth: int) -> Any:
        if value is _MASKED:
            return {"$masked": True}
        try:
            return super().other(value, depth)
        except Refusal as refusal:
            if refusal.value is value and not refusal.oversized:
                return {f"$:{type_name(value)}": None}
            raise


def _masked(parts: dict[Any, Any]) -> dict[Any, Any]:
    return {name: _MASKED if _hides(name, value) else value for name, value in parts.items()}
