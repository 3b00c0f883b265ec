"""``python -m tests.image``: the steps of `Containerfile` in clean roots of its Debian release, without an engine.

A job of the workflow runs it. It needs root, mmdebstrap, namespaces and the network; about three minutes. Copies,
layers, users and capabilities are those that an engine would make. The image must not exceed `MAX_SIZE`; it then
decodes a capture and captures, as its user, with no more rights than docs/remote.md gives it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_SIZE = 250_000_000
"""Bytes of all layers."""
CAPTURE = "librdkafka-codecs.pcap"
SLIM = ("/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/man/*")
"""What the slim images of Debian lack."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

Steps = list[tuple[str, str]]


def stages() -> list[Steps]:
    """(instruction, argument) of each stage."""
    text = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", (ROOT / "Containerfile").read_text(), flags=re.M))
    steps = [(name, rest) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line)]
    begins = [at for at, (name, _) in enumerate(steps) if name == "FROM"]
    return [steps[at:end] for at, end in zip(begins, [*begins[1:], len(steps)], strict=True)]


def arguments(stage: Steps, instruction: str) -> list[str]:
    return [rest for name, rest in stage if name == instruction]


def ignored(path: str) -> bool:
    """Whether `.dockerignore` excludes a path: the last rule that matches it, or a folder that it is in, decides."""
    found = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        rule = line.removeprefix("!")
        if not line or line.startswith("#"):
            continue
        parts = path.split("/")
        prefixes = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
        if any(fnmatch(prefix, rule) or (rule.startswith("**/") and rule[3:] in parts) for prefix in prefixes):
            found = not line.startswith("!")
    return found


def copy_context(folder: Path) -> None:
    """What an engine would send as the context of the build, of the files in the repository."""
    command = ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        if not ignored(name) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def changed_bytes(root: Path, since_ns: int) -> int:
    """Bytes of the files that a step has made or changed in any way: the size of its layer."""
    sizes: dict[int, int] = {}
    for folder, _, names in os.walk(root):
        for name in names:
            found = os.lstat(os.path.join(folder, name))
            if found.st_ctime_ns >= since_ns:
                # Hard links are stored once.
                sizes[found.st_ino] = found.st_size
    return sum(sizes.values())


class Stage:
    """A stage of the build: its root, and the size of its layers so far."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.size = changed_bytes(root, 0)
        self.variables: dict[str, str] = {}

    def run(
        self, *command: str, mounts: str = "", namespaces: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the root, which sees no processes of this machine; `mounts`: shell commands before it."""
        prepare = (
            'set -e; touch "$0/etc/resolv.conf"; mount --bind /etc/resolv.conf "$0/etc/resolv.conf"; '
            'mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"; '
            f'{mounts} exec chroot "$0" env -i "$@"'
        )
        variables = (f"{name}={value}" for name, value in {"PATH": PATH, **self.variables}.items())
        around = ("unshare", "--mount", "--pid", "--fork", "--kill-child", *namespaces)
        return subprocess.run(
            [*around, "sh", "-c", prepare, self.root, *variables, *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def step(self, instruction: str, rest: str, others: dict[str, Stage]) -> None:
        """One instruction. Raises SystemExit if it fails."""
        print(f"{instruction} {rest}", flush=True)
        match instruction:
            case "ARG" | "ENV":
                self.variables.update(part.split("=", 1) for part in rest.split())
            case "COPY" if not rest.startswith("--from="):
                copy_context(self.root / rest.split()[1].lstrip("/"))
            case "COPY":
                source, inside, target = rest.removeprefix("--from=").split()
                since = time.time_ns()
                copied = others[source].root / inside.lstrip("/")
                subprocess.run(["cp", "-a", copied, self.root / target.lstrip("/")], check=True)
                self.size += changed_bytes(self.root, since)
            case "RUN":
                since = time.time_ns()
                done = self.run("/bin/sh", "-c", rest)
                if done.returncode:
                    raise SystemExit(f"{done.stdout}{done.stderr}\nimage: {rest}: exit code {done.returncode}")
                self.size += changed_bytes(self.root, since)
            case "WORKDIR":
                (self.root / rest.lstrip("/")).mkdir(exist_ok=True)


def clean_root(release: str, folder: Path) -> None:
    """A root of a Debian release, as in its slim image."""
    options = [f"--dpkgopt=path-exclude={path}" for path in SLIM] + [
        "--dpkgopt=path-include=/usr/share/doc/*/copyright"
    ]
    subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", *options, release, folder], check=True)


def build(folder: Path) -> tuple[Stage, Steps]:
    """Run all stages; returns the last one, and its steps."""
    made: dict[str, Stage] = {}
    base = folder / "base"
    for number, stage in enumerate(stages()):
        image, _, name = stage[0][1].partition(" AS ")
        found = re.fullmatch(r"docker\.io/library/debian:(\w+)-slim@sha256:[0-9a-f]{64}", image)
        assert found is not None, image
        if not base.exists():
            clean_root(found[1], base)
        root = folder / str(number)
        subprocess.run(["cp", "-a", base, root], check=True)
        current = made[name] = Stage(root)
        certificates = os.environ.get("PIP_CERT")
        if name and certificates:
            # For a proxy that this machine may need.
            shutil.copy(certificates, root / "etc" / "certificates.pem")
            current.variables["PIP_CERT"] = "/etc/certificates.pem"
        for instruction, rest in stage:
            current.step(instruction, rest, made)
    return current, stage


def checked(image: Stage, steps: Steps) -> list[str]:
    """What is wrong with the image: its size, and what it does as its user with few rights."""
    (user,) = arguments(steps, "USER")
    (folder,) = arguments(steps, "WORKDIR")
    entry = json.loads(arguments(steps, "ENTRYPOINT")[0])
    problems = []
    if image.size > MAX_SIZE:
        problems.append(f"{image.size / 1e6:.0f} MB")

    def started(*command: str, rights: str) -> subprocess.CompletedProcess[str]:
        """`docker run --rm --net none --cap-drop ALL --cap-add RIGHTS -v CAPTURES:FOLDER:ro`."""
        uid, gid = user.split(":")
        limits = (
            f"--reuid={uid}",
            f"--regid={gid}",
            "--clear-groups",
            "--inh-caps=-all",
            f"--bounding-set=-all{rights}",
        )
        inside = f'mount -o bind,ro "{ROOT / "captures"}" "$0{folder}"; ip link set lo up;'
        command = ("setpriv", *limits, "sh", "-c", f'cd {folder} && exec "$@"', "sh", *entry, *command)
        return image.run(*command, mounts=inside, namespaces=("--net",))

    version = started("--version", rights="")
    if version.returncode or "(native kernel" not in version.stdout:
        problems.append(f"--version: {version.stdout}{version.stderr}")
    help_text = started(*json.loads(arguments(steps, "CMD")[0]), rights="")
    if not help_text.stdout.startswith("Usage: kafkasniff"):
        problems.append(f"without arguments: {help_text.stdout}{help_text.stderr}")
    expected = subprocess.run(
        [sys.executable, "-m", "kafkasniff", "decode", "--format", "json", CAPTURE],
        cwd=ROOT / "captures",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    decoded = started("decode", "--format", "json", CAPTURE, rights="")
    if (decoded.returncode, decoded.stdout) != (0, expected.stdout) or not decoded.stdout:
        problems.append(f"decode: exit code {decoded.returncode}, other output than here: {decoded.stderr}")
    live = started("live", "-i", "lo", "--duration", "1", rights=",+net_raw")
    if live.returncode or "listening on lo" not in live.stderr:
        problems.append(f"live: exit code {live.returncode}: {live.stderr}")
    refused = started("live", "-i", "lo", "--duration", "1", rights="")
    if refused.returncode == 0:
        problems.append("live captures without the right to")
    return problems


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="kafkasniff-image-") as name:
        os.chmod(name, 0o755)
        image, steps = build(Path(name))
        problems = checked(image, steps)
    for problem in problems:
        print(f"image: {problem}", file=sys.stderr)
    print(f"image of {image.size / 1e6:.0f} MB: {f'{len(problems)} problems' if problems else 'passed'}")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
