"""Archives as plain tar files: read in place, written reproducibly, rejected as a whole on any error."""

from perennial.data.archives.read import Member, content, contents, extract, format_of, read_members
from perennial.data.archives.safety import LIMITS, ArchiveLimits, hidden, leftover, without_leftovers
from perennial.data.archives.write import expand, folder_contents, inflate, pack, pack_files, unpack

__all__ = [
    "LIMITS", "ArchiveLimits", "Member", "content", "contents", "expand", "extract", "folder_contents",
    "format_of", "hidden", "inflate", "leftover", "pack", "pack_files", "read_members",
    "unpack", "without_leftovers",
]  # fmt: skip
