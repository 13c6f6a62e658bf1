"""Helpdesk: a customer service chat for a made-up shop. You can pause, kill and resume it at any message."""

from pausepoint.apps.helpdesk import conversation
from pausepoint.apps.helpdesk.errands import errand
from pausepoint.apps.helpdesk.models import Chat, Desk
from pausepoint.apps.helpdesk.shop import open_shop
from pausepoint.apps.helpdesk.workflow import helpdesk

__all__ = ["Chat", "Desk", "conversation", "errand", "helpdesk", "open_shop"]
