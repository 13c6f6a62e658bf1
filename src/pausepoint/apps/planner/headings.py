"""What a title says: its number, whether it names a chapter or a part, and whether it is studied at all.

Books in several languages are understood: `Chapter 3`, `Kapitel 3`, `第3章`, `3.1 Title`, `A.2 Title`.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal, NamedTuple

from pausepoint.apps.words import one_line

Kind = Literal["part", "chapter", "section", "numbered", "plain"]

_DECIMAL = r"\d{1,3}(?:\.\d{1,3}){0,4}"
_LETTERED = r"[A-Z](?:(?:\.\d{1,3}){1,4}|(?=\.\s))"
_ROMAN = r"[IVXLC]{1,6}"
_HAN = r"[0-9０-９〇零一二三四五六七八九十百]{1,5}"
_CHAPTERS = (
    "chapter|unit|lecture|lesson|module|week|session|kapitel|lektion|vorlesung|einheit|woche|chapitre|leçon|cours"
    "|cap[ií]tulo|lecci[oó]n|unidad|tema|capitolo|lezione|lição|aula|hoofdstuk|rozdział|wykład|глава|лекция"
    "|розділ|chương|bài|capítol|capitolul|kapittel|kapitola|bölüm|bab|κεφάλαιο"
    "|appendix|anhang|annexe|apéndice|appendice|bijlage|приложение|додаток|phụ lục|附录|附錄|付録"
)
_SECTIONS = "section|topic|abschnitt|sección|sezione|seção|paragraaf"
_PARTS = "part|teil|partie|parte|deel|część|часть|частина|phần"
_NAMED = re.compile(
    rf"(?i)^(?:(?P<chapter>{_CHAPTERS})|(?P<section>{_SECTIONS})|(?P<part>{_PARTS}))\s*"
    rf"(?P<number>{_DECIMAL}|(?<=\s)(?-i:{_ROMAN}|[ivxlc]{{2,6}}|[A-Z]))(?![^\W_])\s*(?P<mark>[.:：–—-]?)\s*"
    r"(?:(?P=number)\.?\s+(?=[^\W\d]))?(?P<title>.*)$"
)
_HAN_NAMED = re.compile(
    rf"^(?:第|(?=[0-9０-９]+\s*章))\s*(?P<number>{_HAN}|{_ROMAN})\s*(?:(?P<chapter>[章課课講讲回])|(?P<section>[节節条條])|(?P<part>部分|[部篇编編]))"
    r"\s*[.:：、]?\s*(?P<title>.*)$"
)
_NUMBERED = re.compile(
    rf"^(?P<number>{_DECIMAL}|{_LETTERED}|{_ROMAN}(?=\.))(?P<dot>\.?)(?:\s+|(?<=\.)(?=[^\W\d_])|[、：:]\s*)"
    r"(?P<title>[^\W_].*|[\"“«»„‚‘「『《（'\\$(].*)$"
)
_KEY = re.compile(r"[^\W_]+")
_LETTER = re.compile(r"[^\W\d_]")
_LONG_WORD = re.compile(r"[^\W\d_]{3}|\b[A-Z]\d+[A-Z]|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2}|^[A-Z]{2}$")
_CODE = re.compile(r"://|^\\\\|[{}@].*[{}@\\\\]")
_CLAUSE = re.compile(r"[，。；]|[、,]$|^(では|には|とは|を|が)")
_RUN_IN = re.compile(r"[^\W\d_]{4,}\. (?=\S+ \S+ \S)|\)\. (?=[^\W\d_])")
"""A sentence that follows the first word of a paragraph or another sentence."""

_BEGINNING = re.compile(r"[^\W_]|[\"“«»„‘「『《（'\\$¿¡<【]")
_SPOKEN = re.compile(r"[aeiouy][a-z]{2}|[a-z][aeiouy][a-z]|[a-z]{2}[aeiouy]|[^\W\da-z_]")
"""A word that can be spoken: it has a vowel, or is not in the Latin alphabet."""

_NOTES = re.compile(r"(?i)([^\Wivxlcdm\d_])\1\1|^([A-Z])\2( \2\2)*$")
"""Letters that stand for notes, symbols or pieces of a drawing in a special font."""

LONGEST_WIDE = 30
"""The most Chinese, Japanese or Korean characters of a title."""

_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_APART = re.compile("¨ ?([aouAOU])")
"""An umlaut that an old font draws as two signs."""

_EMPHASIS = re.compile(r"(?<![\w*\\])([*_]{1,3})(?=[^\s*_])(.+?)(?<=[^\s\\])\1(?![\w*])")
_LEADER = re.compile(r"\s*(?:(?:(?:\.\s?){3,}|…+|·{3,})\s*[\divxlc]+|(?:\.\s?){4,}|…{3,}|·{3,})$")
"""The dots before a page number. Without the number, a few dots belong to the title."""


class Label(NamedTuple):
    """A title without its number."""

    title: str
    number: str = ""
    kind: Kind = "plain"

    @property
    def depth(self) -> int:
        """The level that the number says: 0 for `3`, 1 for `3.1`."""
        return 1 if self.kind == "section" else self.number.count(".")


def label(text: str) -> Label:
    """Return what a title says.

    >>> label("3.2 Integration by Parts"), label("Chapter 4: Series")
    (Label(title='Integration by Parts', number='3.2', kind='numbered'), Label(title='Series', number='4', kind='chapter'))
    >>> label("第三章  教程"), label("Teil II"), label("1. Greetings!.").title
    (Label(title='教程', number='三', kind='chapter'), Label(title='Teil II', number='II', kind='part'), 'Greetings!')
    >>> label("Units of length").kind, label("Appendix B").number, label("Chapter iv: Eels").number
    ('plain', 'B', 'iv')
    >>> label("Chapter 1. 1 Welcome")
    Label(title='Welcome', number='1', kind='chapter')
    """  # noqa: E501
    shown = cleaned(text)
    found = _HAN_NAMED.match(shown) or _NAMED.match(shown)
    if found:
        kind: Kind = "part" if found["part"] else "section" if found["section"] else "chapter"
        return Label(_ended(found["title"]) or shown, found["number"], kind)
    if found := _NUMBERED.match(shown):
        return Label(_ended(found["title"]), found["number"], "numbered")
    return Label(shown)


def is_bare(text: str) -> bool:
    """Return whether a line is only the number of a chapter or a part, whose title follows.

    >>> is_bare("Part II"), is_bare("第一部"), is_bare("Chapter 3: Eels"), is_bare("3.1")
    (True, True, False, False)
    """
    found = label(text)
    return found.kind in ("chapter", "part") and found.title == text.strip()


def _ended(title: str) -> str:
    """Return a title without its full stop."""
    shown = title.strip()
    return shown if shown.endswith(("etc.", "...")) else shown.removesuffix(".").removesuffix("。") or shown


def cleaned(text: str) -> str:
    """Return a title without page number and the dots before it.

    >>> cleaned("Einf¨uhrung . . . . . . 7"), cleaned("Eels, and then…")
    ('Einführung', 'Eels, and then…')
    """
    text = _APART.sub(lambda found: unicodedata.normalize("NFC", f"{found[1]}\u0308"), text)
    shown = _LEADER.sub("", one_line(text.replace("\ufffe", "-").replace("\x02", "-")))
    return re.sub(r"(?<=[!?:])\.$", "", shown).rstrip(":：")[:200].strip() or one_line(text)[:200]


def unmarked(title: str) -> str:
    """Return a title of Markdown as it is shown: code without its backticks, other text without links and emphasis.

    Attributes such as `{#eels}` at its end are not shown.

    >>> unmarked("The [`**kwargs`](a.md) of *a* `__init__`"), unmarked("C*-algebras, B*-algebras and snake_case_names")
    ('The **kwargs of a __init__', 'C*-algebras, B*-algebras and snake_case_names')
    """
    bare = re.sub(r"\s*\{:?\s*[#.][^{}]*\}$", "", title)
    linked = re.sub(r"!?\[((?:`[^`]*`|[^]`])*)\]\([^)]*\)", r"\1", bare)
    parts = re.split(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", linked)
    parts[::3] = [re.sub(r"\\([^\w\s]|_)", r"\1", _EMPHASIS.sub(r"\2", text)) for text in parts[::3]]
    return "".join(text for at, text in enumerate(parts) if at % 3 != 1)


def key_of(title: str) -> str:
    """Return a key that is equal for titles that differ only in number, punctuation, case or spacing.

    >>> key_of("3.2  Integration by Parts ") == key_of("integration by parts")
    True
    """
    return " ".join(_KEY.findall(unaccented(label(title).title))) if title.strip() else ""


def unaccented(text: str) -> str:
    """Return a text in lower case without accents. Some programs drop them in the outline.

    >>> unaccented("Tonhöhen")
    'tonhohen'
    """
    if text.isascii():
        return text.casefold()
    return "".join(each for each in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(each))


def names_a_chapter(text: str) -> bool:
    """Return whether a line, in any style, is the heading of a chapter rather than a sentence about one.

    >>> names_a_chapter("Chapter 3: Eels"), names_a_chapter("Kapitel 3"), names_a_chapter("Chapter 3 shows how to eat")
    (True, True, False)
    """
    found = _HAN_NAMED.match(text) or _NAMED.match(text)
    if not found or found["section"]:
        return False
    title = found["title"]
    marked = "mark" in found.groupdict() and found["mark"]
    return not title or bool(marked) or title[0].isupper() or not title[0].isascii()


_GENERIC = re.compile(
    r"(?i)^(introduction|overview|summary|exercises|problems|conclusions?|examples|basics|getting started|appendix"
    r"|einleitung|einführung|überblick|zusammenfassung|übungen|aufgaben|grundlagen|allgemeines|anhang|schluss"
    r"|résumé|exercices|introducción|resumen|ejercicios|introduzione|esercizi|introdução|exercícios|введение"
    r"|简介|引言|绪论|概述|练习|习题|はじめに|序論|概要|まとめ|演習|練習問題)( \(\d+\))?$"
)


def is_generic(title: str) -> bool:
    """Return whether many books have a chapter of this title, about different things."""
    return bool(_GENERIC.match(title))


def reads_like_a_title(text: str) -> bool:
    """Return whether a line in the style of a heading is one, and not a formula, a symbol or part of a sentence.

    >>> [reads_like_a_title(each) for each in ("3.1 Eels", "数学", "h h Y", "3 4 5 : ; < =", "では，数式を組版する")]
    [True, True, False, False, False]
    >>> [reads_like_a_title(each) for each in ("Warning. It is a letter", "Mr. Eel", "tttts", "NN NN", "1.2 tmpfs")]
    [False, True, False, False, True]
    """
    title = label(text).title
    letters, wide = len(_LETTER.findall(title)), len(_WIDE.findall(title))
    if not _LONG_WORD.search(title) or 2 * letters < len("".join(title.split())) or _CODE.search(title):
        return False
    if title[0] == "(" or (title == text.strip() and title[0].islower() and title.count(" ") > 2):
        return False
    if title == text.strip() and not _stands_alone(title):
        return False
    return not wide or (wide <= LONGEST_WIDE and not _CLAUSE.search(title))


def _stands_alone(title: str) -> bool:
    """Return whether a line without a number can be a title: no beginning of a sentence, no signs of a special font."""
    spoken = _SPOKEN.search(unaccented(title)) or re.search("[A-Z]{3}|[A-Z][0-9]", title)
    return bool(spoken and _BEGINNING.match(title)) and not (_RUN_IN.search(title) or _NOTES.search(title))


# titles that are not studied

_CONTENTS = re.compile(
    r"(?i)^((short |brief |table of |detailed )?contents( in brief)?|inhalt(sverzeichnis|sübersicht)?"
    r"|table des matières|sommaire|índice( general)?|contenido|indice( generale)?|sommario|sumário|inhoud(sopgave)?"
    r"|spis (treści|rysunków|ilustracji|tabel)|tabla de contenidos?|(índice|lista|elenco) (de|das?|dos?|delle|degli) "
    r"(figur[ae]s?|ilustraciones|ilustrações|illustrazioni|tab[le]+as?)|indice delle (figure|tabelle)|содержание"
    r"|оглавление|зміст|mục lục|目\s*[录錄次]|总目录|简要|简明目录|((그림|표)\s*)?(차례|목차)"
    r"|(list of |index of )(figures|tables|algorithms|listings)|(abbildungs|tabellen)verzeichnis"
    r"|(liste|table) des (figures|tableaux)|[图圖表]目[录錄]|[图圖]表目[录錄]|図目次|表目次)$"
)
_INDEX = re.compile(
    r"(?i)^((?!\w+ing\b).*\b(index|indices|indexes)|.*-index"
    r"|index (der|des|de|of) .*|(sach|stichwort|personen|namen)(verzeichnis"
    r"|register)|register|.*索引|概念列表|찾아보기|색인|índice (alfabético|analítico|remissivo"
    r"|onomástico|de (materias|autores|términos))|indice (analitico|dei nomi)|index alphabétique"
    r"|indeks( .*)?|skorowidz( .*)?"
    r"|предметный указатель|указатель)$"
)
_REFERENCES = re.compile(
    r"(?i)^(references?( and further reading)?|further reading|bibliography|works cited|literature (cited|used)"
    r"|(weiterführende )?literatur(verzeichnis|angaben|hinweise)?|quellen(verzeichnis)?|bibliographie"
    r"|références( bibliographiques)?|bibliograf[ií]a"
    r"|refer[eê]ncias( bibliográficas)?|riferimenti( bibliografici)?|literatura|참고\s*문헌"
    r"|参考文[献獻]|參考文[献獻]|引用文献|文献|литература"
    r"|список литературы)$"
)
_LICENCE = re.compile(
    r"(?i)^((the )?(gnu|gpl|lgpl|fdl|mit|bsd|apache|creative commons|cc[ -]by)\b.*(licen[cs]e|lizenz|licenc|许可|許可"
    r"|ライセンス).*|licen[cs]es?( agreement| terms)?|lizenz(en|bestimmungen)?|licencia|licenza|许可证|許可證"
    r"|ライセンス"
    r"|licencja|prawa autorskie|nota prawna|licença|direitos autorais|derechos de autor|aviso legal|diritti d['’]autore"
    r"|note legali|저작권.*|라이선스|лицензия|giấy phép( .*)?"
    r"|copying( conditions| information| this (manual|document|book))?|copyright\b.*"
    r"|impressum|colophon|legal( notices?)?|rechtliche hinweise"
    r"|mentions légales|版权.*|著作権.*|奥付|.*\bdocumentation licen[cs]e)$"
)
_ABOUT = re.compile(
    r"(?i)^(preface|foreword|acknowledge?ments?( and .*)?|thanks( to .*)?|dedication"
    r"|about (the|this) (author|book|document|manual|text)s?"
    r"|(half[ -]?)?title( page)?|(front |back )?cover( page)?|vorwort|geleitwort|danksagung(en)?( und .*)?"
    r"|dank( an .*)?|widmung|titelseite"
    r"|über (den autor|die autoren|dieses (buch|dokument))|avant-propos|préface|remerciements|dédicace|prólogo|prefacio"
    r"|agradecimientos|prefazione|ringraziamenti|prefácio|agradecimentos|voorwoord|dankwoord|предисловие|благодарности"
    r"|前\s*言|序\s*[言文]?|.*[致謝谢]\s*[致謝谢]|[谢謝]\s*[辞辭]|まえがき|あとがき|ありがと.*|跋|[后後][记記]|作者[简簡]介|著者紹介|[标標][题題][页頁]"
    r"|[书書]尾|contributors|errata|glossary|glossar|glossaire|glosario|glossario|glossário|用語集|术语表"
    r"|słowni(k|czek)( pojęć| terminów)?|용어집|머리말|서문|책머리에|들어가며|감사의\s*[글말]|저자\s*소개|일러두기"
    r"|przedmowa|(wstęp )?od autor(a|ów)|podziękowania|dedykacja|o (autorze|autorach|książce|tej książce)"
    r"|dedicat[oó]ria|dedica"
    r"|(sobre|acerca de) ((os?|a|el|la|los|las) )?(autor|autora|autores|este (libro|manual|documento|livro))"
    r"|(informazioni )?(sull['’](autore|autrice)|sugli autori|su questo (libro|manuale|documento)))$"
)
_HISTORY = re.compile(
    r"(?i)^(change ?(log|list)s?( (of|for|from|since|to|v?\d).*)?|release notes"
    r"|(document|revision|version|change|release|publication) history"
    r"|history of (changes|revisions|versions|this (document|manual))|(versions|dokument)(protokoll|geschichte)"
    r"|(versions|änderungs)(historie|protokoll|verzeichnis)|historique des (versions|modifications)"
    r"|journal des modifications|historial de (cambios|versiones)|история (изменений|версий)"
    r"|historia (zmian|wersji)|hist[oó]ric?(o|al) de (revis(ões|iones)|alterações|versões|versiones)"
    r"|cronologia delle (revisioni|versioni|modifiche)|registro delle modifiche|(개정|변경)\s*(이력|내역|기록)"
    r"|(変更|更新|改訂|改版)(履歴|記録)|(更新|修[订訂]|[变變]更|版本)([历歷]史|[记記][录錄]|日志|[说說]明))$"
)
_CHANGES = re.compile(
    r"(?i)^((recent |latest |letzte |wichtige )?(changes|änderungen|modifications|cambios|modifiche)"
    r"( (in|since|from|seit|von|depuis|desde) .*)?|変更点|更新)$"
)
_ASIDES = (
    (_CONTENTS, "contents", 0.0),
    (_INDEX, "index", 0.6),
    (_REFERENCES, "list of references", 0.7),
    (_LICENCE, "licence or copyright", 0.0),
    (_ABOUT, "about the book, not of its matter", 0.0),
    (_HISTORY, "history of the book", 0.0),
    (_CHANGES, "history of the book", 0.6),
)
"""Each kind of matter that is not studied, and the share of the book after which its titles have this meaning.

A chapter in the middle may be about references, or about an index of prices."""


_NAMES_A_LIST = re.compile(
    r"(?i)^(index|.*索引|(literatur|quellen|stichwort|sach)verzeichnis|bibliography|works cited|список литературы)$"
)
"""Titles that have one meaning anywhere in a book."""

_LISTS_IN_FRONT, IN_FRONT = re.compile(r"(?i)^(figures|tables|algorithms|listings)$"), 0.1
"""Titles that mean a list of these before this share of the book, and a chapter about them after it."""


def aside(title: str, position: float) -> str | None:
    """Return why a part of a book is set aside, or None. ``position``: 0 at the start of the book, 1 at its end.

    >>> aside("Contents", 0.01), aside("D Function and variable index", 0.95), aside("Price index", 0.3)
    ('contents', 'index', None)
    >>> aside("Appendix A Copying Information", 0.75), aside("Copying files", 0.75)
    ('licence or copyright', None)
    """
    whole = label(title).title
    if position < IN_FRONT and _LISTS_IN_FRONT.match(whole):
        return "contents"
    for shown in (whole, re.sub(r"^[A-Z]\s+(?=[^\W_])", "", whole)):  # `A` may be an appendix, or a word
        for pattern, why, after in _ASIDES:
            if pattern.match(shown) and (position >= after or _NAMES_A_LIST.match(shown)):
                return why
    return None
