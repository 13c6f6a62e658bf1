"""Find out by rules whether a message agrees, declines, cancels or negates. In English and Chinese.

A message is read clause by clause. It agrees if one clause does, and if every other one only repeats what was asked
for or gives a reason. A condition, a negation or another wish anywhere makes it unclear: "yes, but only half" writes
nothing. One clause that declines is enough for a no.
"""

from __future__ import annotations

import re
import unicodedata

from pausepoint.apps.helpdesk.dates import FLAGS
from pausepoint.apps.helpdesk.extraction import normal
from pausepoint.apps.helpdesk.models import ToolName


def _any(*phrases: str) -> str:
    """Return a pattern for one of several phrases."""
    return f"(?:{'|'.join(phrases)})"


def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern. Customers may leave out an apostrophe."""
    return re.compile(pattern.replace("'", "'?"), FLAGS)


FILLERS = (
    "oh", "ah", "well", "hm+", "um+", "so", "and", "then", "just", "please", "pls", "thanks?", "thank you", "thx", "ty",
    "dear", "sir", "madam", "very much", "a lot", "really", "actually", "to you", "for me", "now", "right now",
    "right away", "at once", "again", "sorry", "asap", "as soon as possible", "for (?:your|the|all your) help", "hey",
    "嗯", "啊", "呀", "吧", "了", "的", "呢", "哦", "那", "就", "请", "麻烦", "谢谢", "多谢", "你", "您", "马上",
    "现在", "先", "尽快", "亲", "哒", "啦", "哈",
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
_VALUE = _any(
    "street", "address", "(?:house |post|phone )?(?:number|code)", "zip", "city", "name", "amount", "sum", "date",
    "day", "time", "information",
)  # fmt: skip
_HAN_DO = _any("退", "改", "办", "约", "寄", "取消")

_NO_IDIOM = r"(?!\s+(?:problem|worries|objections?|doubt|idea|clue|one|matter|more|less|longer)\b)"
_HAN_IDIOM = "(?!错|好意思|客气|过|仅|但|管|知道|清楚|确定|懂|明白|太|能|好用|合|喜欢|值|满意|够)"
"""What follows a word of negation that refuses nothing."""

AGREEMENTS = (
    "y+[aeu]*(?:h+|p+|s+)?", "yeap", "yess?ir", "aye", "uh[- ]?huh", "mhm+", "k+", "o+k+", "oka+y+", "ok[ei]y?",
    r"oki?e?y? ?dok(?:ey|ie|i)", "ofc", "def(?:o|initely)?", "totally", "gladly", "with pleasure", "deal", "you bet",
    "spot on", "awesome", "excellent", "lovely", "wonderful", "brilliant", "super", "very well", "alright",
    "all right", "sure", "sure thing", "for sure", "of course", "certainly", "absolutely", "indeed", "exactly", "good",
    "great", "perfect", "cool", "correct", "right(?! (?:now|away))", "true", "very true", "positive", "affirmative",
    "agreed?", "i agree", "approved?", "confirm(?! (?:the|my|that|this|your|an?)\\b)", "confirmed", "i confirm",
    "i do", "i am", "i am sure", "i'm sure", "fine", "fine with me", "fine by me",
    "(?:that )?works(?: (?:for|with) me)?", "why not", "no (?:problem|worries|objections?|doubt)",
    "(?:all|very|so) (?:good|right|fine|great|perfect|correct)",
    "(?:i'm |i am )?(?:very |so |quite )?(?:happy|ok|okay|fine|good) with (?:that|this|it)", "(?:i )?accept(?:ed)?",
    "(?:i'd|i would) (?:really )?appreciate (?:that|this|it)",
    "that(?:'d| would) be (?:so |very |really )?(?:great|good|nice|fine|perfect|lovely|wonderful|awesome"
    "|fantastic|helpful|kind|appreciated)",
    "(?:yes )?(?:it|that) is", "(?:that|this|it)(?:'s| is)? the (?:right |correct )?(?:one|address)", "by all means",
    "make it so", "go ahead", "go ahead and do it", "go for it", "go on", "proceed", "continue", "carry on", "do it",
    "do that", "do so", "please do", "please do so", "let's (?:do|go)(?: (?:it|that|with that))?",
    "sounds (?:good|right|great|fine|perfect|ok|okay)", "looks (?:good|right|great|correct|fine|perfect|ok|okay)",
    "(?:that|this|it)(?:'s| is)? (?:is )?(?:right|correct|fine|good|ok(?:ay)?|perfect|great|it|what i want(?:ed)?)",
    rf"{_SO}\s+(?:true|right|correct|affirmative|accurate|great|awesome|lovely|fine|good|yes|valid|confirmed|fact|truth"
    rf"|perfect|okay|ok|the case|positive|it){_TO_ME}?",
    "you're", "you are", "you(?:'re| are) (?:so |very |quite )?(?:right|correct)", "you got it",
    "you (?:may|can)(?: do (?:it|that|so))?", "i (?:want|would like)(?: that| this| you to)",
    "i (?:think|believe|guess|suppose) so", "i(?:'d| would)? ?(?:really )?(?:like|love) (?:that|it)(?: a ?lot)?",
    r"i(?:'d| would) (?:like|love) to(?=\W*(?:please\W*)?$)", "(?:i|i'd|i would|i'll) (?:say|vote) yes",
    "yes (?:is|to) (?:the answer|that)", "是", "对", "好", "可以", "行", "成", "没问题", "没错", "没毛病", "没意见",
    "无误", "不错", "确认", "确定", "同意", "当然", "要", "我要", "需要", "我同意", "我确认", "办", "办理", "继续",
    "正确", "就这样", "这样可以",
)  # fmt: skip

REFUSALS = (
    "n", "no+", "nope", "na+h+", "naw", "nay", "never(?: ?mind)?", "nvm", "nm",
    rf"(?:no+|nope|na+h+|naw|nay)\b{_NO_IDIOM}.*", r"not\b(?!\s+(?:a problem|sure|certain|bad|only|so|\w+ing)\b).*",
    r"(?:just )?(?:do not|don't)\b(?!\s+(?:worry|mind|forget|hesitate|know|understand|see|remember|think|get|work"
    r"|fit|have)\b).*",
    r"i(?:'d| would)? (?:much )?rather\b.*",
    r"i(?:'ll| will| want to|(?:'d| would) like to|'m| am) keep(?:ing)?\b.*",
    r"(?:i(?:'ve| have)? )?(?:decided|voted?) (?:against|not)\b.*", r"on second thoughts?\b.*", "hold off", "hang on",
    rf"(?:the|my|our) (?:\w+ )?{_VALUE} (?:is|was|are) (?:all |still |totally )?(?:not |wrong|incorrect|false)\b.*",
    r"(?:that|this|it)(?:'s| is| was)? (?:my|our|the) (?:\w+ )?(?:old|wrong|previous|former)\b.*",
    r"i(?:'ve| have)? (?:made a mistake|mistyped)\b.*", "my (?:mistake|bad)", "keep (?:it|that|them|everything)\\b.*",
    "negative", "not (?:sure|so)",
    "(?:definitely|absolutely|certainly|of course|surely|probably|i think|i guess|better) not",
    "i (?:do not|don't|did not|didn't|would not|wouldn't)(?: (?:want|need|agree|think so|like)\\b.*)?",
    "i (?:do not|don't) (?:think|believe|agree)\\b.*", "(?:i'd |i would )?rather not", "i disagree",
    "i(?:'ll| will) pass", "i refuse", "refused?", "decline[ds]?", "reject(?:ed)?", "stop", "wait", "hold on",
    "cancel", "abort", "skip(?: it)?", "forget (?:it|about it|that)", "leave it(?: as it is| alone)?",
    "i(?:'ve| have)? changed my mind", "wrong", "incorrect", rf"(?:totally )?false{_TO_ME}?", rf"negative{_TO_ME}?",
    "(?:that|this|it)(?:'s| is)? (?:is )?not (?:right|correct|what i want(?:ed)?|ok(?:ay)?)",
    "(?:that|this|it)(?:'s| is)? (?:is )?(?:wrong|incorrect|false)",
    rf"{_SO}\s+(?:not?|false|wrong|incorrect|inaccurate|untrue|erroneous|negative)\b.*",
    rf"{_SO}\s*(?:isn|wasn|wouldn)'t\b.*", "no is the answer",
    "(?:i |i'd |i would |i must |i gotta |i have to |i'd have to )*say (?:no|negative)(?: to that)?", "不", "不是",
    "不对", "不行", "不用", "不要", "不可以", "不同意", "不需要", "不想", "不必", "不办", "不退", "不改", "不约",
    "不寄", "不取消", "不确认", "否", "别", "没有", "没", "算", "算了", "取消", "先不", "先别", "等等", "等一下", "错",
    "错了", "我改主意", "我反悔", rf"(?:别|不要|不用){_HAN_DO}.*",
    rf"(?:还是|还|就|也|真的?|再|其实|千万|又|暂时|我们?|咱们?)*(?:(?:不|别|甭|勿){_HAN_IDIOM}|没必要).*",
    ".*(?:不对|有误|错了|不是[这那].*)",
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
_NOD = _compiled(r"^(?:please|嗯+)$|麻烦")
"""A filler that is a yes if a message has nothing else."""

_YES_FIRST = _compiled(rf"{_FILL}(?:{_any(*AGREEMENTS)}(?![a-z]|'[a-z])\s*{_FILL})++")
_NO = _clause(*REFUSALS)
_CANCEL = _compiled(rf"{_FILL}{_any(*CANCELLATIONS)}(?:\s+{_ALL})?\s*{_FILL}")
_GOODBYE = _clause(*GOODBYES)
_ENDING = _clause(*ENDINGS)
FAREWELL = _compiled(rf"(?<![a-z]){_any(*GOODBYES, *ENDINGS)}(?![a-z])")
"""A goodbye anywhere in a message."""

_CLAUSE = re.compile(
    r"[,.!;:。、~\n]+|\s+-+\s+|\s+(?=(?:but|because|cause|cos|cuz|(?:as|since) (?:i|we|it|the|my))\b)", re.IGNORECASE
)

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


# a yes in a longer message

_ASKED: dict[ToolName, str] = {
    "refund": "refund(?:ed|ing)?|reimburse|pay|(?:send|give)(?: me)?(?: my| the)? money|money",
    "change_address": "send|ship|deliver|change",
    "appointment": "book|schedule",
    "cancel_order": "refund|pay|money",
}
_HAN_ASKED: dict[ToolName, str] = {
    "refund": "退", "change_address": "改成|寄|发货|送", "appointment": "预约|约|订", "cancel_order": "退",
}  # fmt: skip
"""The words that repeat what a tool asks to confirm."""

_PLAIN = (
    r"(?:the|this|that|my|our|your) (?:new|right|correct|full|whole|entire|total)", "(?:the|that|this) one",
    "all of it", r"(?:(?:back )?to|on) my (?:card|account|bank account)",
    "(?:as )?(?:soon|quickly|fast) as (?:possible|you can)", "(?:for|all) your (?:help|support|time)", "i'd",
    "i would", "yes", "please", "thank", "thanks", "thx", "it", "that", "that's", "it's", "this", "so", "me", "us",
    "to", "back", "for", "my", "the", "a", "an", "full", "whole", "amount", "sum", "payment", "there", "here",
    "address", "place", "home", "order", "up", "you", "u", "i", "we", "and", "then", "now", "just", "is", "am", "are",
    "be", "want", "wish", "wanted", "like", "love", "do", "go", "ahead", "update", "very", "really", "much", "a lot",
    "again", "with", "at", "on", "soon", "quickly", "kindly", "request",
)  # fmt: skip
"""Words that add nothing to a yes, because they only repeat the question or are polite."""

_HAN_PLAIN = "[请帮我们给你您就这么样个里地址新是的把款钱改成一下到办处理吧了呢啊呀哦嗯亲快尽马上谢来那货发]|麻烦"

_GOOD = "right|correct|good|fine|great|perfect|ok|okay|agree[ds]?|accept(?:ed)?|confirm(?:ed)?|happy|exactly"
_HAN_GOOD = "没问题|没错|没毛病|没意见|无误|可以|正确|同意|确认|确定|[对好行要]"

_QUESTION = _compiled(
    "(?:is|are|am|was|does|did|can|could|would|will|shall|should|may|what|which|who|how|why|where|when|have|has"
    "|had)\\b.*"
)


def _repeats(asked: ToolName | None) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of a clause that only repeats what is asked, and of a word in it that agrees."""
    words, han = (_ASKED.get(asked, "(?!)"), _HAN_ASKED.get(asked, "(?!)")) if asked is not None else ("(?!)", "(?!)")
    plain = rf"(?:\b(?:{_any(*_PLAIN)}|{_GOOD}|{words})(?![\w'])|{_HAN_GOOD}|{han}|{_HAN_PLAIN}|[\s()/*-])++"
    # "change it" may mean another address, and "send it to my address" the old one
    alone = words.replace("send|ship|deliver|change", r"(?:send|ship|deliver)(?!.*\bmy (?!new\b))")
    return _compiled(plain), _compiled(rf"\b(?:{_GOOD}|{alone})\b|{_HAN_GOOD}|{han}")


_REPEATS = {asked: _repeats(asked) for asked in (None, *_ASKED)}

_NEGATION = (
    r"\b(?:not|never|none|nothing|nobody|without|neither|nor|cannot|no|hardly|barely"
    r"|(?:do|does|did|is|was|are|were|have|has|had|ca|wo|could|would|should|must|need)n't)\b|[不没别无非未勿否莫]"
)
_CONDITION = _compiled(
    r"\b(?:if|unless|only|but|(?:al)?though|however|except\w*|excluding|apart|aside|besides|provid\w+|assum\w+"
    r"|suppos\w+|(?:as|so) long as|once|whenever|until|till?|after\w*|before|while|first|otherwise|whether|depend\w*"
    r"|conditions?|in case|instead|rather|wait(?!ed|ing)|hold)\b|[但如若除等先才只]|要是|可是|的话|之后|以后|之前|万一"
    rf"|{_NEGATION}"
)
"""Words of a condition or a negation."""

_DOUBT = _compiled(
    r"\b(?:when|other\w*|another|differen\w*|else\w*|wrong\w*|incorrect\w*|mistake\w*|typo|maybe|perhaps|possibly|may"
    r"|might|could|should|would|must|can|will|shall|(?:i|you|he|she|it|they|that)'ll|stop|cancel\w*|doubt\w*|unsure"
    r"|think\w*|consider\w*|decid\w*|ask\w*|what\w*|why|how\w*|which|who|prefer\w*|exchang\w*|replac\w*|swap\w*|vouchers?|keep\w*|kept|half|part\w*|some|more|less"
    r"|minus|plus|also|old|previous|one|two|both|almost|nearly|yet|still|later|tomorrow|want\w*|wish\w*)\b"
    r"|[\d@%€$£¥]|[换另再错少多半暂吗怎哪几或]|什么"
)
"""Words of a doubt, another wish or another value."""

_IDIOM = _compiled(
    r"\b(?:no (?:problem|worries|objections?|doubt)|why not|(?:that|this|the) one"
    r"|(?:i|that|it)(?:'d| would) (?:really )?(?:like|love|appreciate|be)"
    r"|(?:i|we) want(?:ed)? (?:it|that|this|the refund|my money)|as (?:soon|quickly|fast) as (?:possible|you can)"
    r"|asap|when (?:it|they|i|we) (?:was|were|came|got|\w+ed))\b|没问题|没错|没毛病|没意见|无误|不错|不好意思"
)
"""Agreements and courtesies that contain such a word."""

_SUBJECT = r"(?:i|we|they|he|she|these|those|it|this|(?:the|my|our|his|her|its) \w+(?: \w+)??)"
_STATE = _any(
    r" (?:\w+ ){0,2}?(?:was|were|is|are|am|(?:have|has|had) (?:\w+ )?(?:been|\w+ed))",
    " (?:really )?needs? (?:the|my) money",
    r" (?:\w+ ){0,2}?(?:came|broke|got|bought|paid|lost|left|fell|felt|forgot|went|sent|hate[sd]?|(?!need)\w{2,}ed)",
)  # fmt: skip
_HAN_OTHER = "[^要想给帮寄送发改退约订查]"
_REASON = _compiled(
    rf"(?:(?:because|cause|cos|cuz|bc|as|since|for|and|so)\s+)?(?:{_SUBJECT}{_STATE}"
    r"|(?:i|we|they)'ve|i'm|(?:it|he|she|that)'s|(?:we|they)'re)\b.*"
    rf"|{_HAN_OTHER}{{0,12}}(?:坏|破|碎|裂|小|大|旧|脏|慢|迟|晚|久|搬|急|漏|掉色){_HAN_OTHER}{{0,6}}"
)
"""A reason: something has happened or is in a state, as in "it arrived broken". It asks for nothing."""


def yes_or_no(text: str, asked: ToolName | None = None) -> bool | None:
    """Return True for a yes, False for a no, or None if the message is neither or both.

    ``asked`` is the tool whose confirmation is open. The words of its question agree, too: "send it there".

    >>> [yes_or_no(text) for text in ("Yes, please go ahead!", "that's right", "好的", "no thanks", "I'd rather not")]
    [True, True, True, False, False]
    >>> yes_or_no("yes but only half"), yes_or_no("yes or no?"), yes_or_no("Is that right?")
    (None, None, None)
    >>> yes_or_no("yes please, it arrived broken", "refund"), yes_or_no("yes, if the postage is free", "refund")
    (True, None)
    """
    said = clauses(text)
    if not said or "?" in normal(text):
        return None
    if all(_YES.fullmatch(each) or _only_filling(each) for each in said):
        return True if any(_YES.fullmatch(each) for each in said) or any(map(_NOD.search, said)) else None
    if any((_NO.fullmatch(each) and not _YES.fullmatch(each)) or _CANCEL.fullmatch(each) for each in said):
        return None if any(_YES.fullmatch(each) for each in said) else False
    whole = _IDIOM.sub(" ", _bare(text))
    if _CONDITION.search(whole) is not None or _DOUBT.search(whole) is not None:
        return None
    read = [_agreement(each, asked) for each in said]
    return True if None not in read and True in read else None


def has_condition(text: str) -> bool:
    """Return whether a message has a word of a condition or a negation.

    >>> has_condition("yes, and where is B-2001?"), has_condition("yes, once it has arrived")
    (False, True)
    """
    said = _IDIOM.sub(" ", _bare(text))
    return _CONDITION.search(said) is not None or (re.search(r"\bwhen\b", said) is not None and "?" not in normal(text))


def _agreement(clause: str, asked: ToolName | None) -> bool | None:
    """Return whether a clause agrees, or None if it says something else than a yes, the question or a reason."""
    first = _YES_FIRST.match(clause)
    rest = clause if first is None else clause[first.end() :]
    plain, agrees = _REPEATS[asked]
    if first is None and _QUESTION.fullmatch(clause) is not None:
        return None
    if plain.fullmatch(rest) is not None or not rest:
        return first is not None or agrees.search(rest) is not None
    if _REASON.fullmatch(rest) is not None:
        return first is not None
    return None


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


def has_reservation(text: str) -> bool:
    """Return whether any word of a message may be a refusal or a condition. No model may read a yes in such a message.

    >>> [has_reservation(text) for text in ("ja, gerne", "I do not think so", "nein, danke", "ja, aber nur heute")]
    [False, True, True, True]
    """
    said = _IDIOM.sub(" ", normal(text).replace("’", "'"))
    return any(pattern.search(said) is not None for pattern in (_REFUSAL, _CONDITION, _FOREIGN_CONDITION))


_FOREIGN_CONDITION = _compiled(
    r"\b(?:wenn|falls|sofern|aber|nur|außer|erst|sauf|mais|seulement|condition|quand|pero|salvo|excepto|siempre que"
    r"|solo|cuando|quando|maar|alleen|als|eğer|ama)\b|sólo|però|purché|если|только|(?<!\S)(?:но|mas|só)(?!\S)|もし|なら"
    r"|만약|지만"
)
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
