"""Find out by rules whether a message agrees, declines, cancels or negates. In English and Chinese.

A message is read clause by clause. It agrees only if every clause does: "yes, but only half" is unclear, because
nothing is written on a half-understood word. One clause that declines is enough for a no.
"""

from __future__ import annotations

import re
import unicodedata

from pausepoint.apps.helpdesk.dates import FLAGS
from pausepoint.apps.helpdesk.extraction import normal


def _any(*phrases: str) -> str:
    """Return a pattern for one of several phrases."""
    return f"(?:{'|'.join(phrases)})"


def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern. Customers may leave out an apostrophe."""
    return re.compile(pattern.replace("'", "'?"), FLAGS)


FILLERS = (
    "oh", "ah", "well", "hm+", "um+", "so", "and", "then", "just", "please", "pls", "thanks?", "thank you", "thx", "ty",
    "dear", "sir", "madam", "very much", "a lot", "really", "actually", "to you", "for me", "now", "right now",
    "right away", "at once", "again", "sorry",
    "嗯", "啊", "呀", "吧", "了", "的", "呢", "哦", "那", "就", "请", "麻烦", "谢谢", "多谢", "你", "您", "马上",
    "现在", "先",
)  # fmt: skip
"""Words that change nothing in a yes or a no."""

_IT = _any(
    "it", "that", "this", "so", "my order", "my refund", "the order", "the refund", "the address", "the appointment",
    "the change", "the change of address",
)  # fmt: skip
_THAT = _any(
    "that", "this", "it", "which", "what you said", "what you just said", "the answer", "the statement", "my answer"
)
_IS = _any("'s", "'d be", " is", " was", " would be", " will be", " seems", " appears", " sounds")
_VERY = _any(
    "indeed", "totally", "very", "definitely", "completely", "actually", "absolutely", "quite", "all", "so", "just",
    "exactly", "a", "an", "the", "hard", "definite",
)  # fmt: skip
_SO = rf"{_THAT}{_IS}?(?:\s*\b{_VERY})*"
"""As in "that is absolutely", before "right" or "wrong"."""

_TO_ME = _any(" from me", " for sure", " to me", " with me", " in my book")
_DO = _any("refund", "cancel", "change", "book", "send", "bother", "do", "want", "need")
_HAN_DO = _any("退", "改", "办", "约", "寄", "取消")

AGREEMENTS = (
    "y", "ye+s+", "yea+h*", "yep", "yeap", "yup", "ya+", "yess?ir", "aye", "uh[- ]?huh", "mhm+", "k", "ok", "okay",
    "okie", "alright", "all right", "sure", "sure thing", "for sure", "of course", "certainly", "definitely",
    "absolutely", "indeed", "exactly", "good", "great", "perfect", "cool", "correct", "right", "true", "very true",
    "positive", "affirmative", "agreed?", "i agree", "approved?", "confirm", "confirmed", "i confirm", "i do", "i am",
    "i am sure", "i'm sure", "fine", "fine with me", "fine by me", "works for me", "that works", "why not",
    "by all means", "make it so", "go ahead", "go ahead and do it", "go for it", "go on", "proceed", "continue",
    "carry on", "do it", "do that", "do so", "please do", "please do so", "let's (?:do|go)(?: (?:it|that|with that))?",
    "sounds (?:good|right|great|fine)", "looks (?:good|right|great|correct|fine)",
    "(?:that|this|it)(?:'s| is)? (?:is )?(?:right|correct|fine|good|ok(?:ay)?|perfect|great|it|what i want(?:ed)?)",
    rf"{_SO}\s+(?:true|right|correct|affirmative|accurate|great|awesome|lovely|fine|good|yes|valid|confirmed|fact|truth"
    rf"|perfect|okay|ok|the case|positive|it){_TO_ME}?",
    "you're", "you are", "you(?:'re| are) (?:so |very |quite )?(?:right|correct)", "you got it",
    "you (?:may|can)(?: do (?:it|that|so))?", "i (?:want|need|would like)(?: it| that| this| you to)?",
    "i (?:think|believe|guess|suppose) so", "i(?:'d| would)? ?(?:really )?(?:like|love) (?:that|it|to)(?: a ?lot)?",
    "(?:i|i'd|i would|i'll) (?:say|vote) yes", "yes (?:is|to) (?:the answer|that)",
    rf"(?:book|send|refund|use)(?:\s+{_IT})?",  # "change it" may mean another address
    "是", "对", "好", "可以", "行", "成", "没问题", "没错", "确认", "确定", "同意", "当然", "要", "我要", "需要",
    "我同意", "我确认", "办", "办理", "继续", "退", "寄", "约", "订", "正确", "就这样", "这样可以",
)  # fmt: skip

REFUSALS = (
    "n", "no+", "nope", "nah+", "naw", "nay", "never(?: ?mind)?", "negative", "no (?:way|need|thanks?|thank you|thx)",
    "not (?:now|yet|really|at all|today|this time|that|that one|ok(?:ay)?|right|correct|sure|true|the case)",
    "(?:definitely|absolutely|certainly|of course|surely|probably|i think|i guess|better) not",
    "do not", "don't", "please don't", rf"(?:do not|don't) {_DO}\b.*",
    "i (?:do not|don't|did not|didn't|would not|wouldn't)(?: (?:want|need|agree|think so|like)\\b.*)?",
    "i (?:do not|don't) (?:think|believe|agree)\\b.*", "(?:i'd |i would )?rather not", "i disagree",
    "i(?:'ll| will) pass", "i refuse", "refused?", "decline[ds]?", "reject(?:ed)?", "stop", "wait", "hold on", "cancel",
    "abort", "skip(?: it)?", "forget (?:it|about it|that)", "leave it(?: as it is| alone)?", "keep it(?: as it is)?",
    "i(?:'ve| have)? changed my mind", "wrong", "incorrect", rf"(?:totally )?false{_TO_ME}?", rf"negative{_TO_ME}?",
    "(?:that|this|it)(?:'s| is)? (?:is )?not (?:right|correct|what i want(?:ed)?|ok(?:ay)?)",
    "(?:that|this|it)(?:'s| is)? (?:is )?(?:wrong|incorrect|false)",
    rf"{_SO}\s+(?:not?|false|wrong|incorrect|inaccurate|untrue|erroneous|negative)\b.*",
    rf"{_SO}\s*(?:isn|wasn|wouldn)'t\b.*", "no is the answer",
    "(?:i |i'd |i would |i must |i gotta |i have to |i'd have to )*say (?:no|negative)(?: to that)?",
    "不", "不是", "不对", "不行", "不用", "不要", "不可以", "不同意", "不需要", "不想", "不必", "不办", "不退",
    "不改", "不约", "不寄", "不取消", "不确认", "否", "别", "没有", "没", "算", "算了", "取消", "先不", "先别",
    "等等", "等一下", "错", "错了", "我改主意", "我反悔",
    "暂时不(?:用|要|需要)?", "我不(?:要|想|同意|需要).*", rf"(?:别|不要|不用){_HAN_DO}.*",
)  # fmt: skip

CANCELLATIONS = (
    "cancel", "never ?mind", "stop", "quit it", "abort", "forget it", "forget about it", "forget that", "leave it",
    "drop it", "i(?:'ve| have)? changed my mind",
    "i (?:do not|don't) (?:want|need) (?:it|that|this|anything)(?: any ?more)?",
    "取消", "算了?", "不用了?", "不要了?", "不办", "不弄", "不需要",
)  # fmt: skip
GOODBYES = (
    "bye", "bye[- ]?bye", "good ?bye", "good ?night", "farewell", "cya", "see (?:you|ya)",
    "see (?:you|ya) (?:later|soon|then|tomorrow|around)", "take care", "take it easy", "talk (?:to you )?later",
    "(?:i )?(?:have|need|got|'ve got) to (?:go|run|leave|get going)", "(?:i )?gotta (?:go|run)",
    "i(?:'m| am) (?:off|leaving)",
    "have a (?:nice|good|great|lovely) (?:day|one|evening|night|weekend)", "quit", "exit",
    "adi[oó]s", "au revoir", "auf wiedersehen", "arrivederci", "ciao", "hasta luego", "sayonara", "tot ziens",
    "tsch(?:ü|ue)ss?",
    "再见", "拜拜", "晚安", "回头见", "回头聊", "先走了", "我走了", "我要走了", "改天再说", "下次再说",
)  # fmt: skip
ENDINGS = (
    "that(?:'s| is| will be|'ll be) (?:all|it|everything)", "nothing else", "later",
    "(?:nice|good|great|fun) (?:to )?(?:talk|chat|speak)\\w*", "thanks for (?:chatting|talking)", "i'm (?:done|good)",
    "没事了", "没有了", "就这些", "没别的",
)  # fmt: skip
"""What ends a chat without an open question. While a question is open, such words need a clear goodbye beside them."""

_ALL = _any("it", "that", "this", "the request", "my request", "everything", "all of it")

_FILL = rf"(?:{_any(*FILLERS)}\s*)*"


def _clause(*phrases: str) -> re.Pattern[str]:
    """Return a pattern for a clause that consists of such phrases."""
    return _compiled(rf"{_FILL}(?:{_any(*phrases)}(?![a-z])(?:\s+{_IT})?\s*{_FILL})+")


_YES = _clause(*AGREEMENTS)
_NO = _clause(*REFUSALS)
_CANCEL = _compiled(rf"{_FILL}{_any(*CANCELLATIONS)}(?:\s+{_ALL})?\s*{_FILL}")
_GOODBYE = _clause(*GOODBYES)
_ENDING = _clause(*ENDINGS)
FAREWELL = _compiled(rf"(?<![a-z]){_any(*GOODBYES, *ENDINGS)}(?![a-z])")
"""A goodbye anywhere in a message."""

_CLAUSE = re.compile(r"[,.!;:。、~\n]+|\s+-+\s+|\s+(?=but\b)", re.IGNORECASE)

_UNWANTED = re.compile(
    r"(?:(?:do(?:es)?|did|would) ?(?:n'?t|not)|(?:don|doesn|didn|wouldn)'?t|never|not|no longer)\s+(?:\w+\s+){0,2}?"
    r"(?:want|wanted|need|needed|wish|ask|asked|asking|like|require|request|requested|looking|interested|mean"
    r"|meant)\b[^,.;!?]{0,40}$"
    r"|\b(?:don'?t|do not|never|no|not an?|not the|not my|without an?|instead of an?|rather than an?|not to|not)\s+"
    r"(?:please\s+|you\s+|just\s+|dare\s+|to\s+|ever\s+)?$"
    r"|(?:不要|不想要?|不用|不需要|不必|无需|别|先不|不)(?:再|给我|帮我|申请|办理|要求|要)?$",
    FLAGS,
)


def clauses(text: str) -> list[str]:
    """Return the clauses of a message, without punctuation."""
    return [part for each in _CLAUSE.split(_bare(text)) if (part := each.strip(" \t\"'“”()?"))]


def yes_or_no(text: str) -> bool | None:
    """Return True for a yes, False for a no, or None if the message is neither or both.

    >>> [yes_or_no(text) for text in ("Yes, please go ahead!", "that's right", "好的", "no thanks", "I'd rather not")]
    [True, True, True, False, False]
    >>> yes_or_no("yes but only half"), yes_or_no("yes or no?"), yes_or_no("Is that right?")
    (None, None, None)
    """
    said = clauses(text)
    if not said or "?" in normal(text):
        return None
    if all(_YES.fullmatch(each) or _only_filling(each) for each in said):
        return True if any(_YES.fullmatch(each) for each in said) else None
    agrees = any(_YES.fullmatch(each) for each in said)
    declines = any(_NO.fullmatch(each) or _CANCEL.fullmatch(each) for each in said)
    return False if declines and not agrees else None


def _only_filling(clause: str) -> bool:
    return re.fullmatch(_FILL, clause, FLAGS) is not None


def is_cancel(text: str) -> bool:
    """Return whether a message cancels the current request.

    >>> [is_cancel(text) for text in ("Cancel!", "取消", "cancel that please", "never mind, thanks", "cancel my order")]
    [True, True, True, True, False]
    """
    said = clauses(text)
    return any(_CANCEL.fullmatch(each) for each in said) and all(
        _CANCEL.fullmatch(each) or _NO.fullmatch(each) or _only_filling(each) for each in said
    )


def without_goodbye(text: str) -> tuple[str, bool]:
    """Return a message without its goodbye, and whether there was one.

    >>> without_goodbye("Yes please. Bye!"), without_goodbye("I have to go, bye"), without_goodbye("it came later")
    (('yes please', True), ('', True), ('it came later', False))
    """
    said = clauses(text)
    kept = [each for each in said if not _GOODBYE.fullmatch(each)]
    if len(kept) == len(said) or "?" in normal(text):
        return text, False
    return ", ".join(each for each in kept if not (_ENDING.fullmatch(each) or _only_filling(each))), True


def has_refusal(text: str) -> bool:
    """Return whether any word of a message may be a refusal. A model may not read a yes in such a message.

    >>> has_refusal("ja, gerne"), has_refusal("I do not think so"), has_refusal("nein, danke"), has_refusal("不太好")
    (False, True, True, True)
    """
    return _REFUSAL.search(normal(text)) is not None


_REFUSAL = re.compile(
    r"\b(?:no|not|nope|nah|never|don'?t|do not|can'?t|won'?t|isn'?t|stop|wait|cancel|wrong|nein|nicht|kein\w*|non"
    r"|pas|ne"
    r"|nunca|não|nao|nie|nej|nee|niet|geen|hayır|hayir|ikke|net)\b|[不别没否错]|取消|算了|いいえ|いや|아니|нет|לא|لا",
    FLAGS,
)


def is_unwanted(before: str) -> bool:
    """Return whether the words before a request negate it.

    >>> [is_unwanted(words) for words in ("I do NOT want a ", "please don't ", "我不要", "I do not know where my ")]
    [True, True, True, False]
    """
    return _UNWANTED.search(before) is not None


def _bare(text: str) -> str:
    said = re.sub("[👍👌✅🆗]", ",yes,", re.sub("[👎❌🚫]", ",no,", normal(text).replace("’", "'")))
    shown = "".join(char for char in said if unicodedata.category(char) not in ("So", "Sk", "Mn", "Cf"))
    return shown.strip(" \t\n.,!?;。、~").casefold()
