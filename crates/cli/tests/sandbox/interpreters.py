# Tries every interpreter with options in random forms and places, and programs of its language.

SYSTEM = ['system("STUB")']
LANGUAGES = {
    "python3 pypy3": ['import os; os.system("STUB")'],
    "perl ruby R Rscript octave": SYSTEM,
    "php": ['system("STUB");', '<?php system("STUB");'],
    "node nodejs bun": ['require("child_process").execSync("STUB")'],
    "lua luajit texlua": ['os.execute("STUB")'],
    "awk gawk mawk nawk original-awk": ['BEGIN{system("STUB")}', 'BEGIN{"STUB"|getline}', '{print|"STUB"}'],
    "sed gsed": ["eSTUB", "1e STUB", "s,.*,STUB,e"],
    "make gmake bmake": ["$(shell STUB)", "x!=STUB", "x:=${shell STUB}", "all:; STUB"],
    "tclsh wish expect": ["exec STUB"],
    "ed red ex vi vim view nvim": ["!STUB", ":!STUB", "!STUB\nq!"],
    "gdb lldb": ["shell STUB", "!STUB"],
    "sqlite3": [".sh STUB", ".sy STUB", ".system STUB"],
    "emacs guile": ['(shell-command "STUB")', '(system "STUB")'],
}
INPUTS = ["-", "/dev/stdin", "//dev/stdin", "/dev/./fd/0", "/proc/thread-self/fd/0", "../../../../../../dev/stdin"]
VALUES = ["1", "f", "x=y", ".", "-", "a.b", "exec", "interactive", "timeit", "code", "v", "-n", "-e", "M"]
# Seconds for all lines of an interpreter.
SECONDS = float(task["seconds"])


def line(name, codes, some, dice):
    """A line that may run the stub, with its number."""
    number = next(numbers)
    code = dice.choice(codes).replace("STUB", f"{stub} {number}")
    words, fed = [], dice.random() < 0.5
    for _ in range(dice.choice([0, 1, 1, 2, 2, 3])):
        option, value = dice.choice(some), dice.choice([*VALUES, *INPUTS, code, code])
        long = option.startswith("--")
        if long and dice.random() < 0.3:
            option = option[:dice.randrange(3, len(option) + 1)]
        if not long and dice.random() < 0.3:
            option += dice.choice(string.ascii_letters)
        attached = option + "=" + value if long else option + value
        words += dice.choice([[option], [option, value], [option, value], [attached]])
    if dice.random() < 0.8:
        words.insert(dice.randrange(len(words) + 1), dice.choice([*INPUTS, "f"]) if fed else code)
    if dice.random() < 0.7:
        words.insert(dice.randrange(len(words) + 1), dice.choice(["f", "f", "f", "x", "--", ""]))
    text = shlex.join([name, *words])
    return (f"{text} <<< {shlex.quote(code)}" if fed else text), number


def tried(name):
    """The lines of an interpreter in which the stub ran."""
    codes = next(codes for names, codes in LANGUAGES.items() if name in names.split())
    directory = os.path.join(folder, "..", f"with {name}")
    os.makedirs(directory, exist_ok=True)
    letters = ["-" + letter for letter in string.ascii_letters]
    long = [option for option in options(name) if len(option) > 2]
    some = letters + long * (1 + len(letters) // (len(long) + 1))
    # Those with which a program has run are tried more often.
    dice, found, until = random.Random(name), [], time.monotonic() + SECONDS
    while time.monotonic() < until:
        with open(os.path.join(directory, "f"), "w") as file:
            file.write("# x\n")
        text, number = line(name, codes, some, dice)
        if ran(text, number, directory):
            found.append(text)
            some += [word for word in text.split() if word.startswith("-") and word.lstrip("-").isalpha()][:2]
    return found, []


# Not what a version manager puts in place of it: that is slow.
os.environ["PATH"] = os.path.dirname(os.path.realpath(sys.executable)) + ":" + os.environ["PATH"]
names = [name for names in LANGUAGES for name in names.split()]
here = [name for name in names if shutil.which(name)]
tell(names, here, tried)
