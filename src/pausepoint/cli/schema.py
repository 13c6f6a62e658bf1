"""The JSON schema of what commands print with ``--json`` and ``--jsonl``.

``python -m pausepoint.cli.schema`` prints it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from pausepoint.cli import documents as own
from pausepoint.cli.console import to_json
from pausepoint.engine import documents, history_documents, store_documents
from pausepoint.engine.documents import ListingDocument, OutcomeDocument, PlanDocument, StoppedDocument
from pausepoint.engine.history_documents import EventDocument
from pausepoint.model.descriptions import Description
from pausepoint.model.documents import definitions, document_name
from pausepoint.model.views import Diff

Forms: TypeAlias = tuple[Sequence[type], Sequence[type]]
"""The documents that a command may print with ``--json``, and those that may be a line of ``--jsonl``."""

RAN = (OutcomeDocument, StoppedDocument)

COMMANDS: dict[str, Forms] = {
    "init": ([own.Initialised], []),
    "skill": ([own.SkillDocument], []),
    "run": ([*RAN, own.Detached, documents.Candidates], [EventDocument, *RAN, own.Detached]),
    "resume": (
        [*RAN, own.Detached, PlanDocument, documents.Candidates, ListingDocument, store_documents.BulkDocument],
        [EventDocument, *RAN, own.Detached, own.LogLine, store_documents.BulkItemDocument],
    ),
    "schedule": (
        [store_documents.SchedulesDocument, store_documents.ScheduleChanged, store_documents.ScheduleRemoved], []
    ),
    "limit": ([store_documents.LimitsDocument, store_documents.LimitChanged, store_documents.LimitsRemoved], []),
    "worker": ([documents.Worked], [own.LogLine]),
    "dev": ([own.Development], []),
    "serve": ([own.Serving, own.CreatedTokenDocument, own.AccessTokens, own.RevokedToken, own.AnswerLink], []),
    "mcp": ([own.ModelTools], []),
    "mirror": ([own.MirrorDocument], [own.MirroredDocument]),
    "notify": ([own.NotifiedDocument], [own.NoticeDocument]),
    "ls": ([ListingDocument], [documents.SessionDocument]),
    "show": (
        [documents.ShownDocument, history_documents.OperationsDocument, history_documents.ConversationDocument], []
    ),
    "status": ([store_documents.StoreStatus], []),
    "watch": ([documents.SessionDocument, ListingDocument], [EventDocument]),
    "events": ([history_documents.EventsDocument], [EventDocument]),
    "plan": ([PlanDocument], []),
    "why": ([documents.ReasonDocument, PlanDocument], []),
    "checkpoints": ([history_documents.CheckpointsDocument], [history_documents.CheckpointDocument]),
    "diff": ([Diff], []),
    "workflows": ([store_documents.WorkflowsDocument, Description], []),
    "artifacts": ([documents.ArtifactsDocument], []),
    "inbox": ([documents.InboxDocument], [documents.QuestionDocument]),
    "answer": ([documents.AnsweredDocument, documents.QuestionDocument, documents.InboxDocument, *RAN], []),
    "pause": ([documents.StoppingDocument, store_documents.BulkDocument], []),
    "cancel": ([ListingDocument, store_documents.BulkDocument], []),
    "send": ([documents.SessionDocument, *RAN], []),
    "edit": ([documents.EditedDocument, PlanDocument, *RAN], []),
    "ask-again": ([documents.EditedDocument, *RAN], []),
    "rewind": ([documents.Rewound, PlanDocument, *RAN], []),
    "forget": ([documents.Rewound, PlanDocument, *RAN], []),
    "fork": ([documents.Forked, PlanDocument, *RAN], []),
    "gate": (
        [
            own.GateInstall, own.GateUninstall, store_documents.GateCheck, own.GateVerdict, own.GateServe,
            own.GateSpend,
        ], []
    ),
    "verify": ([store_documents.VerificationDocument], []),
    "doctor": ([store_documents.ExaminationDocument], []),
    "gc": ([store_documents.CleanUpDocument], []),
    "redact": ([store_documents.RedactionDocument], []),
    "export": ([store_documents.Exported], []),
    "import": ([documents.Imported], []),
    "move": ([store_documents.MovedDocument], []),
}  # fmt: skip


def schema() -> dict[str, Any]:
    """Return the schema: the forms of each command, and the documents that they refer to."""
    commands = {name: _forms(*forms) for name, forms in COMMANDS.items()}
    commands["show"]["field"] = {"description": "Any value of a state's field."}
    printed = [document for forms in COMMANDS.values() for form in forms for document in form]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Documents that pausepoint prints with --json (one document) and --jsonl (one per line), by command",
        "description": "Later versions may add names, so ignore names that you do not know. No name is removed or"
        " changes its meaning without an announcement in the change log.",
        "commands": commands,
        "$defs": definitions([*dict.fromkeys(printed), own.ErrorDocument]),
    }


def _forms(whole: Sequence[type], lines: Sequence[type]) -> dict[str, Any]:
    forms = {"json": _one_of(whole), "jsonl": _one_of(lines)}
    return {name: form for name, form in forms.items() if form}


def _one_of(kinds: Sequence[type]) -> dict[str, Any]:
    references = [{"$ref": f"#/$defs/{document_name(kind.__name__)}"} for kind in kinds]
    return references[0] if len(references) == 1 else {"anyOf": references} if references else {}


if __name__ == "__main__":
    print(to_json(schema(), indent=2))
