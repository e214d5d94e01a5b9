"""What tries lines of bash in which a stub may run: the beginning of the scripts beside it.

They read {"stub": PATH, "ran": FOLDER, "names": [...]} and write {"missing": [...], "cut": [...],
"tried": NUMBER, "ran": [...]}: the programs that are not here, those that take too long for all of
their options, how many were tried, and the lines in which the stub ran.
"""

import concurrent.futures, itertools, json, os, random, re, shlex, shutil, signal, string, subprocess, sys, time

task = json.load(sys.stdin)
stub, folder = task["stub"], task["ran"]
# Seconds for a line.
LINE = 0.5
numbers = itertools.count()


def output(arguments, seconds, directory=None):
    """What a program prints, also where it does not end by itself."""
    process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, start_new_session=True, cwd=directory)
    try:
        return process.communicate(timeout=seconds)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return ""


def options(name):
    """The options that the help of a program or builtin names."""
    found = shutil.which(name)
    text = output([name, "--help"] if found else ["bash", "-c", f"help {name}"], 3)
    names = set()
    for line in text.splitlines():
        if match := re.match(r"\s+(-\S.*)", line):
            head = re.split(r"\s{2,}|\t", match[1])[0]
            names.update(re.findall(r"(?<![\w-])(--?[A-Za-z0-9][\w.-]*)", head))
    names -= {"--help", "--version"}
    return sorted(names)


def ran(line, number, directory=None):
    """Whether the stub ran with this number."""
    output(["bash", "-c", line], LINE, directory)
    return os.path.exists(os.path.join(folder, str(number)))


def tell(names, here, tried):
    """Tries them all, and writes what has come of it."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        every = list(pool.map(tried, here))
    found, cut = [[one for part in parts for one in part] for parts in zip(*every)]
    missing = sorted(set(names) - set(here))
    print(json.dumps({"missing": missing, "cut": cut, "tried": len(here), "ran": found}))


