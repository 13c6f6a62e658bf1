"""What a report says, in each language. `pausepoint.apps.aura.language` fills in the values."""

from __future__ import annotations

TEXTS: dict[str, dict[str, str]] = {
    # the head
    "title": {"en": "School report for {name}", "de": "Schulbericht für {name}"},
    "stress": {"en": "Workload: {level}.", "de": "Belastung: {level}."},
    "low": {"en": "low", "de": "niedrig"},
    "moderate": {"en": "moderate", "de": "mittel"},
    "high": {"en": "high", "de": "hoch"},
    "overdue_count": {
        "en": "1 assignment is overdue. | {count} assignments are overdue.",
        "de": "1 Aufgabe ist überfällig. | {count} Aufgaben sind überfällig.",
    },
    "danger_count": {
        "en": "1 assignment cannot be finished in time. | {count} assignments cannot be finished in time.",
        "de": "1 Aufgabe wird nicht rechtzeitig fertig. | {count} Aufgaben werden nicht rechtzeitig fertig.",
    },
    "needed": {
        "en": "Today: {needed} of work, {free} of free time. | The next {count} days: {needed} of work, {free} of free time.",  # noqa: E501
        "de": "Heute: {needed} Arbeit, {free} freie Zeit. | Die nächsten {count} Tage: {needed} Arbeit, {free} freie Zeit.",  # noqa: E501
    },
    # the summary
    "nothing_open": {"en": "{name} has no open assignments.", "de": "{name} hat keine offenen Aufgaben."},
    "open_work": {
        "en": "{name} has 1 open assignment. | {name} has {count} open assignments.",
        "de": "{name} hat 1 offene Aufgabe. | {name} hat {count} offene Aufgaben.",
    },
    "all_in_time": {"en": "None is overdue.", "de": "Keine ist überfällig."},
    "strongest": {
        "en": "The strongest subject is {subject} ({share}, {basis}).",
        "de": "Am besten läuft es in {subject} ({share}, {basis}).",
    },
    "weakest": {
        "en": "{subject} needs the most attention ({share}, {basis}).",
        "de": "{subject} braucht die meiste Aufmerksamkeit ({share}, {basis}).",
    },
    "lowest_so_far": {
        "en": "The lowest level so far is in {subject} ({share}, {basis}), which is too little to judge.",
        "de": "Am niedrigsten ist der Stand bisher in {subject} ({share}, {basis}); das ist zu wenig für ein Urteil.",
    },
    "from_grades": {"en": "from 1 grade | from {count} grades", "de": "aus 1 Note | aus {count} Noten"},
    "falling_in": {"en": "Results are falling in {subjects}.", "de": "Die Ergebnisse sinken in {subjects}."},
    "next_due": {
        "en": "Next due: {title} ({course}), {when}.",
        "de": "Als Nächstes fällig: {title} ({course}), {when}.",
    },
    # sections
    "overdue": {"en": "Overdue", "de": "Überfällig"},
    "week": {"en": "Today | The next {count} days", "de": "Heute | Die nächsten {count} Tage"},
    "changes": {"en": "Since the last report", "de": "Seit dem letzten Bericht"},
    "grades": {"en": "Grades", "de": "Noten"},
    "advice": {"en": "What helps now", "de": "Was jetzt hilft"},
    "small_print": {"en": "Small print", "de": "Kleingedrucktes"},
    "does_not_fit": {"en": "Does not fit into the week", "de": "Passt nicht in die Woche"},
    "no_overdue": {"en": "Nothing is overdue.", "de": "Nichts ist überfällig."},
    "no_plan": {"en": "There is nothing to plan.", "de": "Es gibt nichts zu planen."},
    "no_grades": {"en": "There is no work yet.", "de": "Es gibt noch keine Aufgaben."},
    "more": {"en": "and 1 more | and {count} more", "de": "und 1 weitere | und {count} weitere"},
    # single pieces of work
    "due": {"en": "due {when}", "de": "fällig {when}"},
    "was_due": {"en": "was due {day} ({ago})", "de": "war fällig am {day} ({ago})"},
    "no_due": {"en": "no due date", "de": "ohne Termin"},
    "overdue_since": {"en": "overdue since {day}", "de": "überfällig seit {day}"},
    "today": {"en": "today", "de": "heute"},
    "days_ago": {"en": "yesterday | {count} days ago", "de": "gestern | vor {count} Tagen"},
    "planned_for": {"en": "planned for {when}", "de": "geplant für {when}"},
    "of_points": {"en": "{points} of {most}", "de": "{points} von {most}"},
    "mark": {"en": "grade {mark}", "de": "Note {mark}"},
    "points": {"en": "{points} point | {points} points", "de": "{points} Punkt | {points} Punkte"},
    "too_old": {
        "en": "not planned any more: ask the teacher whether it still counts",
        "de": "nicht mehr eingeplant: bei der Lehrkraft nachfragen, ob das noch zählt",
    },
    "too_long": {
        "en": "it takes {whole}, and only {free} are free {until}",
        "de": "nötig sind {whole}, frei sind {until} nur {free}",
    },
    "used_up": {
        "en": "the free time and the daily limit of {limit} are used up {until}",
        "de": "die freie Zeit und die Tagesgrenze von {limit} sind {until} verbraucht",
    },
    "no_slot": {"en": "no free slot is long enough {until}", "de": "keine freie Zeit ist {until} lang genug"},
    "before_due": {"en": "before it is due ({when})", "de": "bis zum Termin ({when})"},
    "in_days": {
        "en": "in the planned day | in the {count} planned days",
        "de": "am geplanten Tag | an den {count} geplanten Tagen",
    },
    # changes
    "first_report": {
        "en": "This is the first report. The next one says here what has changed.",
        "de": "Dies ist der erste Bericht. Im nächsten steht hier, was sich geändert hat.",
    },
    "compared": {"en": "Compared with the report of {day}.", "de": "Verglichen mit dem Bericht vom {day}."},
    "no_change": {"en": "Nothing has changed.", "de": "Es hat sich nichts geändert."},
    "new_grades": {"en": "New grades", "de": "Neue Noten"},
    "newly_overdue": {"en": "Newly overdue", "de": "Neu überfällig"},
    "caught_up": {"en": "Caught up", "de": "Nachgeholt"},
    "handed_in": {"en": "Handed in", "de": "Abgegeben"},
    "excused": {"en": "Excused", "de": "Entschuldigt"},
    "new_work": {"en": "New assignments", "de": "Neue Aufgaben"},
    "moved": {"en": "Levels", "de": "Leistungsstand"},
    "from_to": {"en": "{before} → {after}", "de": "{before} → {after}"},
    # grades
    "level": {"en": "level {share}", "de": "Stand {share}"},
    "level_was": {"en": "level {share} (was {before})", "de": "Stand {share} (zuvor {before})"},
    "level_none": {"en": "no level: the grades have no maximum", "de": "kein Stand: die Noten haben kein Maximum"},
    "level_unknown": {"en": "no grade yet", "de": "noch keine Note"},
    "uncertain": {"en": "few grades so far", "de": "noch wenige Noten"},
    "rising": {"en": "rising", "de": "steigend"},
    "steady": {"en": "steady", "de": "gleichbleibend"},
    "falling": {"en": "falling", "de": "sinkend"},
    "latest": {"en": "latest: {grades}", "de": "zuletzt: {grades}"},
    "late_count": {"en": "1 late | {count} late", "de": "1 verspätet | {count} verspätet"},
    "missing_count": {"en": "1 missing | {count} missing", "de": "1 fehlt | {count} fehlen"},
    # advice
    "start_with": {
        "en": "Start with {title} ({course}) on {when} ({why}).",
        "de": "Als Erstes: {title} ({course}), {when} ({why}).",
    },
    "tight": {
        "en": "1 assignment cannot be finished in time in these hours. More time in the afternoon, or a word with the teacher, helps. | {count} assignments cannot be finished in time in these hours. More time in the afternoon, or a word with the teachers, helps.",  # noqa: E501
        "de": "1 Aufgabe wird in diesen Zeiten nicht rechtzeitig fertig. Mehr Zeit am Nachmittag oder ein Gespräch mit der Lehrkraft hilft. | {count} Aufgaben werden in diesen Zeiten nicht rechtzeitig fertig. Mehr Zeit am Nachmittag oder ein Gespräch mit den Lehrkräften hilft.",  # noqa: E501
    },
    "ask_teachers": {
        "en": "1 assignment has been overdue for more than two weeks: ask the teacher whether it still counts. | {count} assignments have been overdue for more than two weeks: ask the teachers whether they still count.",  # noqa: E501
        "de": "1 Aufgabe ist seit mehr als zwei Wochen überfällig: bei der Lehrkraft nachfragen, ob sie noch zählt. | {count} Aufgaben sind seit mehr als zwei Wochen überfällig: bei den Lehrkräften nachfragen, ob sie noch zählen.",  # noqa: E501
    },
    "full_days": {"en": "Fully booked: {days}.", "de": "Ganz verplant: {days}."},
    "nothing_to_do": {
        "en": "There is no open work. Enjoy the week.",
        "de": "Es gibt nichts zu tun. Eine schöne Woche!",
    },
    # small print
    "legend": {
        "en": "The level of a subject comes from graded, late and missing work: late work counts 10% less, missing work counts as 0, and recent work counts more.",  # noqa: E501
        "de": "Der Stand eines Fachs ergibt sich aus benoteter, verspäteter und fehlender Arbeit: Verspätetes zählt 10 % weniger, Fehlendes zählt als 0, und Neueres zählt mehr.",  # noqa: E501
    },
    "made_from": {
        "en": "Made from {count} assignment in {courses}, as of {when} ({zone}). | Made from {count} assignments in {courses}, as of {when} ({zone}).",  # noqa: E501
        "de": "Erstellt aus {count} Aufgabe in {courses}, Stand {when} ({zone}). | Erstellt aus {count} Aufgaben in {courses}, Stand {when} ({zone}).",  # noqa: E501
    },
    "courses": {"en": "1 course | {count} courses", "de": "1 Kurs | {count} Kursen"},
    "computed_words": {
        "en": "The language model gave no usable words, so the computed sentences are used. Its reason: {problem}",
        "de": "Das Sprachmodell lieferte keine brauchbaren Worte; hier stehen die berechneten Sätze. Der Grund: {problem}",  # noqa: E501
    },
    # doubts about the data
    "unknown_word": {
        "en": "{where}: Aura does not know the word “{word}”. The work counts as {taken}.",
        "de": "{where}: Aura kennt das Wort „{word}“ nicht. Die Arbeit zählt als {taken}.",
    },
    "unreachable": {
        "en": "Google does not answer now, so Aura waits for it. The reason: {problem}",
        "de": "Google antwortet gerade nicht; Aura wartet darauf. Der Grund: {problem}",
    },
    "silent_gradebook": {
        "en": "{place} does not say what was handed in. Work without a grade counts as not handed in.",
        "de": "{place} sagt nicht, was abgegeben wurde. Arbeit ohne Note zählt als nicht abgegeben.",
    },
    "taken_undated": {"en": "without a due date", "de": "ohne Termin"},
    "taken_open": {"en": "not handed in", "de": "nicht abgegeben"},
    "taken_done": {"en": "handed in", "de": "abgegeben"},
    "taken_graded": {"en": "graded", "de": "bewertet"},
    "taken_excused": {"en": "excused", "de": "entschuldigt"},
    "more_doubts": {
        "en": "The data has 1 more word that Aura does not know. | The data has {count} more words that Aura does not know.",  # noqa: E501
        "de": "Die Daten haben 1 weiteres Wort, das Aura nicht kennt. | Die Daten haben {count} weitere Wörter, die Aura nicht kennt.",  # noqa: E501
    },
    "calendar": {"en": "Calendar: {problem}", "de": "Kalender: {problem}"},
    # calendars
    "event": {"en": "The event “{name}” ({day})", "de": "Der Termin „{name}“ ({day})"},
    "event_undated": {"en": "The event “{name}”", "de": "Der Termin „{name}“"},
    "unnamed": {"en": "without a title", "de": "ohne Titel"},
    "skipped_no_start": {
        "en": "{event} was left out: it has no start date.",
        "de": "{event} wurde ausgelassen: Er hat kein Anfangsdatum.",
    },
    "skipped_bad_start": {
        "en": "{event} was left out: its start “{value}” is not a date.",
        "de": "{event} wurde ausgelassen: Sein Anfang „{value}“ ist kein Datum.",
    },
    "skipped_too_often": {
        "en": "{event} was left out: it takes place more than {most} times.",
        "de": "{event} wurde ausgelassen: Er findet mehr als {most}-mal statt.",
    },
    "skipped_odd": {
        "en": "{event} was left out: its times make no sense.",
        "de": "{event} wurde ausgelassen: Seine Zeiten ergeben keinen Sinn.",
    },
    "first_only": {
        "en": "{event} repeats in a way that Aura does not understand. Only its first date counts.",
        "de": "{event} wiederholt sich auf eine Art, die Aura nicht versteht. Nur sein erster Tag zählt.",
    },
    "some_dates": {
        "en": "{event} has dates that cannot be read. Its other dates count.",
        "de": "{event} hat Tage, die nicht lesbar sind. Seine anderen Tage zählen.",
    },
    "more_events": {
        "en": "1 more event was left out. | {count} more events were left out.",
        "de": "1 weiterer Termin wurde ausgelassen. | {count} weitere Termine wurden ausgelassen.",
    },
}
