"""The user's own OpenSSH: how it is called, and what its refusals mean.

All of ~/.ssh/config counts: aliases, jump hosts, agents, hardware keys. What is set here is only
what a program needs that nobody sits beside, and that host keys are always checked.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from disklab.errors import MachineError
from disklab.machines.link import Agent
from disklab.terminal import plain

OPTIONS = (
    # Nobody sits there to type a password or to say yes.
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "UpdateHostKeys=no",
    # 10 s without a link go unnoticed at 5 s x 6 (measured), and end the connection at 2 s x 3.
    "ServerAliveInterval=5",
    "ServerAliveCountMax=6",
    "ConnectTimeout=10",
    # A connection of the user's may be shared; one of ours is left to nobody.
    "ControlMaster=no",
    # The host gets nothing of this machine.
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "RequestTTY=no",
    "EscapeChar=none",
    # A host's banner is not an error.
    "LogLevel=ERROR",
)
PERMANENT = re.compile(
    r"host key|REMOTE HOST IDENTIFICATION|Permission denied|Too many authentication|"
    r"Bad configuration|Bad owner|terminated, \d+ bad",
    re.IGNORECASE,
)
"""What another try does not mend."""
_DESTINATION = re.compile(r"[A-Za-z0-9_.:@%/\[\]-]{1,255}", re.ASCII)
_FOLDER = re.compile(r"/[A-Za-z0-9_.,/@+-]{0,200}", re.ASCII)


@dataclass(frozen=True)
class Destination:
    """Whom ssh is asked for."""

    text: str
    """As on ssh's command line: an alias of ~/.ssh/config, `user@host`, `ssh://user@host:port`."""
    config: Path | None = None
    """Instead of ~/.ssh/config."""
    agent_folder: str | None = None
    """Where agent and jobs are stored on the host; None: disklab in the user's cache folder."""

    def __post_init__(self) -> None:
        if not _DESTINATION.fullmatch(self.text) or self.text.startswith("-"):
            raise MachineError(
                f"{plain(self.text)[:80]}: it is not a destination of ssh; give `user@host`, "
                "`ssh://user@host:port`, or a Host of ~/.ssh/config"
            )
        if self.agent_folder is not None and not _FOLDER.fullmatch(self.agent_folder):
            raise MachineError(
                f"{plain(self.agent_folder)[:80]}: the folder of the agent must be an absolute "
                "path of letters, digits and _.,/@+-"
            )

    def command(self, script: str) -> list[str]:
        """Return the command line that runs a script of sh there, whatever the login shell is."""
        assert "'" not in script
        assert "!" not in script
        return [*self._ssh("-T"), "--", self.text, f"exec sh -c '{script}'"]

    def _ssh(self, *words: str) -> list[str]:
        config = [] if self.config is None else ["-F", str(self.config)]
        return ["ssh", *words, *config, *(word for option in OPTIONS for word in ("-o", option))]

    def resolved(self) -> dict[str, str]:
        """Return what ssh makes of it: `hostname`, `port`, `user`; empty when it says nothing."""
        try:
            found = subprocess.run(
                [*self._ssh("-G"), "--", self.text], capture_output=True, timeout=10.0, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return {}
        lines = found.stdout.decode(errors="replace").splitlines()
        return {name: value for name, _, value in (line.partition(" ") for line in lines)}

    def advice(self, said: str) -> str:
        """Return what ssh said, in a line, with the way out."""
        short = " ".join(line.strip() for line in said.splitlines()[-4:])[:600]
        found = self.resolved()
        host, port = found.get("hostname", self.text), found.get("port", "22")
        known = found.get("userknownhostsfile", "~/.ssh/known_hosts").split(" ")[0]
        entry = host if port == "22" else f"[{host}]:{port}"
        if "IDENTIFICATION HAS CHANGED" in said:
            return (
                f"{short}; the host answers with another key than before. If you know why (such as "
                f"a new system): ssh-keygen -f {shlex.quote(known)} -R {shlex.quote(entry)}, and "
                "then as for a new host. If not, somebody may be between you and it"
            )
        if re.search(r"host key", said, re.IGNORECASE):
            through = ""
            if (
                found.get("proxyjump", "none") != "none"
                or found.get("proxycommand", "none") != "none"
            ):
                through = " (run it where the host can be reached: it is behind a jump host)"
            named = found.get("hostkeyalias", "none")
            alias = f", and write {named} in place of its name" if named != "none" else ""
            return (
                f"{short}; its host key is not known here. Fetch it{through}: "
                f"ssh-keyscan -p {port} {shlex.quote(host)} > its-key; compare what `ssh-keygen "
                "-lf its-key` shows with what the host's console or its provider says; then: "
                f"cat its-key >> {known}{alias}"
            )
        if "Permission denied" in said or "Too many authentication" in said:
            return (
                f"{short}; it accepts none of your keys, and passwords are not asked for: load the "
                f"key (ssh-add), name it (IdentityFile in ~/.ssh/config), or: ssh-copy-id "
                f"{shlex.quote(self.text)}"
            )
        return f"{short}; try: ssh {shlex.quote(self.text)} true"


def agent_script(agent: Agent, token: str, conductor: str, folder: str | None, lease_s: int) -> str:
    """Return the script that stores the agent by its content and becomes it.

    Before, it says on a line of its own when it wants it, and is answered by its bytes. sh only, no
    quotes of one kind and no `!`: it passes through any login shell.
    """
    stored = folder or "${XDG_CACHE_HOME:-$HOME/.cache}/disklab/agents"
    jobs = "" if folder is None else ' --folder "$d/jobs"'
    digest = agent.sha256
    return (
        f'umask 077; d="{stored}"; f="$d/disklab-engine-{digest}"; '
        's() { if command -v sha256sum >/dev/null; then sha256sum "$1" | cut -c1-64; '
        f"else echo {digest}; fi; }}; "
        f'if [ -x "$f" ] && [ "$(s "$f")" = {digest} ]; then touch "$f"; '
        f'else printf "\\n%s want %s\\n" {token} "$(uname -m)"; '
        # Agents of other releases, a month after their last use.
        'mkdir -p "$d" && { find "$d" -maxdepth 1 -type f -mtime +30 -exec rm -f {} +; '
        f't=$(mktemp "$d/.new.XXXXXXXX"); }} && head -c {agent.size_bytes} > "$t" && '
        f'[ "$(s "$t")" = {digest} ] && chmod 700 "$t" && mv -f "$t" "$f" || '
        f'{{ rm -f "$t"; printf "\\n%s failed\\n" {token}; exit 97; }}; fi; '
        f'exec "$f" node --conductor {conductor} --hello {token} --lease-s {lease_s}{jobs}'
    )
