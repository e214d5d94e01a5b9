# Tries every wrapper with every form of every option that its own help names.

OPERANDS = [[], ["1"], ["0"], ["/"], ["lock"], ["root"], ["x86_64"], ["a=b"]]
VALUES = ["1", "/"]
# Seconds for all lines of a wrapper.
WRAPPER = 12
# They wait for somebody, or have no command of their own.
LEFT_OUT = {"coproc", "!", "trap", "at", "batch"}


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
tell(names, here, tried)
