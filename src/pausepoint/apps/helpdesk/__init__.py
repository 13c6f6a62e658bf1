"""Helpdesk: a chat over an invented shop that can be paused, killed and resumed at any word."""

from pausepoint.apps.helpdesk.errands import errand
from pausepoint.apps.helpdesk.models import Chat, Desk
from pausepoint.apps.helpdesk.shop import open_shop
from pausepoint.apps.helpdesk.workflow import helpdesk

__all__ = ["Chat", "Desk", "errand", "helpdesk", "open_shop"]
