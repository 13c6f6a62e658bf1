"""Claude works on a website. A person approves each call that needs a permission, and may pause Claude."""

import asyncio
import sys

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage

from pausepoint import Engine
from pausepoint.integrations.claude import PausepointSessionStore, approve, converse


async def main(prompt: str, conversation: str | None = None) -> None:
    async with Engine() as engine:
        options = ClaudeAgentOptions(
            session_store=PausepointSessionStore(engine),
            can_use_tool=approve(engine, "website"),
            resume=conversation,
        )
        async with ClaudeSDKClient(options) as client:
            async for message in converse(engine, client, prompt, "website"):
                if isinstance(message, ResultMessage):
                    print(f"{message.result} Conversation: {message.session_id}")


asyncio.run(main(*sys.argv[1:]))
