"""Archives as plain tar files: read in place, written reproducibly, rejected as a whole on any error."""

from perennial.archives.read import Member, content, contents, format_of, read_members
from perennial.archives.safety import LIMITS, ArchiveLimits, hidden, leftover
from perennial.archives.write import expand, folder_contents, pack, pack_files, unpack

__all__ = [
    "LIMITS", "ArchiveLimits", "Member", "content", "contents", "expand", "folder_contents", "format_of",
    "hidden", "leftover", "pack", "pack_files", "read_members", "unpack",
]  # fmt: skip
