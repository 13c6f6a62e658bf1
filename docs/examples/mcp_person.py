"""Answer the open questions of a store in a terminal, through its MCP server."""

import asyncio
import json
import sys
from typing import Any

from mcp import Client, types
from mcp.client.stdio import StdioServerParameters


async def form(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    assert isinstance(params, types.ElicitRequestFormParams)
    print(params.message)
    try:
        content = {name: input(f"{name}: ") for name in params.requested_schema["properties"]}
    except EOFError:  # Ctrl+D
        return types.ElicitResult(action="cancel")
    return types.ElicitResult(action="accept", content=dict(content))


async def called(client: Client, tool: str, **arguments: Any) -> Any:
    """Call a tool, and return its document. A refusal, and a form that was not answered, is a sentence."""
    content = (await client.call_tool(tool, arguments)).content[0]
    assert isinstance(content, types.TextContent)
    return json.loads(content.text) if content.text.startswith("{") else content.text


async def main(store: str) -> None:
    words = ["-m", "pausepoint", "mcp", "--store", store, "--allow", "act"]
    async with Client(StdioServerParameters(command=sys.executable, args=words), elicitation_callback=form) as client:
        page: Any = {"next": ""}
        while "next" in page:
            after = {"after": page["next"]} if page["next"] else {}
            page = await called(client, "open_questions", **after)
            if isinstance(page, str):
                sys.exit(page)
            for question in page.get("questions", ()):
                receipt = await called(client, "answer_question", question_id=question["id"])
                if isinstance(receipt, dict):
                    session, note = receipt["session"], receipt.get("answer", "The step accepted the answer.")
                    receipt = f"{session['session_id']} is {session['status']}. {note}"
                print(receipt)


asyncio.run(main(sys.argv[1]))
