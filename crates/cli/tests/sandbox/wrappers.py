"""Tries every wrapper with every form of every option that its own help names, in bash.

Reads {"stub": PATH, "ran": FOLDER, "names": [...]} and writes {"missing": [...], "cut": [...],
"tried": NUMBER, "ran": [...]}: the wrappers that are not here, those that take too long for all of
their options, how many were tried, and the lines of bash in which the stub ran.
"""

import concurrent.futures, itertools, json, os, re, shlex, shutil, signal, subprocess, sys, time

task = json.load(sys.stdin)
stub, folder = task["stub"], task["ran"]
OPERANDS = [[], ["1"], ["0"], ["/"], ["lock"], ["root"], ["x86_64"], ["a=b"]]
VALUES = ["1", "/"]
# Seconds for a line, and for all lines of a wrapper.
LINE, WRAPPER = 0.5, 12
# They wait for somebody, or have no command of their own.
LEFT_OUT = {"coproc", "!", "trap", "at", "batch"}
numbers = itertools.count()


def output(arguments, seconds):
    """What a program prints, also where it does not end by itself."""
    process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, start_new_session=True)
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


def ran(line, number):
    """Whether the stub ran with this number."""
    output(["bash", "-c", line], LINE)
    return os.path.exists(os.path.join(folder, str(number)))


def lines(name, bases):
    """Lines that may run the stub, each with its number."""
    def made(*words):
        number = next(numbers)
        return shlex.join([name, *words, stub, str(number)]), number

    for base in bases:
        yield made(*base)
        for option in options(name):
            attach = (lambda value: f"{option}={value}") if option.startswith("--") else (lambda value: option + value)
            forms = [[option]] + [form for value in VALUES for form in ([attach(value)], [option, value])]
            for form in forms:
                yield made(*form, *base)
                yield made(*base, *form)
            yield made(option, *base, "--")
            number = next(numbers)
            script = f"{stub} {number}"
            yield shlex.join([name, *base, option, script]), number
            number = next(numbers)
            script = f"{stub} {number}"
            yield shlex.join([name, *base, attach(script)]), number


def tried(name):
    """The lines of a wrapper in which the stub ran."""
    good = []
    for base in OPERANDS:
        number = next(numbers)
        if ran(shlex.join([name, *base, stub, str(number)]), number):
            good.append(base)
    # Some run something only with an option.
    found, until = [], time.monotonic() + WRAPPER
    for line, number in lines(name, good[:3] or [[], ["1"]]):
        if ran(line, number):
            found.append(line)
        if time.monotonic() > until:
            return found, [name]
    return found, []


known = output(["bash", "-c", "compgen -b"], 3).split() + ["time"]
names = [name for name in task["names"] if name not in LEFT_OUT]
here = [name for name in names if shutil.which(name) or name in known]
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    all = list(pool.map(tried, here))
found, cut = [[one for part in parts for one in part] for parts in zip(*all)]
print(json.dumps({"missing": sorted(set(names) - set(here)), "cut": cut, "tried": len(here), "ran": found}))
