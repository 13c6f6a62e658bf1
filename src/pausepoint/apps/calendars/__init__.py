"""Calendars in iCalendar files, for all applications: their events, and when these take place."""
