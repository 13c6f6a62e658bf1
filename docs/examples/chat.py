"""A support chat. Say something with: python chat.py CHAT MESSAGE-ID TEXT"""

import asyncio
import sys
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel
from stand_in import MODEL, client, payments

from pausepoint import Append, Context, Declined, Engine, Outcome, SessionEnded, Workflow, current, route, step
from pausepoint.definition import At

SILENCE = timedelta(days=7)


class Message(BaseModel):
    role: Literal["user", "assistant"]
    content: str


class Chat(BaseModel):
    messages: Annotated[list[Message], Append] = []
    closed: str = ""


async def answer(messages: list[Message], ctx: Context) -> str:
    said = [message.model_dump() for message in messages]
    async with client.messages.stream(model=MODEL, max_tokens=1000, messages=said) as stream:
        async for text in stream.text_stream:
            ctx.stream(text)
        reply = await stream.get_final_message()
    return "".join(block.to_dict()["text"] for block in reply.content)


async def pay_back(order: str) -> str:
    return await payments.order(f"refund for {order}", key=current().idempotency_key)


async def refund(order: str, ctx: Context) -> str:
    try:
        await ctx.confirm(f"Refund {order}?", payload={"order": order}, understand={"yes": True, "no": False}.get)
    except Declined:
        return "Then I leave it as it is."
    return await ctx.do(pay_back, order, retry=3, timeout=60)


@step(writes=["messages", "closed"])
async def turn(recent: Annotated[list[Message], At("messages[-20:]")], ctx: Context) -> dict[str, Any]:
    text = await ctx.receive(timeout=SILENCE)
    if text is None or text == "bye":
        return {"closed": text or "nobody wrote in time"}
    said = Message(role="user", content=text)
    if text.startswith("refund "):
        reply = await refund(text.removeprefix("refund "), ctx)
    else:
        reply = await ctx.do(answer, [*recent, said], retry=3, timeout=120)
    ctx.emit("answered", reply)
    return {"messages": [said, Message(role="assistant", content=reply)]}


@route(after=turn)
def again(closed: str) -> Literal["turn", None]:
    return None if closed else "turn"


chat = Workflow("chat", state=Chat, steps=[turn], routes=[again], events=["answered"])


async def say(engine: Engine, chat_id: str, message_id: str, text: str) -> str:
    """Send a message, wait until the chat stops, and return what it says."""
    try:
        await engine.session(chat_id, chat).send(text, key=message_id, start={})
    except SessionEnded as error:
        return str(error)
    outcome: Outcome[Chat] = await engine.session(chat_id).outcome()
    if outcome.questions:
        return outcome.questions[0].next_question
    if outcome.status == "waiting":  # for the next message
        return outcome.state.messages[-1].content
    return f"The chat is {outcome.status}."


async def main(chat_id: str, message_id: str, text: str) -> None:
    async with Engine(workflows=[chat]) as engine:
        await engine.take_ready()  # continue chats that a killed process left
        print(await say(engine, chat_id, message_id, text))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
