"""Renders how the base is made where no registry is at hand: Debian's minimum, by mmdebstrap."""

from pathlib import Path

SUITE = "bookworm"
PACKAGES = ("ca-certificates", "python3", "python3-venv")
# Manual pages, documents and translations; Debian's licence texts stay.
LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*")
# What the bootstrap takes from this host, then its lists and logs.
CLEAN_UP = 'cd "$1" && rm -rf etc/resolv.conf etc/hostname var/lib/apt/lists/* var/cache/apt/*.bin var/log/*'


def bootstrap(archive: Path) -> list[str]:
    """Renders the command that writes the root file system into an archive."""
    left_out = [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    return [
        "mmdebstrap",
        "--variant=minbase",
        f"--include={','.join(PACKAGES)}",
        '--aptopt=APT::Install-Recommends "false"',
        *left_out,
        "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        f"--customize-hook={CLEAN_UP}",
        SUITE,
        str(archive),
    ]
