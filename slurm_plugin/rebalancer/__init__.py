"""The daemon that keeps the queue in the agreed order: observe, decide, enact, report; and its undo."""
