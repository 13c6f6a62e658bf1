"""Find the sentences that name a company's products: by a name beside a word for a product, or by a trademark."""

from __future__ import annotations

import re

_NAME = r"[A-ZÀ-Þ][\w’&+-]*(?:\s(?:[A-ZÀ-Þ0-9][\w’&+-]*))*[®™]?"
_NAMES = rf"{_NAME}(?:,\s{_NAME})*(?:,?\s(?:and|or|&)\s{_NAME})?"
_KIND = (
    r"(?:brands?|platforms?|products?|software|app|apps|suite|product lines?|famil(?:y|ies)|services?|devices?|panels?"
    r"|models?|systems?|chips?|GPUs?|CPUs?|processors?|drugs?|vehicles?|tools?|technolog(?:y|ies)|architectures?)\b"
)
_FORMS = (
    re.compile(rf"(?<![.!?] )(?<!^)\b({_NAMES})\s(?:[a-z]+\s)?{_KIND}"),
    re.compile(
        rf"\b(?i:products?|brands?|platforms?|portfolio|trademarks?)\b[^.;]{{0,40}}?"
        rf"\b(?:include|includes|including|such as|like|called|named|under the)\s(?:the\s|our\s)?({_NAMES})"
    ),
    re.compile(rf"\b({_NAMES})\s(?:is|are)\s(?:our|an?|the)\s[^.;]{{0,60}}?{_KIND}"),
    re.compile(rf"({_NAME})[®™]"),
)
_NOT_ONE = frozenset(
    re.findall(
        r"\w+",
        "united states america american north south east west europe european asia china chinese latin africa middle"
        " pacific greater japan india germany canada mexico international global fiscal company inc corp sec gaap"
        " board directors this that these those there he she they the our we us other all"
        " such its their certain new it in for as no internet saas ip"
        " ai gpu gpus cpu cpus api apis soc socs u s brand brands january february march april may june july august"
        " september october november december note item part act",
    )
)


def named(sentence: str, company: str = "") -> list[str]:
    """Return the products that a sentence names, apart from names of the company and of places.

    >>> named("We offer our products under the NIKE, Jordan and Converse brands.", "Nike")
    ['Jordan', 'Converse']
    >>> named("Sales of GeForce RTX GPUs rose in the United States.", "NVIDIA"), named("Our products sell in China.")
    (['GeForce RTX'], [])
    """
    own = {word.casefold() for word in re.findall(r"\w+", company)} | _NOT_ONE
    found: list[str] = []
    for form in _FORMS:
        for match in form.finditer(sentence):
            found += re.split(r",\s(?:and\s|or\s)?|\s(?:and|or|&)\s", match[1])
    names = [name.strip("®™ ") for name in found]
    return [name for name in dict.fromkeys(names) if len(name) > 1 and not {*_words(name)} <= own]


def _words(name: str) -> list[str]:
    return [word.casefold() for word in re.findall(r"\w+", name)]
