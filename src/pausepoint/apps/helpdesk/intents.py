"""Find the meaning of a message by its words: the requested tools, a yes or a no, "cancel", "a person, please"."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from pausepoint.apps.helpdesk.dates import FLAGS
from pausepoint.apps.helpdesk.extraction import LONGEST, choice, normal, orders
from pausepoint.apps.helpdesk.models import Call, Language, ToolName
from pausepoint.apps.helpdesk.parameters import CHOICES

SmallTalk = Literal["", "hello", "thanks", "bye", "cancel"]

_TOOLS: dict[ToolName, str] = {
    "refund": r"\brefund|money back|reimburse|退款|退钱|退货",
    "change_address": r"(?:chang|updat|correct|wrong|new|different)\w*\b[^.?!]{0,30}\baddress|\baddress\b[^.?!]{0,30}\b"
    r"(?:chang|wrong|updat|to\b)|\b(?:send|deliver|ship)\b[^.?!]{0,30}\b(?:to|elsewhere)\b|(?:改|换|修改|更改|变更)[^。?!]{0,8}地址"
    r"|地址[^。?!]{0,8}(?:改|换|错)|(?:寄|送)到",
    "appointment": r"\bappointment|\bbook\b|\bschedule|预约|约个?时间|约一",
    "hand_over": r"\b(?:human|agent|operator|representative|real person|a person|somebody|someone)\b|人工|真人|客服",
    "order_status": r"\bwhere(?:'s| is| are)\b|\bstatus\b|\btrack|\bwhen (?:will|does|do)\b|\barriv|\blook ?up"
    r"|\bmy order\b|在哪|到哪|物流|查(?:询|一下|下)?|什么时候到|状态|进度",
}
TOOLS = {name: re.compile(pattern, FLAGS) for name, pattern in _TOOLS.items()}

_CANCEL = re.compile(
    r"(?:please\s+)?(?:cancel|never ?mind|stop|forget (?:it|about it)|取消|算了|不用了|不要了)"
    r"(?:\s+(?:it|that|this|please))?(?:吧|了)?",
    FLAGS,
)
_YES = re.compile(
    r"(?:y|yes|yeah|yep|sure|ok(?:ay)?|confirm(?:ed)?|go ahead|do it|please do"
    r"|是|是的|对|好|好的|可以|确认|同意|行|嗯)",
    FLAGS,
)
_NO = re.compile(r"(?:n|no|nope|don't|do not|not now|rather not|不|不是|不行|不用|不要|不同意|否|别)", FLAGS)
_TALK: dict[SmallTalk, re.Pattern[str]] = {
    "bye": re.compile(r"\b(?:bye|goodbye|that's all|that is all|quit|exit)\b|再见|拜拜|没事了|没有了", FLAGS),
    "thanks": re.compile(r"\b(?:thanks?|thank you|cheers)\b|谢谢|多谢", FLAGS),
    "hello": re.compile(r"\b(?:hi|hello|hey|good (?:morning|afternoon|evening))\b|你好|您好|早上好|嗨", FLAGS),
}  # fmt: skip
_SENTENCE = re.compile(r"(?<=[?!;。\n])|(?<=\.)(?=\s|$)")
_JOINT = re.compile(
    r",?\s+(?:and|also|then)\s+(?:also\s+|then\s+|please\s+)?"
    r"|[,;]\s*(?:然后|另外|还有|并且|再|顺便)|然后|另外|还有|并且"
)
_HAN = re.compile(r"[\u4e00-\u9fff]")
_LATIN = re.compile(r"[A-Za-z]{2,}")


class Meaning(NamedTuple):
    """The meaning of a message. ``unclear`` contains the parts that the helpdesk does not understand."""

    calls: list[Call]
    talk: SmallTalk
    unclear: list[str]


def language_of(text: str, otherwise: Language) -> Language:
    """Return the language of a text. Text without words, such as an order number, has the language of the chat.

    >>> language_of("订单A-1001在哪", "en"), language_of("where is it", "zh"), language_of("A-1001", "zh")
    ('zh', 'en', 'zh')
    """
    if _HAN.search(text):
        return "zh"
    return "en" if _LATIN.search(text) else otherwise


def meaning(text: str) -> Meaning:
    """Return the meaning of a message, part by part.

    >>> found = meaning("Hello! Where is A-1001, and change the address of A-1002. Mumble mumble.")
    >>> [(call.tool, call.text) for call in found.calls]
    [('order_status', 'Where is A-1001'), ('change_address', 'change the address of A-1002.')]
    >>> found.talk, found.unclear
    ('hello', ['Mumble mumble.'])
    """
    said = normal(text).strip()
    if is_cancel(said):
        return Meaning([], "cancel", [])
    calls: list[Call] = []
    unclear: list[str] = []
    talk: SmallTalk = ""
    for part in _parts(said):
        tool = tool_of(part)
        small = _small_talk(part)
        if tool is not None:
            calls += _calls(tool, part)
        elif small:
            talk = talk or small
        elif calls and _says_something(part):
            calls[-1] = calls[-1].model_copy(update={"text": f"{calls[-1].text} {part}"})
        else:
            unclear.append(part)
    if not (calls or talk or unclear) and said:
        unclear.append(said)
    if len(text) > LONGEST:
        unclear.append(f"… {text[LONGEST:][:60]} …")
    return Meaning(calls, talk, unclear)


def _calls(tool: ToolName, part: str) -> list[Call]:
    """Return one call, or one for each order if the message asks for the status of several."""
    numbers = list(dict.fromkeys(found.value for found in orders(part)))
    if tool == "order_status" and len(numbers) > 1:
        return [Call(tool=tool, text=number) for number in numbers]
    return [Call(tool=tool, text=part)]


def _small_talk(part: str) -> SmallTalk:
    for name, pattern in _TALK.items():
        if pattern.search(part):
            return name
    return ""


def _says_something(part: str) -> bool:
    """Return whether a part may belong to the request before it: it has a number, an address or a known word."""
    return bool(re.search(r"\d|@", part)) or any(choice(part, each) for each in CHOICES.values())


def _parts(said: str) -> list[str]:
    """Split text into sentences, and at an "and" if each side is a request."""
    found: list[str] = []
    for sentence in _SENTENCE.split(said):
        pieces = [piece.strip() for piece in _JOINT.split(sentence)]
        alone = len(pieces) > 1 and all(tool_of(piece) is not None for piece in pieces)
        found += pieces if alone else [sentence.strip()]
    return [part for part in found if re.search(r"\w", part)]


def tool_of(text: str) -> ToolName | None:
    """Return the tool that a part of a message asks for, or None."""
    return next((name for name, pattern in TOOLS.items() if pattern.search(text)), None)


def _bare(text: str) -> str:
    return normal(text).strip(" \t\n.,!?;。、~").casefold()


def is_cancel(text: str) -> bool:
    """Return whether a message cancels the current request.

    >>> [is_cancel(text) for text in ("Cancel!", "取消", "cancel that please", "cancel my order A-1001")]
    [True, True, True, False]
    """
    return _CANCEL.fullmatch(_bare(text).removesuffix(" please")) is not None


def wants_person(text: str) -> bool:
    """Return whether a message asks for a person."""
    return TOOLS["hand_over"].search(normal(text)) is not None


def yes_or_no(text: str) -> bool | None:
    """Return True for a yes, False for a no, or None. A "yes, but …" is None: no money moves on a half-understood word.

    >>> [yes_or_no(text) for text in ("Yes, please!", "好的", "no thanks", "不要", "yes but only half")]
    [True, True, False, False, None]
    """
    said = re.sub(r"[\s,]*(?:please|thanks|thank you|谢谢|吧|的)$", "", _bare(text))
    if _YES.fullmatch(said):
        return True
    return False if _NO.fullmatch(said) or is_cancel(said) else None
