"""Steps that write, run and repair Python and bash programs."""

from values import RESERVED
from world import Call, Step, failed, run_python, sh, task

def program(w):
    """A small Python program: (what it does, alternatives of wording; its code)."""
    rng, v = w.rng, w.v
    n, m = rng.randint(2, 30), rng.randint(2, 12)
    text, name = v.sentence(1, 5), v.name()
    numbers = [v.number(0, 99) for _ in range(rng.randint(3, 6))]
    words = [v.word() for _ in range(rng.randint(3, 5))]
    word = v.word()
    shown = ", ".join(map(str, numbers))
    q = w.q(text)
    quoted = repr(text)
    table = [
        (6, ["prints {q}", "outputs [the text |]{q}", "writes {q} to the screen", "displays [the message |]{q}", "prints the [text|message|line|words] {q}"], f"print({quoted})"),
        (2, ["prints [the |]numbers [from |]1 to {n}[|, one per line]", "counts from 1 to {n}", "outputs the integers 1 through {n}", "loops from 1 to {n} and prints each number", "prints every number from 1 up to {n}"], f"for i in range(1, {n} + 1):\n    print(i)"),
        (2, ["prints the sum of [the |all |]numbers [from |]1 to {n}", "[adds up|sums] the integers [from |]1 to {n} and prints the [result|sum]", "computes 1 + 2 + ... + {n} and prints it", "outputs the sum of the first {n} [positive |]integers", "calculates the sum from 1 to {n} and prints it"], f"print(sum(range(1, {n} + 1)))"),
        (2, ["prints the squares of [the numbers |]1 to {n}", "outputs the square of each number from 1 to {n}", "lists the first {n} square numbers", "prints i*i for i from 1 to {n}", "computes and prints the squares from 1 to {n}"], f"for i in range(1, {n} + 1):\n    print(i * i)"),
        (2, ["prints the factorial of {m}", "computes {m} factorial and prints it", "calculates {m}! and prints [it|the result]", "outputs the factorial of {m}", "[works out|finds] the factorial of {m} and prints it"], f"import math\nprint(math.factorial({m}))"),
        (2, ["prints the first {m} [Fibonacci numbers|numbers of the Fibonacci sequence]", "outputs {m} Fibonacci numbers[, one per line|]", "lists the first {m} terms of the Fibonacci sequence", "computes the first {m} Fibonacci numbers and prints them", "generates {m} Fibonacci numbers and prints each"], f"a, b = 0, 1\nfor _ in range({m}):\n    print(a)\n    a, b = b, a + b"),
        (2, ["prints [all |the ]primes [up to|below] {p}", "prints [all |the ]prime numbers [up to|below|less than] {p}", "lists the primes smaller than {p}", "finds [all|the] prime numbers below {p} and prints them", "outputs every prime below {p}"], f"for n in range(2, {n * 3}):\n    if all(n % d for d in range(2, n)):\n        print(n)"),
        (1, ["prints the even numbers from 2 to {e}", "outputs all even numbers up to {e}", "lists the even numbers [from|between] 2 and {e}".replace("[from|between]", "between"), "prints every even number from 2 through {e}", "counts to {e} in steps of two"], f"for i in range(2, {2 * m} + 1, 2):\n    print(i)"),
        (1, ["prints the multiplication table of {m}", "outputs the {m} times table[| up to 10]", "prints {m} times 1 to 10", "lists the multiples of {m} from 1 to 10 times", "shows the times table for {m}"], f"for i in range(1, 11):\n    print({m}, 'x', i, '=', {m} * i)"),
        (1, ["prints the word {w} reversed", "reverses [the string |]{w} and prints it", "prints {w} backwards", "outputs the reverse of [the word |]{w}", "prints the reversed string of {w}"], f"print({word!r}[::-1])"),
        (1, ["prints {w} [in upper case|in capital letters|in uppercase]", "converts {w} to uppercase and prints it", "outputs [the word |]{w} in capitals", "uppercases {w} and prints the result", "prints the upper-case form of {w}"], f"print({word!r}.upper())"),
        (1, ["prints the length of [the word |the string |]{w}", "counts the letters of {w} and prints the number", "outputs how many characters {w} has", "prints how long the word {w} is", "computes the length of {w} and prints it"], f"print(len({word!r}))"),
        (1, ["prints the [largest|biggest] of [the numbers |]{s}", "finds the maximum of {s} and prints it", "outputs the largest number of {s}", "prints the maximum of the list {s}", "determines the biggest of {s} and prints it"], f"print(max({numbers}))"),
        (1, ["prints the sum of {s}", "adds [the numbers |]{s} and prints the [sum|result]", "outputs the total of {s}", "computes the sum of the list {s} and prints it", "sums {s} and prints the result"], f"print(sum({numbers}))"),
        (1, ["prints the [average|mean] of {s}", "computes the [average|mean] of [the numbers |]{s} and prints it", "outputs the mean of {s}", "calculates the average of {s} and prints the result", "prints the mean value of the list {s}"], f"numbers = {numbers}\nprint(sum(numbers) / len(numbers))"),
        (1, ["sorts [the numbers |the list |]{s} and prints [them|the result]", "prints {s} in [sorted|ascending] order", "outputs the sorted list of {s}", "prints the numbers {s} sorted", "sorts the list {s} and prints it"], f"print(sorted({numbers}))"),
        (1, ["sorts the words {l} [alphabetically |]and prints [them|the result]", "prints the words {l} in alphabetical order", "outputs {l} sorted, one per line", "prints {l} sorted alphabetically", "sorts {l} and prints one word a line"], f"for word in sorted({words}):\n    print(word)"),
        (1, ["prints [each of |]the words {l}[, one per line| on separate lines|]", "loops over {l} and prints each", "outputs {l}, one a line", "prints every item of the list {l}", "goes through the list {l} and prints each item"], f"for word in {words}:\n    print(word)"),
        (1, ["prints {q} {m} times", "repeats [the text |]{q} {m} times", "outputs {q} {m} times, once per line", "prints the line {q} {m} times", "says {q} {m} times"], f"for _ in range({m}):\n    print({quoted})"),
        (1, ["plays FizzBuzz [from 1 to|up to] {n}", "prints FizzBuzz for [the numbers |]1 to {n}", "does FizzBuzz up to {n}", "outputs the FizzBuzz sequence [to|up to] {n}", "prints the FizzBuzz numbers 1 to {n}"], f"for i in range(1, {n} + 1):\n    print('FizzBuzz' if i % 15 == 0 else 'Fizz' if i % 3 == 0 else 'Buzz' if i % 5 == 0 else i)"),
        (1, ["prints {a} to the power of {m}", "computes {a} to the power {m} and prints it", "outputs {a} raised to {m}", "calculates {a}**{m} and prints the result", "prints the value of {a} to the {m}th power"], f"print({n} ** {m})"),
        (1, ["prints {a} times {m}", "multiplies {a} by {m} and prints the [result|product]", "outputs the product of {a} and {m}", "calculates {a} * {m} and prints it", "prints the result of {a} multiplied by {m}"], f"print({n} * {m})"),
        (1, ["prints the sum of {a} and {m}", "adds {a} and {m} and prints the [result|sum]", "outputs {a} + {m}", "calculates {a} plus {m} and prints it", "prints the result of {a} plus {m}"], f"print({n} + {m})"),
        (1, ["defines a function greet(name) that returns Hello with the name, and prints greet({N})", "has a function greet that takes a name, and greets {N}", "greets {N} with a function greet", "defines greet(name) and calls it for {N}", "uses a greet function to say hello to {N}"], f"def greet(name):\n    return f'Hello, {{name}}!'\n\n\nprint(greet({name!r}))"),
    ]
    weights = [row[0] for row in table]
    _, phrases, code = rng.choices(table, weights)[0]
    words_of = w.rng.choice([word, w.q(word)])
    slots = dict(n=n, m=m, e=2 * m, a=n, p=n * 3, q=q, w=words_of, s=rng.choice([shown, w.listing(numbers), str(numbers)]), l=w.listing(words), N=name)
    return w.say(phrases, **slots), code


@task(9)
def python_program(w):
    what, code = program(w)
    output, kind = run_python(code), w.rng.random()
    name, out = w.target("py"), w.target("txt")
    script = "[a|the] [Python |python |][script|program|file] [called |named |]{p}"
    if kind < 0.3:
        clause = w.say([
            "[write|create] " + script + " that {x}",
            "create {p}, a [Python|python] [script|program] that {x}",
            "make " + script + " which {x}",
            "I need " + script + " that {x}",
            "[write|make] a python program that {x} and save it as {p}",
            "write a Python script {p} that {x}",
        ], p=w.p(name), x=what)
        calls, closing = [w.write(name, code)], f"I wrote {name}."
    elif kind < 0.65:
        clause = w.say([
            "[write|create] " + script + " that {x}[, and run it|, then run it| and run it]",
            "create {p}, a [Python|python] script that {x}, and [execute|run] it",
            "make " + script + " which {x}. Run it",
            "[write|create] and run " + script + " that {x}",
            "[write|make] a python program {p} that {x}; then execute it",
        ], p=w.p(name), x=what)
        calls = [w.write(name, code), w.shell(f"python3 {name}", output)]
        last = output.rstrip("\n").split("\n")
        closing = f"The script prints {last[0]}." if len(last) == 1 else f"The script prints {len(last)} lines."
    else:
        clause = w.say([
            "[write|create] " + script + " that {x}, run it and [save|write] [its|the] output to {o}",
            "create {p}, a [Python|python] script that {x}, and run it with the output [redirected |]to {o}",
            "make " + script + " which {x}. Run it and [put|store] the output in {o}",
            "[write|create] " + script + " that {x}. [Save|Write] what it prints [to|in] {o}",
            "[write|make] a python program {p} that {x}, execute it, output into {o}",
        ], p=w.p(name), x=what, o=w.d(out))
        calls, closing = [w.write(name, code), w.shell(f"python3 {name} > {out}")], f"The output is in {out}."
        w.made(out, output.rstrip("\n"))
        return Step(clause, calls, closing)
    w.made(name, code)
    return Step(clause, calls, closing)


@task(4)
def file_program(w):
    """A Python program that reads a file, or takes an argument."""
    rng, source, name, out = w.rng, w.source(), w.target("py"), w.v.path("txt", nested=0)
    result = w.v.number(1)
    phrases, code = rng.choice([
        (["reads {a} and prints the number of lines", "counts the lines of {a}", "prints how many lines {a} has", "opens {a} and prints its line count", "prints the line count of {a}"], f"print(len(open({source!r}).readlines()))"),
        (["reads {a} and prints the number of words", "counts the words of {a}", "prints how many words {a} has", "opens {a} and prints its word count", "prints the word count of {a}"], f"print(len(open({source!r}).read().split()))"),
        (["reads [the |]numbers from {a} and prints their sum", "sums the numbers in {a}", "adds up the numbers of {a} and prints the total", "prints the sum of the numbers in {a}", "prints the total of all numbers in {a}"], f"print(sum(int(line) for line in open({source!r})))"),
        (["reads [the |]numbers from {a} and prints the [largest|maximum]", "prints the [largest|biggest] number in {a}", "finds the maximum of the numbers in {a} and prints it", "prints the maximum of {a}", "outputs the highest number of {a}"], f"print(max(int(line) for line in open({source!r})))"),
        (["reads [the |]numbers from {a} and prints the [average|mean]", "prints the [average|mean] of the numbers in {a}", "averages the numbers of {a}", "computes the mean of {a} and prints it", "outputs the average of the numbers from {a}"], f"numbers = [int(line) for line in open({source!r})]\nprint(sum(numbers) / len(numbers))"),
        (["prints [each|every] line of {a} in upper case", "reads {a} and prints it in uppercase", "prints the text of {a} in capitals", "uppercases {a} and prints it", "outputs {a} in upper case"], f"print(open({source!r}).read().upper(), end='')"),
        (["prints the lines of {a} [sorted|in alphabetical order]", "sorts the lines of {a} and prints them", "reads {a} and prints its lines sorted", "outputs the sorted lines of {a}", "prints {a} sorted"], f"for line in sorted(open({source!r})):\n    print(line, end='')"),
        (["prints the lines of {a} in reverse order", "reads {a} and prints its lines backwards", "reverses the lines of {a} and prints them", "outputs {a} from last to first line", "prints {a} from the last line to the first"], f"for line in reversed(open({source!r}).readlines()):\n    print(line, end='')"),
    ])
    what = w.say(phrases, a=w.p(source))
    clause = w.say(["[write|create] [a|the] [Python |python ]script {p} that {x}, run it and [save|write] [its|the] output to {o}", "create {p}, a Python script that {x}, and run it with the output [redirected |]to {o}", "make a Python program {p} which {x}. Run it and [put|store] the output in {o}", "[write|create] a [Python |]script [called |named |]{p} that {x}. [Save|Write] what it prints [to|in] {o}", "write a python program {p} that {x}, execute it, output into {o}", "[write|create] [a|the] [Python |python ]script [called |named |]{p} that {x}"], p=w.p(name), x=what, o=w.d(out))
    calls = [w.write(name, code)]
    if w.d(out) in clause:
        calls.append(w.shell(f"python3 {name} > {out}"))
        w.made(out, str(result))
        return Step(clause, calls, f"The output is in {out}.")
    w.made(name, code)
    return Step(clause, calls, f"I wrote {name}.")


@task(2)
def argument_program(w):
    """A Python program with command-line arguments."""
    name = w.target("py")
    phrases, code = w.rng.choice([
        (["takes a name as [a |]command[-| ]line argument and prints Hello with [it|the name]", "greets the name given as [its |]first argument", "prints a greeting for the name passed on the command line", "says hello to its first command-line argument", "prints Hello and the name in its first argument"], "print(f'Hello, {sys.argv[1]}!')"),
        (["adds two numbers given as [command-line |]arguments and prints the sum", "takes two numbers on the command line and prints their sum", "prints the sum of its two arguments", "sums its two command-line arguments", "prints the sum of the two integers passed to it"], "print(int(sys.argv[1]) + int(sys.argv[2]))"),
        (["prints its [first |][command-line |]argument reversed", "takes a word as argument and prints it backwards", "reverses the word given on the command line", "prints the reverse of its first argument", "prints the argument it gets, reversed"], "print(sys.argv[1][::-1])"),
        (["prints its [first |][command-line |]argument in upper case", "takes a text as argument and prints it in capitals", "uppercases the text given on the command line", "prints the uppercase form of its argument", "prints the argument it gets in upper case"], "print(sys.argv[1].upper())"),
        (["prints the number of lines of the file given as [an |its |]argument", "takes a file name and prints how many lines the file has", "counts the lines of the file named on the command line", "prints the line count of the file passed as argument", "counts lines in the file that it gets as argument"], "print(len(open(sys.argv[1]).readlines()))"),
        (["prints the square of the number given as [an |its |]argument", "takes a number and prints its square", "squares the number passed on the command line", "prints its argument squared", "prints the square of its command-line argument"], "print(int(sys.argv[1]) ** 2)"),
    ])
    clause = w.say(["[write|create] a [Python |python ]script {p} that {x}", "create {p}, a Python [program|script] that {x}", "make a Python program {p} which {x}", "I need a Python script [called |named |]{p} that {x}", "write a python program that {x} and save it as {p}", "[write|create] a Python [script|program] [called |named ]{p} that {x}"], p=w.p(name), x=w.say(phrases))
    code = "import sys\n\n" + code
    step = Step(clause, [w.write(name, code)], f"I wrote {name}.")
    w.made(name, code)
    return step


@task(4)
def python_compute(w):
    """A computation with the python tool, without a script."""
    rng, out = w.rng, w.v.path("txt", nested=0)
    n, m = rng.randint(2, 40), rng.randint(2, 12)
    numbers = [w.v.number(0, 99) for _ in range(rng.randint(3, 6))]
    text = w.v.word()
    expr, phrases = rng.choice([
        (f"sum(range(1, {n} + 1))", ["the sum of [the numbers|all numbers|the integers] from 1 to {n}", "the sum of the first {n} [positive |]integers", "1 + 2 + ... + {n}", "the sum 1 to {n}", "the total of all integers from 1 through {n}"]),
        (f"sum(i * i for i in range(1, {n} + 1))", ["the sum of the squares [of|from] 1 to {n}", "the sum of the first {n} squares", "the sum of i*i for i from 1 to {n}", "the total of the squares 1 to {n}", "the sum of the square numbers from 1 to {n}"]),
        (f"math.factorial({m})", ["the factorial of {m}", "{m} factorial", "{m}!", "the value of {m}!", "the factorial of the number {m}"]),
        (f"{n} ** {m}", ["{n} to the power of {m}", "{n} raised to [the power |]{m}", "{n}**{m}", "the {m}th power of {n}", "the value of {n} to the {m}"]),
        (f"{n} * {m}", ["{n} times {m}", "the product of {n} and {m}", "{n} * {m}", "{n} multiplied by {m}", "the result of {n} times {m}"]),
        (f"sum({numbers})", ["the sum of {l}", "the total of [the numbers |]{l}", "{l} added together", "the sum of the list {l}", "the sum of the numbers {l}"]),
        (f"max({numbers})", ["the [largest|maximum] of {l}", "the biggest of [the numbers |]{l}", "the maximum of the list {l}", "the highest number of {l}", "the largest of the numbers {l}"]),
        (f"{text!r}[::-1]", ["the word {w} reversed", "{w} backwards", "the reverse of {w}", "the string {w} in reverse", "the reversed word {w}"]),
        (f"len([n for n in range(2, {n}) if all(n % d for d in range(2, n))])", ["the number of primes below {n}", "how many primes there are below {n}", "the count of prime numbers less than {n}", "how many prime numbers are smaller than {n}", "the number of prime numbers below {n}"]),
        (f"len({text!r})", ["the length of the [word|string] {w}", "how many letters {w} has", "the number of characters in {w}", "the length of {w}", "the letter count of {w}"]),
    ])
    what = w.say(phrases, n=n, m=m, l=w.listing(numbers), w=w.q(text) if rng.random() < 0.5 else text)
    head = "import math\n" if "math" in expr else ""
    if rng.random() < 0.65:
        clause = w.say([
            "[compute|calculate] {x} [with Python |in Python |using Python |]and [write|save] [it|the result] to {o}",
            "[write|save] {x} to {o}",
            "use Python to [compute|calculate] {x} and [write|put] it [in|into] {o}",
            "[find|work out] {x}, [result|answer] in {o}",
            "calculate {x} and store the [result|answer] in [a file called |the file |]{o}",
        ], x=what, o=w.d(out))
        call, closing = w.python(f"{head}print({expr}, file=open({out!r}, 'w'))", ""), f"The result is in {out}."
        w.made(out)
    else:
        output = run_python(f"{head}print({expr})").strip()
        clause = w.say(["[compute|calculate] {x}", "what is {x}?", "tell me {x}", "use Python to [compute|calculate] {x}", "work out {x}"], x=what)
        call, closing = w.python(f"{head}print({expr})", output), f"The result is {output}."
    return Step(clause, [call], closing)


@task(5)
def bash_script(w):
    rng, v = w.rng, w.v
    text, n, name, folder, stem = v.sentence(1, 5), rng.randint(2, 20), w.target("sh"), v.folder(1), v.word()
    phrases, body, output = rng.choice([
        (["prints {q}", "echoes {q}", "outputs [the text |]{q}", "displays {q}", "prints the [text|message|line] {q}"], f"echo {sh(text)}", text),
        (["prints {q}", "echoes {q}", "outputs [the text |]{q}", "says {q}", "prints the [text|message] {q}"], f"echo {sh(text)}", text),
        (["prints [the |]numbers [from |]1 to {n}", "counts from 1 to {n}", "outputs 1 through {n}, one per line", "loops from 1 to {n} and echoes each number", "echoes every number from 1 to {n}"], f"for i in $(seq 1 {n}); do\n  echo $i\ndone", "\n".join(map(str, range(1, n + 1)))),
        (["takes a name as [its first |]argument and prints Hello with it", "greets its first argument", "says hello to the name given as argument", "prints Hello followed by the first argument", "prints a greeting for the name passed to it"], 'echo "Hello, $1!"', "Hello, !"),
        (["prints the number of files in the current directory", "counts the files in the directory and prints the number", "outputs how many files are here", "prints how many files the current directory holds", "counts the files here"], "ls | wc -l", str(rng.randint(1, 12))),
        (["creates a [directory|folder] {f}", "makes the [directory|folder] {f}", "creates the folder {f} if it is missing", "sets up the directory {f}", "makes sure the folder {f} exists"], f"mkdir -p {folder}", ""),
        (["creates {n} [empty |]files {s}1.txt to {s}{n}.txt", "makes the files {s}1.txt through {s}{n}.txt", "touches {s}1.txt up to {s}{n}.txt", "creates the empty files {s}1.txt to {s}{n}.txt", "generates files {s}1.txt to {s}{n}.txt"], f"touch {stem}{{1..{n}}}.txt", ""),
        (["prints the sum of its two arguments", "adds its two arguments and prints the [sum|result]", "takes two numbers and prints their sum", "outputs the sum of the two numbers passed to it", "adds two numbers given as arguments"], "echo $(($1 + $2))", "0"),
        (["prints the current date", "outputs today's date", "prints today's date", "shows the date", "echoes the current date"], "date +%Y-%m-%d", "2026-03-14"),
        (["backs up all txt files into {f}", "copies every .txt file to the folder {f}", "copies all txt files to {f}", "makes copies of the txt files in {f}", "copies the txt files into a folder {f}"], f"mkdir -p {folder}\ncp *.txt {folder}/", ""),
    ])
    what = w.say(phrases, q=w.q(text), n=n, f=folder, s=stem)
    code, kind, out = f"#!/bin/bash\n{body}", rng.random(), w.target("txt")
    script = "[a|the] [bash |shell |][script|file] [called |named |]{p}".replace("[script|file]", "script")
    run = name if "/" in name else f"./{name}"
    if kind < 0.35:
        clause = w.say(["[write|create] " + script + " that {x}", "create {p}, a bash script that {x}", "make " + script + " which {x}", "I need " + script + " that {x}", "write an executable bash script {p} that {x}", "[create|write] an executable [shell |bash |]script {p} that {x}"], p=w.p(name), x=what)
        calls, closing = [w.write(name, code), w.shell(f"chmod +x {name}")], f"I wrote the script {name}."
    elif kind < 0.5:
        clause = w.say(["[write|create] " + script + " that {x} and make it executable", "create {p}, [an executable|a] bash script that {x}; it must be executable", "make " + script + " which {x}, and set the executable bit", "create " + script + " that {x}, then make it executable", "write a bash script {p} that {x} and chmod +x it"], p=w.p(name), x=what)
        calls, closing = [w.write(name, code), w.shell(f"chmod +x {name}")], f"I wrote the script {name}."
    elif kind < 0.75:
        clause = w.say(["[write|create] " + script + " that {x}[, make it executable and run it| and run it]", "create {p}, a bash script that {x}, and [execute|run] it", "make " + script + " which {x}. Run it", "[write|create] and run " + script + " that {x}", "write a bash script {p} that {x}; then execute it"], p=w.p(name), x=what)
        calls, closing = [w.write(name, code), w.shell(f"chmod +x {name} && {run}", output)], f"I wrote and ran {name}."
    else:
        clause = w.say(["[write|create] " + script + " that {x}, run it and [save|write] [its|the] output to {o}", "create {p}, a bash script that {x}, and run it with the output [redirected |]to {o}", "make " + script + " which {x}. Run it and [put|store] the output in {o}", "[write|create] " + script + " that {x}. [Save|Write] what it prints [to|in] {o}", "write a shell script {p} that {x}, execute it, output into {o}"], p=w.p(name), x=what, o=w.d(out))
        calls, closing = [w.write(name, code), w.shell(f"chmod +x {name} && {run} > {out}")], f"The output is in {out}."
        w.made(out)
        return Step(clause, calls, closing)
    w.made(name, code)
    return Step(clause, calls, closing)


@task(2)
def run_script(w):
    rng, python = w.rng, w.rng.random() < 0.6
    name, out = w.source("py" if python else "sh"), w.target("txt")
    command = f"python3 {name}" if python else f"bash {name}"
    if rng.random() < 0.6:
        clause = w.say(["run {a} and [save|write|store] [its|the] output [to|in] {o}", "execute {a}, output [to|into] {o}", "[save|write] what {a} prints to {o}", "run the script {a} with its output in {o}", "execute [the script |]{a} and [put|redirect] its output [in|into|to] {o}".replace("put|redirect", "put")], a=w.p(name), o=w.d(out))
        call, closing = w.shell(f"{command} > {out}"), f"The output is in {out}."
        w.made(out)
    else:
        output = w.v.sentence(1, 4)
        clause = w.say(["run [the script |]{a}", "execute [the script |]{a}", "run {a} and tell me what it prints", "what does {a} print?", "start the script {a}"], a=w.p(name))
        call, closing = w.shell(command, output), f"It prints: {output}"
    return Step(clause, [call], closing)


def bugs(w):
    """A program with one mistake: (code, error of the run or None, find, replace, what is wrong in words)."""
    v, rng = w.v, w.rng
    f, a, b, x = v.identifier(), v.word(), v.word(), v.identifier()
    if a in RESERVED:  # the name of a parameter
        a += "_one"
    if a == b:
        b += "2"
    n, m = rng.randint(2, 40), rng.randint(2, 40)
    text, nums = v.phrase(1, 4), [v.number(0, 50) for _ in range(rng.randint(3, 5))]
    syntax = "SyntaxError: "
    right, wrong, does = rng.choice([("a + b", "a - b", "add"), ("a * b", "a + b", "multiply"), ("a - b", "a + b", "subtract"), ("a / b", "a * b", "divide"), ("max(a, b)", "min(a, b)", "return the larger of"), ("min(a, b)", "max(a, b)", "return the smaller of")])
    return rng.choice([
        (f"def {f}():\n    return {text!r}\n\n\nprint({f}()", syntax + "'(' was never closed", f"print({f}()", f"print({f}())", None),
        (f"print({text!r}", syntax + "'(' was never closed", f"print({text!r}", f"print({text!r})", None),
        (f"for i in range({n})\n    print(i)", syntax + "expected ':'", f"range({n})", f"range({n}):", None),
        (f"def {f}({a})\n    return {a} * 2\n\n\nprint({f}({n}))", syntax + "expected ':'", f"def {f}({a})", f"def {f}({a}):", None),
        (f"if {n} > {m}\n    print({text!r})", syntax + "expected ':'", f"if {n} > {m}", f"if {n} > {m}:", None),
        (f"{x} = {n}\nprint({x}s)", f"NameError: name '{x}s' is not defined", f"print({x}s)", f"print({x})", None),
        (f"{x} = {text!r}\nprnt({x})", "NameError: name 'prnt' is not defined", "prnt", "print", None),
        (f"{x} = {n}\nprint('{a}: ' + {x})", 'TypeError: can only concatenate str (not "int") to str', f"+ {x}", f"+ str({x})", None),
        (f"{x} = '{n}'\nprint({x} + {m})", 'TypeError: can only concatenate str (not "int") to str', f"'{n}'", f"{n}", None),
        (f"{x} = {nums}\nprint({x}[{len(nums)}])", "IndexError: list index out of range", f"[{len(nums)}]", f"[{len(nums) - 1}]", None),
        (f"print({text!r}.uper())", "AttributeError: 'str' object has no attribute 'uper'", "uper()", "upper()", None),
        (f"{x} = {nums}\nprint(len({x}) / 0)", "ZeroDivisionError: division by zero", "/ 0", f"/ {len(nums)}", None),
        (f"import maths\n\nprint(maths.sqrt({n}))", "ModuleNotFoundError: No module named 'maths'", "import maths", "import math as maths", None),
        (f"{x} = {{'{a}': {n}}}\nprint({x}['{b}'])", f"KeyError: '{b}'", f"['{b}']", f"['{a}']", None),
        (f"def {f}(a, b):\n    return {wrong}\n\n\nprint({f}({n}, {m}))", None, wrong, right, f"{does} its two arguments"),
        (f"def {f}(a, b):\n    return {wrong}\n\n\nprint({f}({n}, {m}))", None, wrong, right, f"{does} its arguments"),
        (f"{x} = {nums}\nprint(min({x}))", None, "min(", "max(", "print the [largest|maximum] number"),
        (f"for i in range(1, {n}):\n    print(i)", None, f"range(1, {n})", f"range(1, {n} + 1)", f"count up to and including {n}"),
        (f"{x} = {nums}\nfor item in {x}:\n    print({x})", None, f"print({x})", "print(item)", "print each item"),
        (f"def is_even(n):\n    return n % 2 == 1\n\n\nprint(is_even({n}))", None, "n % 2 == 1", "n % 2 == 0", "return True for even numbers"),
    ])


@task(6)
def debug(w):
    code, error, find, replace, should = bugs(w)
    rng, name = w.rng, w.v.path("py", nested=0.15)
    fixed = code.replace(find, replace)
    output = run_python(fixed)
    if error:
        clause = w.say([
            "{a} [fails|crashes|does not run|has an error]. [Fix it|Repair it|Find and fix the bug|Correct it]",
            "fix the [bug|error|mistake] in {a}",
            "the [script|program] {a} [is broken|raises an error|gives an error][, fix it|. Please fix it]",
            "[debug|repair] {a} so that it runs [without errors|]",
            "there is a bug in {a}: [fix it|correct it]",
            "{a} stops with an error; correct it so that it [runs|works]",
        ], a=w.p(name))
    else:
        should = w.say([should])
        clause = w.say([
            "{a} should {s}, but [it does not|it doesn't|the result is wrong]. Fix it",
            "fix {a}: it should {s}",
            "the [script|program] {a} is wrong, it [should|must] {s}. [Fix|Correct] it",
            "[correct|repair] {a} so that it [will |does ]{s}".replace("[will |does ]", "will "),
            "there is a bug in {a}, it should {s}; please correct it",
        ], a=w.p(name), s=should)
    read = w.read(name, code)
    edit = w.edit(name, find, replace) if code.count(find) == 1 else w.write(name, fixed)
    calls = [read, edit]
    if "shell" in w.tools and rng.random() < 0.7:
        if error and rng.random() < 0.25:
            calls.insert(0, Call("shell", {"command": f"python3 {name}"}, failed(f'  File "{name}", line {code[: code.find(find)].count(chr(10)) + 1}\n{error}')))
        calls.append(w.shell(f"python3 {name}", output))
    w.made(name, fixed)
    return Step(clause, calls, f"I fixed {name}.")


@task(3)
def code_function(w):
    """A module with a function, to be imported by others."""
    rng, f = w.rng, w.v.identifier()
    name = w.target("py")
    arguments, body, phrases = rng.choice([
        ("a, b", "return a + b", ["returns the sum of its [two |]arguments", "adds two numbers", "returns a + b", "takes two numbers and returns their sum", "returns the sum of two numbers"]),
        ("a, b", "return a * b", ["returns the product of its [two |]arguments", "multiplies two numbers", "returns a * b", "takes two numbers and returns their product", "returns the product of two numbers"]),
        ("n", "return n % 2 == 0", ["returns True for even numbers", "tells whether a number is even", "checks if n is even", "returns whether its argument is even", "returns True if the number is even"]),
        ("text", "return text[::-1]", ["reverses a string", "returns its argument reversed", "returns the reversed text", "takes a string and returns it backwards", "returns the reverse of a string"]),
        ("text", "return text == text[::-1]", ["checks whether a string is a palindrome", "tells if its argument is a palindrome", "returns True for palindromes", "returns whether a word is a palindrome", "returns True if the text is a palindrome"]),
        ("text", "return sum(c in 'aeiou' for c in text.lower())", ["counts the vowels [of|in] a string", "returns the number of vowels in a text", "takes a string and returns how many vowels it has", "counts vowels", "returns how many vowels a string contains"]),
        ("n", "return 1 if n < 2 else n * {f}(n - 1)", ["returns the factorial of n", "computes factorials", "calculates the factorial of its argument", "takes n and returns n factorial", "returns the factorial of a number"]),
        ("n", "return n * n", ["returns the square of a number", "squares its argument", "returns n squared", "takes a number and returns its square", "returns the square of its argument"]),
        ("numbers", "return sum(numbers) / len(numbers)", ["returns the [average|mean] of a list", "averages a list of numbers", "computes the mean of a list of numbers", "takes a list and returns its average", "returns the mean of the numbers in a list"]),
        ("numbers", "return max(numbers)", ["returns the largest [number|element] of a list", "finds the maximum of a list", "takes a list and returns its maximum", "returns the biggest number in a list", "returns the maximum of a list of numbers"]),
        ("n", "return n > 1 and all(n % d for d in range(2, n))", ["checks whether a number is prime", "tells if n is prime", "returns True for prime numbers", "returns whether its argument is prime", "returns True if a number is prime"]),
        ("c", "return c * 9 / 5 + 32", ["converts Celsius to Fahrenheit", "takes degrees Celsius and returns Fahrenheit", "turns Celsius into Fahrenheit", "computes Fahrenheit from Celsius", "converts a temperature from Celsius to Fahrenheit"]),
    ])
    what = w.say(phrases)
    shown = f"{f}({arguments})" if rng.random() < 0.6 else f
    clause = w.say([
        "[write|create] [a|the] [Python |]module {p} with a function {f} that {x}",
        "[create|make] {p} [with|containing] a [Python |]function {f} that {x}",
        "[write|define] a [Python |]function {f} that {x} in {p}",
        "in {p}, [write|define] a function {f} which {x}",
        "I need a function {f} in {p} that {x}",
        "implement a function [called |named |]{f} in {p}; it {x}",
    ], p=w.p(name), f=w.d(shown), x=what)
    code = f"def {f}({arguments}):\n    {body.replace('{f}', f)}"
    step = Step(clause, [w.write(name, code)], f"I wrote the function {f} to {name}.")
    w.made(name, code)
    return step
