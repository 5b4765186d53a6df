"""The stack file: wire models, one file a section, and how it is read. No decisions are taken here."""
