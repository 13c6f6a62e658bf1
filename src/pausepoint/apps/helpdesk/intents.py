"""Find by rules what a message asks for: the requested tools, small talk, a person. In English and Chinese."""

from __future__ import annotations

import difflib
import re
from functools import lru_cache

from pydantic import BaseModel

from pausepoint.apps.helpdesk.dates import FLAGS
from pausepoint.apps.helpdesk.decisions import FAREWELL, is_cancel, is_unwanted
from pausepoint.apps.helpdesk.extraction import LONGEST, blanked, choice, normal, orders
from pausepoint.apps.helpdesk.models import Call, Language, SmallTalk, ToolName
from pausepoint.apps.helpdesk.parameters import CHOICES, MODELS

_PERSON = (
    r"(?:human|person|people|somebody|someone|(?:live |real |human |service |support )?(?:agent|operator"
    r"|representative|adviser"
    r"|advisor|assistant)|staff|employee|manager|supervisor|(?:customer|client|consumer)[ -]?(?:service|support|care"
    r"|assistance)|support team)s?"
)
_REACH = (
    r"(?:speak\w*|spoke|talk\w*|chat\w*|connect\w*|contact\w*|reach\w*|call\w*|phone|transfer\w*|put me through"
    r"|get hold|get(?:ting)?"
    r"|give me|write to|message|need|want|prefer|like|email|e-mail|hotline|phone number|number of|hours of)"
)
_GOODS = (
    r"(?:orders?|purchases?|parcels?|packages?|shipments?|items?|deliver(?:y|ies)|products?|articles?|goods"
    r"|things?|stuff"
    r"|[a-z]-?\d{4})"
)
_MONEY = r"(?:refund\w*|rei[mn]burs\w*|restitution\w*|rebat(?:es?|ing|ed)|compensations?|money back)"
_ASK = r"(?:ask\w*|request\w*|demand\w*|claim\w*|appl(?:y|ying)|get(?:ting)?|obtain\w*|receiv\w*)"
_ADDRESS = r"(?:(?:shipping|delivery|postal|mailing|my|the|new|home)\s+)*(?:address(?:es)?|destination)"
_TOPICS = re.compile(
    r"\b(?:invoices?|bills?|receipts?|accounts?|profiles?|passwords?|regist\w+|sign(?:ing)? ?up|log(?:ging)? ?in"
    r"|newsletters?"
    r"|subscri\w+|reviews?|feedbacks?|comments?|ratings?|opinions?|coupons?|vouchers?|gift cards?|warrant\w+"
    r"|(?:cancell?ation|termination|withdrawal|early exit|exit) (?:fees?|charges?|penalt\w+|costs?)|penalt(?:y"
    r"|ies)|fees?"
    r"|(?:payment|pay) \w+|\bpay(?:ing)?|payments?|money back (?:guarantee|polic\w+)"
    r"|(?:refund|reimbursement|return|restitution) (?:polic\w+|guarantee)"
    r"|(?:in|under) (?:what|which) (?:cases|situations|circumstances|conditions)"
    r"|do ?you (?:deliver|ship|send) (?:abroad|\w+ally|to (?!me\b|my\b|the\b|this\b|an?\b|\d))"
    r"|how long (?:do|does|will|would)?\s*(?:it takes? to )?(?:the |a |get )*(?:refunds?|reimbursements?"
    r"|restitutions?)"
    r"|(?:delivery|shipping|shipment) (?:options?|methods?|choices?|costs?|prices?)|options? for"
    r"|(?:place|make|making|placing) (?:an? |another |some )?(?:new )?(?:orders?|purchases?)|buy(?:ing)?"
    r"|(?:add|remov|swap|exchang|delet|substitut|replac)\w*\b[^.?!]{0,20}\b(?:items?|products?|articles?|something"
    r"|some|things?)"
    r"|(?:chang|modif|edit|updat|alter|correct|swap)\w*\b(?:(?!address)[^.?!,]){0,25}\b(?:orders?|purchases?"
    r"|items?|products?))\b"
    r"|发票|账户|账号|密码|注册|登录|订阅|评价|手续费|违约金|支付方式|付款方式|怎么付款|优惠券|退款政策|配送方式"
    r"|运费",
    FLAGS,
)
"""Topics that the shop's tools do not serve. A person does."""

_TOOLS: list[tuple[ToolName, str]] = [
    (
        "hand_over",
        rf"\b{_REACH}\b[^.?!,]{{0,40}}?\b{_PERSON}\b|^\W*(?:an? |the |some )?{_PERSON}(?: please)?\W*$"
        rf"|\b(?:an? )?{_PERSON},? please\b"
        r"|\b(?:complain\w*|(?:consumer |customer )?claim\b|lodge|reclamation)|(?:real|live) (?:human|person|agent)"
        rf"|\b(?:is|are) there (?:an?y? )?{_PERSON}|\bany {_PERSON}|\b{_PERSON} (?:is )?available|人工|真人|客服"
        rf"|投诉|找个?人|转人",
    ),
    (
        "cancel_order",
        rf"\bcancel (?:my|this|these|that) (?!appointment|booking|request|address)\w+|\bchanged my mind (?:on"
        rf"|about) (?:my|the|this) {_GOODS}|\b(?:cancel\w*|call off|undo"
        rf"|revoke)\b(?:(?!\baddress)[^.?!,]){{0,40}}?\b{_GOODS}\b"
        rf"|\b{_GOODS}\b[^.?!,]{{0,20}}\bcancel\w*"
        r"|\b(?:stop|don't send|do not send|don't ship|do not ship)\b[^.?!,]{0,20}\b(?:order|parcel|shipment"
        r"|package)\b"
        rf"|\b(?:no longer (?:want|need)|do(?:n't| ?not) ?want)\b[^.?!,]{{0,20}}\b{_GOODS}"
        rf"|取消[^。?!,]{{0,8}}(?:订单|购买|[a-z]-?\d{{4}})"
        r"|订单[^。?!,]{0,8}取消|(?:[a-z]-?\d{4})[^。?!,]{0,4}取消|不想要[^。?!,]{0,6}订单|退订|撤单",
    ),
    (
        "change_address",
        rf"\b(?:chang|updat|correct|edit|modif|alter|wrong|new|different|another|set|enter|switch|replac|amend|fix"
        rf"|move|submit|invalid)\w*\b[^.?!]{{0,35}}"
        rf"\b{_ADDRESS}|\b{_ADDRESS}\b[^.?!]{{0,30}}\b(?:chang|wrong|updat|modif|edit|correct|to\b|set\b|not valid"
        rf"|invalid)|\bno {_ADDRESS}"
        r"|\b(?:send|deliver|ship|redirect|forward)\b[^.?!]{0,30}\b(?:to|elsewhere)\b|\b(?:i(?:'ve| have|'m"
        r"| am)? (?:just )?mov(?:ed|ing))\b"
        r"|(?:改|换|修改|更改|变更|更新)[^。?!]{0,8}地址|地址[^。?!]{0,8}(?:改|换|错|变|更新)|(?:寄|送|发)到|搬家",
    ),
    (
        "refund",
        rf"\b(?:how|where|what)\b[^.?!,]{{0,30}}\b{_ASK} (?:for )?(?:an? |my |the |some )?{_MONEY}(?! status)\b",
    ),
    (
        "order_status",  # of a refund: the status of an order tells what was refunded
        rf"\b(?:wait(?:ing)? for|await\w*|expect(?:ing)?)\b[^.?!,]{{0,20}}{_MONEY}"
        rf"|\b(?:where|when|status|track\w*|check\w*|see|view|find|know"
        rf"|follow)\b[^.?!,]{{0,40}}\b(?:status of )?(?:my|the|a|this|that)?\s*{_MONEY}"
        rf"\b(?! back| for)|\b{_MONEY} (?:status|arriv\w*|has been|been|yet)\b|\b(?:updates?|news) (?:on|about"
        rf"|of)\b[^.?!,]{{0,12}}{_MONEY}|退款(?:状态|进度|到哪|什么时候|多久)|(?:查|看)[^。?!,]{{0,4}}退款",
    ),
    (
        "refund",
        rf"\b(?:start|make|request) a return\b|\b(?:send|give|bring|ship)\b[^.?!,]{{0,25}}\bback\b|"
        rf"\breturn(?:ing)? (?:an?|my|the|some|these|this|that|those|it|them|something|part)\b"
        rf"|\bdo(?:n't| not) want (?:my|the|these|this|those) (?!order|parcel|package)\w+ any ?more|\b{_MONEY}"
        rf"|\b(?:return|send back|sending back|give back|giving back|bring back)(?:ing"
        rf"|ed)?\b[^.?!]{{0,30}}\b(?:{_GOODS}|it|this|that|them)"
        rf"|\b(?:return|send)\b[^.?!,]{{0,15}}\b{_GOODS}\b[^.?!,]{{0,8}}\bback\b|\bget my money\b"
        rf"|\bmoney\b[^.?!,]{{0,12}}\bback\b|退款|退钱|退货|退掉|退回"
        r"|把[^。?!,]{1,10}退",
    ),
    ("appointment", r"\bappointment|\bbook\b|\bschedul|\bcome (?:by|over|in) (?:for|to)\b|预约|约个?时间|约一|上门"),
    (
        "order_status",
        rf"\bwhere(?:'s|s| is| are| was)\b|\bwhere\b[^.?!,]{{0,20}}\b(?:is|are|it)\b|\b(?:has|have|had|is|was"
        rf"|been)\b[^.?!,]{{0,12}}\b(?:shipped|sent"
        rf"|dispatched|delivered)\b|\bstatus\b|\btrack\w*|\bwhen (?:will|does|do|is|are|can|should)\b|\barriv\w*"
        rf"|\blook(?:ing)? ?up|\beta\b"
        rf"|\b(?:check|see|find|know|view|follow|locat|trace|monitor)\w*\b[^.?!]{{0,35}}\b{_GOODS}\b|\bon (?:its"
        rf"|the) way\b|\bmy {_GOODS}\b"
        rf"|\bhow (?:long|soon|much longer|many days)\b|\b(?:delivery|shipping|shipment) (?:periods?|times?|dates?"
        rf"|status)\b"
        rf"|\b{_GOODS}\b[^.?!,]{{0,20}}\b(?:late|delayed|missing|lost)|\b(?:not|n't|never"
        rf"|nothing)\b[^.?!,]{{0,12}}\b(?:received?|come|came|got|here)\b"
        rf"|\b(?:updates?|news|update me) (?:on|about)\b[^.?!,]{{0,20}}\b{_GOODS}|\bmy (?:\w+ ){{0,2}}{_GOODS}"
        rf"|\bwaiting for\b[^.?!,]{{0,20}}\b{_GOODS}|\bexpect\w*\b[^.?!,]{{0,25}}\b{_GOODS}|在哪|到哪|物流|查(?:询"
        rf"|一下|下|查)?|什么时候(?:能|会|可以)?(?:到|送|发)"
        r"|几天(?:能|会|可以)?到|多久(?:能|会|可以)?到|状态|进度|发货(?:了吗|没)|还没(?:到|收到|发货)|没收到|快递",
    ),
]
TOOLS = [(name, re.compile(pattern, FLAGS)) for name, pattern in _TOOLS]

_TALK: dict[SmallTalk, re.Pattern[str]] = {
    "bye": FAREWELL,
    "thanks": re.compile(r"\b(?:thanks?|thank you|thx|ty|cheers|much appreciated)\b|谢谢|多谢|感谢|辛苦", FLAGS),
    "hello": re.compile(
        r"\b(?:hi|hello|hey|hiya|howdy|greetings|good (?:morning|afternoon|evening|day))\b|你好|您好|早上好|晚上好"
        r"|下午好|嗨|在吗", FLAGS
    ),
}  # fmt: skip
_SENTENCE = re.compile(r"(?<=[?!;。\n])|(?<=\.)(?=\s|$)")
_JOINT = re.compile(
    r",?\s+(?:and|also|then|plus)\s+(?:also\s+|then\s+|please\s+)?|,\s+(?:please\s+|also\s+)?|[,;]\s*(?:然后|另外"
    r"|还有|并且|再|顺便)"
    r"|然后|另外|还有|并且",
    re.IGNORECASE,
)
_HAN = re.compile(r"[\u4e00-\u9fff]")
_LATIN = re.compile(r"[A-Za-z]{2,}")
_WORDS = (
    "deliver", "delivers", "place", "refund", "refunds", "reimbursement", "address", "cancel", "canceling",
    "cancelling", "cancelled", "order", "orders", "purchase", "parcel", "package", "delivery", "delivered",
    "shipping", "shipment", "tracking", "track", "status", "where", "arrive", "appointment", "schedule", "human",
    "person", "agent", "operator", "customer", "service", "support", "complaint", "complain", "invoice", "account",
    "password", "newsletter", "payment", "review", "change", "update", "someone", "somebody", "speak", "talk",
    "contact", "money", "thanks", "goodbye", "hello", "please",
)  # fmt: skip


class Meaning(BaseModel):
    """The meaning of a message. ``unclear`` contains the parts that the helpdesk does not understand.

    ``reply`` is what a model says about the message, if a model has read it.
    """

    calls: list[Call] = []
    talk: SmallTalk = ""
    unclear: list[str] = []
    reply: str = ""


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
        return Meaning(talk="cancel")
    found = Meaning()
    for part in _parts(said):
        _add(found, part)
    if not (found.calls or found.talk or found.unclear) and said:
        found.unclear.append(said)
    if len(text) > LONGEST:
        found.unclear.append(f"… {text[LONGEST:][:60]} …")
    return found


def _add(found: Meaning, part: str) -> None:
    """Add what one part of a message asks for."""
    tool, small = tool_of(part), _small_talk(part)
    if tool is not None and _is_about(found.calls, tool, part):
        found.calls[-1] = Call(tool=tool, text=f"{found.calls[-1].text}, {part}")
    elif tool is not None and not _continues(found.calls, tool, part):
        found.calls += _calls(tool, part)
    elif is_negated(part):
        found.talk = found.talk or "unwanted"
    elif found.calls and (tool is not None or _says_something(part) or _only_asks_how(part)):
        last = found.calls[-1].tool  # one request about two orders is two calls, and the part is about both
        told = [each.model_copy(update={"text": f"{each.text} {part}"}) for each in found.calls if each.tool == last]
        found.calls = [each for each in found.calls if each.tool != last] + told
    elif small:
        found.talk = found.talk or small
    else:
        found.unclear.append(part)


def _is_about(calls: list[Call], tool: ToolName, part: str) -> bool:
    """Return whether a request is about what the part before it only mentions: "B-2001 came broken, I send it back"."""
    mentioned = bool(calls) and calls[-1].tool == "order_status" and not _ASKS.search(calls[-1].text)
    return mentioned and tool != "order_status" and not orders(part)


_ASKS = re.compile(
    r"\?|\b(?:where|when|status|track|how|check|find|look|has|have|is|are)\b|在哪|到哪|查|什么|状态|进度|吗", FLAGS
)


def _continues(calls: list[Call], tool: ToolName, part: str) -> bool:
    """Return whether a part is more about the last request: the same one, or "it arrived broken" after a refund."""
    if not calls or orders(part):
        return False
    reason = calls[-1].tool == "refund" and tool == "order_status" and choice(part, CHOICES["reason"]) is not None
    return calls[-1].tool == tool or reason


def _calls(tool: ToolName, part: str) -> list[Call]:
    """Return one call, or one for each order if the message names several. Orders do not share a call."""
    numbers = list(dict.fromkeys(found.value for found in orders(part)))
    if tool in MODELS and "order" in MODELS[tool].model_fields and len(numbers) > 1 and not _ALTERNATIVE.search(part):
        rest = blanked(part, orders(part))
        return [Call(tool=tool, text=rest, given={"order": number}) for number in numbers]
    return [Call(tool=tool, text=part)]


_ALTERNATIVE = re.compile(r"\b(?:or|not|instead)\b|或|不是", FLAGS)
"""Words that say that only one of several orders is meant."""


def _small_talk(part: str) -> SmallTalk:
    for name, pattern in _TALK.items():
        if pattern.search(part):
            return name
    return ""


def _says_something(part: str) -> bool:
    """Return whether a part may belong to the request before it: it has a number, an address or a known word."""
    return bool(re.search(r"\d|@", part)) or any(choice(part, each) for each in CHOICES.values())


def _only_asks_how(part: str) -> bool:
    """Return whether a part only asks for help with the request before it, as in "what can I do?"."""
    return _HOW.search(part) is not None


_HOW = re.compile(
    r"^(?:\W|(?:and|so|but|please)\b)*(?:what (?:do|can|should|could|must) i|how (?:do|can|could|should|to)"
    r"|can (?:you|u|ya)|could (?:you|u|ya)|would (?:you|u)|will (?:you|u)"
    r"|where (?:do|can|to)|i need (?:help|assistance)|help me|is (?:it|that) possible|怎么办|可以吗|行吗|能吗)",
    FLAGS,
)


def _parts(said: str) -> list[str]:
    """Split text into sentences, and sentences into requests. What belongs to no request joins the one before it.

    >>> _parts("refund B-2001, it is damaged, and change the address of A-1002")
    ['refund B-2001, it is damaged', 'change the address of A-1002']
    """
    found: list[str] = []
    for sentence in _SENTENCE.split(said):
        pieces = [piece for each in _JOINT.split(sentence) if re.search(r"\w", piece := each.strip())]
        if sum(_is_request(piece) for piece in pieces) < 2:
            found.append(sentence.strip())
            continue
        for index, piece in enumerate(pieces):
            if _is_request(piece) or not index:
                found.append(piece)
            else:
                found[-1] = f"{found[-1]}, {piece}"
    return [part for part in found if re.search(r"\w", part)]


def _is_request(piece: str) -> bool:
    return tool_of(piece) is not None or is_negated(piece)


def tool_of(text: str) -> ToolName | None:
    """Return the tool that a part of a message asks for, or None. A request that is negated is none.

    >>> [tool_of(text) for text in ("cancel my order A-1001", "I do NOT want a refund", "is there a cancellation fee?")]
    ['cancel_order', None, None]
    """
    said = spelled(text)
    topic = _TOPICS.search(said)
    for name, pattern in TOOLS:
        while (match := pattern.search(said)) is not None and _is_unwanted(said, match):
            said = _without_clause(said, match)
        if match is not None and (topic is None or name == "hand_over"):
            return name
    return None


def _is_unwanted(said: str, match: re.Match[str]) -> bool:
    return is_unwanted(said[: match.start()]) and not _starts_negated(match[0])


def _without_clause(said: str, match: re.Match[str]) -> str:
    """Return a text without the clause of a negated request."""
    end = re.search(r"[,.;!?。]", said[match.end() :])
    rest = said[match.end() + end.end() :] if end is not None else ""
    return said[: max(said.rfind(mark, 0, match.start()) for mark in ",.;!?。") + 1] + rest


def _starts_negated(words: str) -> bool:
    """Return whether a negation belongs to the request itself, as in "don't send my order" or "I don't know where"."""
    return (
        re.match(
            r"(?:not?|n't|never|nothing|don't|do not|no longer|know|see|find|check|understand)\b|不想要|没|还没",
            words,
            FLAGS,
        )
        is not None
    )


def is_negated(text: str) -> bool:
    """Return whether a part of a message names a tool and says that it is not wanted."""
    said = spelled(text)
    found = [match for _, pattern in TOOLS if (match := pattern.search(said)) is not None]
    return tool_of(text) is None and any(_is_unwanted(said, match) for match in found)


@lru_cache(maxsize=256)
def spelled(text: str) -> str:
    """Correct typing errors in the words that matter.

    >>> spelled("were is my pacakge? i want a refudn")
    'were is my package? i want a refund'
    """
    return re.sub(r"\b[a-z]{5,14}\b", lambda match: _word(match[0]), normal(text).replace("’", "'"), flags=FLAGS)


@lru_cache(maxsize=4096)
def _word(word: str) -> str:
    lower = word.lower()
    if lower in _WORDS or lower.rstrip("s") in _WORDS:
        return word
    close = difflib.get_close_matches(lower, _WORDS, 1, 0.82)
    return close[0] if close and lower[0] == close[0][0] else word


def wants_person(text: str) -> bool:
    """Return whether a message asks for a person."""
    return tool_of(text) == "hand_over"
