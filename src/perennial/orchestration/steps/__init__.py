"""What flows do beside the stages: records, approvals, checks of the champion, rebuilds and summaries."""
