"""What Python steps may import as `alara`: files without lost bytes."""

import contextlib, os, secrets, stat


def codec(data):
    """How the text in `data` is encoded, as (name, errors): decoding and encoding by it gives the same bytes again.

    UTF-16 if it has that mark, UTF-8, also with some bytes that are none, or Latin-1 if nothing else in it is UTF-8.
    """
    for mark, name in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        with contextlib.suppress(UnicodeError):
            if data.startswith(mark) and data.decode(name).encode(name) == data:
                return name, "strict"
    try:
        data.decode("utf-8")
        return "utf-8", "strict"
    except UnicodeDecodeError:
        mixed = not data.decode("utf-8", "ignore").isascii()
        return ("utf-8", "surrogateescape") if mixed else ("latin-1", "strict")


def save(path, data):
    """Makes `data`, bytes, the content of the file at `path`, or leaves the file as it was.

    It is written beside and renamed, so that a full disk or an end in between loses nothing.
    Permissions, owner and attributes stay, as far as the system lets us; of a link the target is written.
    """
    target = os.path.realpath(path)
    try:
        old = os.stat(target)
    except FileNotFoundError:
        old = None
    if old and not stat.S_ISREG(old.st_mode):
        raise SystemExit(f"{path} is no plain file")
    # Renaming would get around it.
    if old and not os.access(target, os.W_OK):
        raise SystemExit(f"{path} is as it was: writing it is not permitted")
    beside = os.path.join(os.path.dirname(target), f".alara-{secrets.token_hex(6)}.new")
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(data)
            file.flush()
            if old:
                _keep(file.fileno(), target, old)
            os.fsync(file.fileno())
        os.replace(beside, target)
    except OSError as error:
        raise SystemExit(f"{path} is {'as it was' if old else 'not written'}: {error.strerror or error}")
    finally:
        with contextlib.suppress(OSError):
            os.unlink(beside)


def _keep(file, target, old):
    """Gives an open file what the old one has beside its content."""
    now = os.fstat(file)
    if (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid):
        for user in (old.st_uid, -1):
            with contextlib.suppress(OSError):
                os.fchown(file, user, old.st_gid)
                break
    if hasattr(os, "listxattr"):
        with contextlib.suppress(OSError):
            for name in os.listxattr(target):
                with contextlib.suppress(OSError):
                    os.setxattr(file, name, os.getxattr(target, name))
    # Last, since a new owner takes some of them away.
    os.fchmod(file, stat.S_IMODE(old.st_mode))
