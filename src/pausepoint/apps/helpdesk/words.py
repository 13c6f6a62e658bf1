"""The helpdesk's texts in English and Chinese: questions, replies, reasons."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from pausepoint.apps.helpdesk.dates import DAYS, HAN_DAYS, MONTHS
from pausepoint.apps.helpdesk.models import Call, Language, Result, ToolName
from pausepoint.apps.words import one_line

SAYINGS: dict[str, tuple[str, str]] = {
    # small talk
    "hello": ("Hello! What can I do for you?", "您好！请问有什么可以帮您？"),
    "thanks": ("You are welcome.", "不客气。"),
    "bye": ("Goodbye!", "再见！"),
    "cancel": ("There is nothing to cancel.", "目前没有可以取消的事项。"),
    "unwanted": ("All right, I leave that as it is.", "好的，不做任何更改。"),
    "unclear": ("I did not understand: {parts}", "我没有听懂：{parts}"),
    "offer": (
        "I can look up, change or cancel an order, pay a refund, make an appointment, or connect you with a person.",
        "我可以查询、修改或取消订单、办理退款、预约时间，或者转接人工。",
    ),
    "which": ("Which of these do you need, or shall I connect you with a person?",
              "您需要哪一项？或者需要我为您转接人工吗？"),
    # questions
    "needs": ("{what}: please tell me {wanted}.", "{what}：请告诉我{wanted}。"),
    "again": ("{why} Please tell me {wanted}.", "{why}请告诉我{wanted}。"),
    "nothing": ("I could not find that in your answer.", "我没有在您的回答中找到所需的信息。"),
    "refund.confirm": (
        "Shall I refund {amount} for order {number} ({item})? Yes or no?",
        "确认为订单{number}（{item}）退款{amount}吗？请回答“是”或“否”。",
    ),
    "change_address.confirm": (
        "Shall I send order {number} ({item}) to {street}, {postcode} {city}? Yes or no?",
        "确认将订单{number}（{item}）寄往：{city}{street}，邮编{postcode}吗？请回答“是”或“否”。",
    ),
    "cancel_order.confirm": (
        "Shall I cancel order {number} ({item}) and pay back {amount}? Yes or no?",
        "确认取消订单{number}（{item}）并退还{amount}吗？请回答“是”或“否”。",
    ),
    "appointment.confirm": (
        "Shall I book {kind} on {day} at {time}, and reach you at {contact}? Yes or no?",
        "确认预约{day}{time}，{kind}，联系方式{contact}吗？请回答“是”或“否”。",
    ),
    "not_yes_or_no": ("I did not understand that.", "我没有听懂。"),
    "yes": ("yes", "是"),
    # names of tools and parameters
    "order_status": ("Your order", "订单查询"),
    "change_address": ("The new address", "修改地址"),
    "refund": ("The refund", "退款"),
    "cancel_order": ("The cancellation", "取消订单"),
    "appointment": ("The appointment", "预约"),
    "order": ("the order number (such as A-1001)", "订单号（例如A-1001）"),
    "street": ("the street and house number", "街道和门牌号"),
    "postcode": ("the postcode", "邮政编码"),
    "city": ("the city", "城市"),
    "reason": (
        "the reason (damaged, wrong item, unwanted or late)",
        "原因（损坏、发错货、不想要或者太迟）",
    ),
    "amount": ("the amount (such as 20.00 €)", "金额（例如20.00元）"),
    "kind": ("what it is about (repair, advice or pickup)", "事由（维修、咨询或者取货）"),
    "day": ("the day (such as 2030-03-07, tomorrow or next Monday)", "日期（例如2030-03-07、明天或者下周一）"),
    "time": ("the time (such as 15:00 or 3 pm)", "时间（例如15:00或者下午3点）"),
    "contact": ("your e-mail address or telephone number", "您的电子邮箱或者电话号码"),
    # problems with a value
    "bad_order": ("That is not an order number.", "这不是有效的订单号。"),
    "bad_street": ("That is not a street.", "这不是有效的街道。"),
    "bad_postcode": ("That is not a postcode.", "这不是有效的邮政编码。"),
    "bad_city": ("That is not a city.", "这不是有效的城市。"),
    "bad_reason": ("That is not one of the reasons.", "这不在可选的原因之中。"),
    "bad_amount": ("That is not a valid amount.", "这不是有效的金额。"),
    "bad_kind": ("We make no appointments for that.", "这不在可预约的事由之中。"),
    "bad_day": ("I cannot read that day.", "我无法识别这个日期。"),
    "bad_time": ("I cannot read that time.", "我无法识别这个时间。"),
    "bad_contact": ("That is neither an e-mail address nor a telephone number.", "这不是有效的邮箱或者电话号码。"),
    "unknown_order": ("I cannot find order {number}.", "没有找到订单{number}。"),
    "too_much": ("For order {number}, only {left} can be refunded.", "订单{number}最多还能退{left}。"),
    "past": ("That time has already passed.", "这个时间已经过去了。"),
    "too_far": ("That is too far ahead.", "这个日期太远了。"),
    "sunday": ("We are closed on Sundays.", "周日我们不营业。"),
    "closed_then": (
        "We are open from 9:00 to 18:00, and an appointment takes half an hour.",
        "我们的营业时间是9点到18点，每次预约需要半小时。",
    ),
    "taken": ("That time is taken.", "这个时间已经被预约了。"),
    # results
    "order_status.done": (
        "Order {number} ({item}): {status}. It will arrive on {arrives_on} at {street}, {postcode} {city}.",
        "订单{number}（{item}）：{status}。预计{arrives_on}送达：{city}{street}，邮编{postcode}。",
    ),
    "order_status.delivered": (
        "Order {number} ({item}) was delivered on {arrives_on} to {street}, {postcode} {city}.",
        "订单{number}（{item}）已于{arrives_on}送达：{city}{street}，邮编{postcode}。",
    ),
    "change_address.done": (
        "Done: order {number} goes to {street}, {postcode} {city}.",
        "好的，订单{number}将寄往：{city}{street}，邮编{postcode}。",
    ),
    "order_status.cancelled": (
        "Order {number} ({item}) is cancelled.",
        "订单{number}（{item}）已取消。",
    ),
    "order_status.refunded": (
        "{refunded} of it was refunded.",
        "其中{refunded}已退款。",
    ),
    "cancel_order.done": ("Done: order {number} ({item}) is cancelled, and {amount} is on its way back to you.",
                          "好的，订单{number}（{item}）已取消，{amount}将退还给您。"),
    "refund.done": ("Done: {amount} for order {number} is on its way back to you.",
                    "好的，订单{number}的{amount}已退还。"),
    "appointment.done": ("Done: {kind} on {day} at {time}. We can reach you at {contact}.",
                         "好的，已预约{day}{time}，{kind}。联系方式：{contact}。"),
    "declined": ("{what}: nothing was changed.", "{what}：没有任何更改。"),
    "declined refund": ("Nothing was refunded.", "没有退款。"),
    "declined cancel_order": ("No order was cancelled.", "没有取消任何订单。"),
    "cancelled cancel_order": ("No order was cancelled.", "没有取消任何订单。"),
    "cancelled": ("{what}: cancelled, nothing was changed.", "{what}：已取消，没有任何更改。"),
    "expired": ("{what}: I received no answer in time, so nothing was changed. I ask again when you are back.",
                "{what}：没有及时收到您的回答，没有任何更改。等您回来时我会再问一次。"),
    "handed_over": ("{what}: I could not complete this in {rounds} questions, so a person takes over.",
                    "{what}：问了{rounds}次仍未能办理，将由人工处理。"),
    "passed_on": ("{what}: a person will take over.", "{what}：将由人工继续处理。"),
    "has_shipped": ("Order {number} has already been shipped; its address cannot be changed.",
                    "订单{number}已发货，无法修改地址。"),
    "has_delivered": ("Order {number} has already been delivered; its address cannot be changed.",
                      "订单{number}已送达，无法修改地址。"),
    "has_cancelled": ("Order {number} was cancelled before, so I cannot change it.",
                      "订单{number}之前已取消，无法再更改。"),
    "too_late_shipped": (
        "Order {number} has already been shipped; it cannot be cancelled. After its arrival you can ask for a refund.",
        "订单{number}已发货，无法取消。收到后您可以申请退款。",
    ),
    "too_late_delivered": (
        "Order {number} has already been delivered; it cannot be cancelled. You can ask for a refund.",
        "订单{number}已送达，无法取消。您可以申请退款。",
    ),
    "refunded_before": ("Order {number} has already been refunded.", "订单{number}已经退过款。"),
    "ticket": ("A person will look into it: ticket {ticket}. They can see everything that you told me.",
               "已转接人工，工单号{ticket}。您提供的信息都已转交。"),
    # values
    "packed": ("packed", "已打包"),
    "shipped": ("on its way", "运输中"),
    "delivered": ("delivered", "已送达"),
    "cancelled_order": ("cancelled", "已取消"),
    "repair": ("repair", "维修"),
    "advice": ("advice", "咨询"),
    "pickup": ("pickup", "取货"),
    # the terminal
    "person": ("A person has this chat and will answer here.", "人工客服会在这里回复您。"),
    "look": ("Press Enter to see new messages.", "按回车键查看新消息。"),
    "late": ("That question is no longer open, so your answer was not used.", "该问题已失效，您的回答未被采用。"),
    "trouble": ("Something went wrong on our side. Nothing is lost. Please try again in a moment.",
                "系统出现问题，您的信息不会丢失，请稍后再试。"),
}  # fmt: skip


def say(language: Language, key: str, **values: Any) -> str:
    """Return a sentence with its values."""
    return SAYINGS[key][language == "zh"].format(**{name: one_line(str(value)) for name, value in values.items()})


def day(language: Language, value: str) -> str:
    """Return a day in full, so that a misunderstanding is visible.

    >>> day("en", "2030-03-07"), day("zh", "2030-03-07")
    ('Thursday, 7 March 2030', '2030年3月7日（周四）')
    """
    found = date.fromisoformat(value)
    if language == "zh":
        return f"{found.year}年{found.month}月{found.day}日（周{HAN_DAYS[found.weekday()]}）"
    return f"{DAYS[found.weekday()].title()}, {found.day} {MONTHS[found.month - 1].title()} {found.year}"


def facts(language: Language, given: dict[str, Any]) -> dict[str, str]:
    """Format facts for a sentence."""
    found = {name: str(value) for name, value in given.items()}
    for name in ("status", "kind"):
        if name in found:
            found[name] = say(language, {"cancelled": "cancelled_order"}.get(found[name], found[name]))
    for name in ("day", "arrives_on"):
        if name in found:
            found[name] = day(language, found[name])
    for name in ("amount", "left", "refunded"):
        if name in found:
            found[name] = f"{found[name]}元" if language == "zh" else f"{found[name]} €"
    if "time" in found:
        found["time"] = found["time"][:5]
    return found


def wanted(language: Language, names: Sequence[str]) -> str:
    """Return parameters as a list in a sentence."""
    listed = [say(language, name) for name in names]
    if language == "zh":
        return "、".join(listed)
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}"


def question(language: Language, call: Call, names: Sequence[str], why: str) -> str:
    """Return the question for a tool. ``why`` is the validation message; the customer gets it in plain words."""
    bad = [name for name in names if f"{name}: " in why]
    reasons = [call.why] if call.why else []
    reasons += [say(language, f"bad_{name}") for name in bad]
    if not reasons:
        return say(language, "needs", what=say(language, call.tool), wanted=wanted(language, names))
    gap = "" if language == "zh" else " "
    return say(language, "again", why=gap.join(reasons), wanted=wanted(language, names))


def confirmation(language: Language, tool: ToolName, facts_: dict[str, Any], why: str = "") -> str:
    """Return the question that shows what will be written."""
    asked = say(language, f"{tool}.confirm", **facts(language, facts_))
    return " ".join(filter(None, (why, asked)))


def outcome(language: Language, result: Result, rounds: int) -> str:
    """Return the sentence about a call's result. The result of `hand_over` is a ticket, which has its own sentence."""
    if result.tool == "hand_over":
        return ""
    what = say(language, result.tool)
    told = facts(language, result.facts)
    match result.outcome:
        case "done" if result.tool == "order_status":
            return _status(language, result.facts, told)
        case "done":
            return say(language, f"{result.tool}.done", **told)
        case "refused":
            return say(language, result.said, **told)
    own = f"{result.outcome} {result.tool}"
    return say(language, own if own in SAYINGS else result.outcome, what=what, rounds=rounds)


def _status(language: Language, facts_: dict[str, Any], told: dict[str, str]) -> str:
    form = facts_["status"] if facts_["status"] in ("delivered", "cancelled") else "done"
    said = [say(language, f"order_status.{form}", **told)]
    if "refunded" in told:
        said.append(say(language, "order_status.refunded", **told))
    return " ".join(said)
