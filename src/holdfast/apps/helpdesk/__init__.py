"""Helpdesk: a chat over an invented shop that can be paused, killed and resumed at any word."""

from holdfast.apps.helpdesk.errands import errand
from holdfast.apps.helpdesk.models import Chat, Desk
from holdfast.apps.helpdesk.shop import open_shop
from holdfast.apps.helpdesk.workflow import helpdesk

__all__ = ["Chat", "Desk", "errand", "helpdesk", "open_shop"]
