"""Who listens on a TCP port of this machine; from /proc, without another program."""

from pathlib import Path

LISTEN = "0A"


def listening_inodes(table: str, port: int) -> set[str]:
    """Reads the socket inodes that listen on a port from the text of ``/proc/net/tcp`` or ``tcp6``."""
    rows = [line.split() for line in table.splitlines()[1:]]
    return {row[9] for row in rows if row[3] == LISTEN and int(row[1].rsplit(":", 1)[1], 16) == port}


def holder(port: int) -> str | None:
    """Describes the process that listens on a port; None when nobody does."""
    inodes: set[str] = set()
    for name in ("tcp", "tcp6"):
        path = Path("/proc/net") / name
        inodes |= listening_inodes(path.read_text(), port) if path.exists() else set()
    if not inodes:
        return None
    return _owner({f"socket:[{inode}]" for inode in inodes}) or "a process that /proc does not show"


def _owner(sockets: set[str]) -> str | None:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(descriptor.readlink()) in sockets for descriptor in (process / "fd").iterdir()):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                return f"process {process.name} ({command.strip()[:120]})"
        except OSError:
            continue  # it ended while we looked, or belongs to another namespace
    return None
