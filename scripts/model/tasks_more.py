"""Steps that the other files leave out: git in a folder, trees, lists given word by word, formulas, small repairs, queries in plain words."""

import json

from tasks_system import COMMIT
from world import Step, sh, task

FILE = "[|the |a ][|new ]file [|called |named ]{p}"
NUMBER = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


def spelled(w, n):
    return NUMBER[n] if n < len(NUMBER) and w.rng.random() < 0.6 else str(n)


def done(w, clause, command, closing, made=None):
    call = w.shell(command)
    if made:
        w.made(made)
    return Step(clause, [call], closing)


# git in a folder that the instruction names ----------------------------------------------------------------------------


@task(5)
def git_there(w):
    rng, d, kind = w.rng, w.v.folder(1), w.rng.random()
    where = w.say(["in [the |]git [repository|repo] {d}", "in the [repository|repo] {d}", "inside [the repository |]{d}", "in the git [repository|repo] in [the folder |the directory |]{d}", "[of|for] the git [repository|repo] {d}".replace("[of|for]", "for")], d=w.d(d))
    told = w.say(["there is a git [repository|repo] in [the folder |the directory |]{d}. ", "{d} is under git. ", "the [directory|folder] {d} [holds|contains] a git [repository|repo]. ", "you [have|find] a git [repository|repo] [called|named|in] {d}. ", "we keep a git [repository|repo] in {d}. "], d=w.d(d))
    branch = w.v.stem().lower().replace(".", "-")
    message = w.v.phrase(1, 5)
    path = w.v.path(nested=0.1)
    q, b, out = w.q(message), w.d(branch) if rng.random() < 0.5 else w.q(branch), w.v.path("txt", nested=0.1)
    rows = [
        (3, ["create [a|the] [|new ]branch [|called |named ]{b}", "make a branch {b}", "add a [|new ]branch [called|named] {b}", "start the branch {b} without switching to it", "set up a branch [called |named |]{b}"], f"git -C {d} branch {branch}", f"I created the branch {branch} in {d}."),
        (1.5, ["[switch|change] to [the |]branch {b}", "check out [the |]branch {b}", "make {b} the current branch", "go to [the |]branch {b}", "check out {b}"], f"git -C {d} checkout -q {branch}", f"{d} is on {branch}."),
        (1.5, ["create [and switch to |and check out ]a [|new ]branch {b}", "switch to a new branch [called |named |]{b}", "make a branch {b} and switch to it", "check out a new branch {b}", "start [and use |]a branch [called|named] {b} and switch to it"], f"git -C {d} checkout -q -b {branch}", f"{d} is on {branch}."),
        (3, ["commit [the file |the new file |]{p} with [the |]message {q}", "add {p} and commit it with [the |]message {q}", "commit {p} as {q}", "make a commit of {p}[;| with the] message {q}", "put {p} under version control, commit message {q}", "[stage|add] [the file |]{p} and commit [it |that ]with the message {q}"], f"cd {d} && git add {path} && {COMMIT}{sh(message)}", f"I committed {path}."),
        (2, ["commit [everything|all changes|all files] with [the |]message {q}", "add [everything|all files] and commit [them |it |]with [the |]message {q}", "make a commit of [everything|all changes], message {q}", "commit what has changed as {q}", "commit all [new and changed |]files, [with the |]message {q}"], f"cd {d} && git add -A && {COMMIT}{sh(message)}", f"I committed all as {message}."),
        (1.5, ["tag the [current|last|latest] commit [as |with |]{b}", "[add|create] a tag [called |named |]{b}", "set the tag {b}", "give HEAD the tag {b}", "create the tag {b} on the [current|last] commit"], f"git -C {d} tag {branch}", f"I tagged it {branch}."),
        (1, ["delete [the |]branch {b}", "remove [the |]branch {b}", "drop the branch {b}", "get rid of [the |]branch {b}", "delete the [old|finished] branch {b}"], f"git -C {d} branch -D {branch}", f"I deleted the branch {branch}."),
        (1.5, ["merge [the branch |]{b} into the current branch", "merge [the branch |]{b}", "bring the branch {b} into the current one", "do a merge of [the branch |]{b}", "merge in {b}"], f"git -C {d} -c user.name=alara -c user.email=alara@localhost merge -q --no-edit {branch}", f"I merged {branch}."),
        (1.5, ["discard the [uncommitted |]changes [in|to|of] {p}", "restore {p} to the last commit", "put {p} back to its committed state", "undo the changes in {p}", "reset {p} to what was committed"], f"git -C {d} checkout -q -- {path}", f"I restored {path}."),
    ]
    if kind < 0.6:
        _, phrases, command, closing = rng.choices(rows, [r[0] for r in rows])[0]
        what = w.say(phrases, b=b, q=q, p=w.d(path))
        clause = told + what[0].upper() + what[1:] + rng.choice([" there", ""]) if rng.random() < 0.5 else rng.choice([f"{what} {where}", f"{where}, {what}"])
        return done(w, clause, command, closing)
    command, phrases = rng.choice([
        ("branch --show-current", ["the [name of the |]current branch", "the name of the branch in use", "the checked-out branch's name", "which branch is [current|active]", "the branch [that is |]in use"]),
        ("rev-list --count HEAD", ["the number of commits", "how many commits there are", "the commit count", "the count of commits", "how many commits it has"]),
        ("log -1 --format=%s", ["the [message|subject] of the [last|latest|newest] commit", "the [last|latest] commit message", "the newest commit's message", "what the last commit message says", "the most recent commit's message"]),
        ("log -1 --format=%an", ["the author of the [last|latest|newest] commit", "who made the [last|latest] commit", "the last commit's author", "the name of the author of the last commit", "the latest author's name"]),
        ("rev-parse HEAD", ["the [full |]hash of the [last|latest] commit", "the [full |]hash of HEAD", "the latest commit's hash", "the commit id of HEAD", "the full hash of the newest commit"]),
        ("branch --format='%(refname:short)'", ["the names of all branches", "all branches", "the list of branches", "every branch[|, one per line]", "all branch names"]),
        ("tag", ["all tags", "the list of tags", "the names of the tags", "every tag[|, one per line]", "its tags"]),
        ("log --oneline", ["the log, one line per commit", "the one-line log", "the short log", "the commits, one line each", "the history in short form"]),
        ("ls-files", ["the tracked files", "the list of tracked files", "all files under version control", "which files git tracks", "the names of the tracked files"]),
    ])
    what = w.say(phrases)
    write = "[write|save|put|store]"
    if rng.random() < 0.35:
        clause = w.say([
            told.replace("{", "{{").replace("}", "}}") + write.replace("[w", "[W").replace("|s", "|S").replace("|p", "|P") + " {x} [to|into|in] {o}",
            told.replace("{", "{{").replace("}", "}}") + "Find out {x} and " + write + " it [to|in] {o}",
        ], x=what, o=w.d(out))
    else:
        clause = w.say([
            write + " {x} " + where.replace("{", "{{").replace("}", "}}") + " [to|into] [the file |]{o}",
            "find out {x} " + where.replace("{", "{{").replace("}", "}}") + " and " + write + " [it|the answer] [to|in] {o}",
            where.replace("{", "{{").replace("}", "}}") + ", look up {x}; " + write + " it [to|in] [the file |]{o}",
            "{o} should [hold|contain] {x} " + where.replace("{", "{{").replace("}", "}}"),
            "get {x} " + where.replace("{", "{{").replace("}", "}}") + ", [result|answer] in {o}",
        ], x=what, o=w.d(out))
    return done(w, clause, f"git -C {d} {command} > {out}", f"The result is in {out}.", out)


# Folders and trees -----------------------------------------------------------------------------------------------------


@task(4)
def trees(w):
    rng, a, b, kind = w.rng, w.v.folder(1), w.v.folder(1), w.rng.random()
    folder = "[|the folder |the directory |the whole folder |the whole directory |the tree ]"
    if a == b:
        b += "_2"
    if kind < 0.5:
        clause = w.say([
            "copy " + folder + "{a} [and all its contents |with all its contents |recursively |with everything in it |]to {b}",
            "duplicate " + folder + "{a} as {b}",
            "make a [full |complete |]copy of " + folder + "{a} [called|named] {b}",
            "back up " + folder + "{a} [to|as] {b}",
            "create {b} as a [full |]copy of the [folder|directory] {a}",
            "create a backup of the [folder|directory] {a}[, hidden files too,|] [in|under the name] {b}",
            "copy {a}, a [folder|directory], [recursively |]to {b}",
        ], a=w.d(a), b=w.d(b))
        return done(w, clause, f"cp -r {a} {b}", f"I copied {a} to {b}.")
    if kind < 0.8:
        clause = w.say([
            "rename [the folder |the directory ]{a} to {b}",
            "[the folder|the directory] {a} should be called {b}",
            "change the name of the [folder|directory] {a} to {b}",
            "give the [folder|directory] {a} the name {b}",
            "the [folder|directory] {a} [gets|needs] a new name: {b}",
            "move the [folder|directory] {a} to {b}",
        ], a=w.d(a), b=w.d(b))
        return done(w, clause, f"mv {a} {b}", f"I renamed {a} to {b}.")
    clause = w.say([
        "move the [folder|directory] {a} into [the folder |the directory |]{b}",
        "put the [folder|directory] {a} [into|inside] {b}",
        "move {a} with [everything in it|all its contents] into the [folder|directory] {b}",
        "the [folder|directory] {a} belongs inside {b}: move it there",
        "make {a} a subfolder of {b} by moving it",
    ], a=w.d(a), b=w.d(b))
    return done(w, clause, f"mkdir -p {b} && mv {a} {b}/", f"I moved {a} into {b}.")


@task(5)
def files_in_folder(w):
    """Files of one kind in a folder."""
    rng, d, kind = w.rng, w.v.folder(rng_depth(w)), w.rng.random()
    ext = rng.choice(["txt", "log", "csv", "md", "py", "json", "jpg", "bak", "sh", "tmp", "old", "swp", "html", "png", "pdf", "dat"])
    those = w.say(["[all |the |every |]files [with|of] [the extension|type] .{e}", "[all |the ].{e} files", "[all |the ]files [ending in|that end in|ending with] .{e}", "[all |the ]files [whose name ends|with names ending] in .{e}", "[everything|all files] matching *.{e}", "[every file|each file] that ends in .{e}"], e=ext)
    place = w.say(["[in|from] [the folder |the directory |]{d}", "that [lie|are] in [the folder |the directory |]{d}", "inside {d}", "of the [folder|directory] {d}", "in {d}"], d=w.d(d))
    if kind < 0.4:
        clause = w.say(["[delete|remove] {t} {i}[|, nothing else|, and nothing else|; keep the rest|, but keep all others]", "get rid of {t} {i}[| only]", "clean up [the folder |]{d}: [delete|remove] {t}", "{i}, [delete|remove] {t}", "erase {t} {i}[|, only these]"], t=those, i=place, d=w.d(d))
        return done(w, clause, f"rm -f {d}/*.{ext}", f"I deleted the {ext} files in {d}.")
    if kind < 0.6:
        b, move = w.v.folder(1), rng.random() < 0.5
        verb = "move" if move else "copy"
        clause = w.say([f"{verb} {{t}} {{i}} [to|into] [the folder |]{{b}}", f"{verb} {{t}} {{i}} to the [folder|directory] {{b}}", f"create a [folder|directory] {{b}} and {verb} {{t}} {{i}} [into it|there]", f"{{i}}, {verb} {{t}} to {{b}}", f"all {{e}} files {{i}} [should go|go] to {{b}}: {verb} them"], t=those, i=place, b=w.d(b), e=ext)
        return done(w, clause, f"mkdir -p {b} && {'mv' if move else 'cp'} {d}/*.{ext} {b}/", f"I did it with the {ext} files.")
    out = w.target("txt")
    if kind < 0.8:
        clause = w.say(["count {t} {i} and [write|save|put] the [number|count] [to|into] {o}", "[write|save] the number of .{e} files {i} to {o}", "how many .{e} files are [there |]in {d}? [Write|Put] the [number|answer] [to|into] {o}", "[write|put] [to|into] {o} how many .{e} files there are in [the folder |]{d}", "{o} should [hold|contain] the number of .{e} files {i}"], t=those, i=place, d=w.d(d), o=w.d(out), e=ext)
        return done(w, clause, f"ls {d}/*.{ext} | wc -l > {out}", f"The number is in {out}.", out)
    clause = w.say(["[write|put] the text of {t} {i} [together |one after the other |][to|into] {o}", "[concatenate|join] {t} {i} [to|into] {o}", "[combine|merge] {t} {i} into one file {o}", "make {o} out of {t} {i}, one after the other", "put {t} {i} together in {o}"], t=those, i=place, o=w.d(out))
    return done(w, clause, f"cat {d}/*.{ext} > {out}", f"They are joined in {out}.", out)


def rng_depth(w):
    return w.rng.choice([1, 1, 1, 2])


@task(4)
def folder_with_files(w):
    """A folder with one to three files in it."""
    rng, d, n = w.rng, w.v.folder(1), w.rng.choice([1, 2, 2, 2, 3])
    names = [w.v.path(nested=0) for _ in range(n)]
    texts = [w.v.sentence(1, 3) if rng.random() < 0.5 else w.v.word() for _ in range(n)]
    if rng.random() < 0.3:
        clause = w.say([
            "create [a|the] [folder|directory] [|called |named ]{d} and [inside it|inside] [the |an |][empty ]file[|s] {l}",
            "make a [folder|directory] {d} [with|containing|that has] [an empty|the empty] file[|s] {l}",
            "[make|create] [a|the] [new |][folder|directory] {d}, and [put|create] [an empty file|the empty file|empty files] [called |named |]{l} [in it|there|into it]",
            "set up a [folder|directory] {d} that holds nothing but {l}, empty",
            "in a new [folder|directory] {d}, [make|create] [an |the |]empty file[|s] {l}",
        ], d=w.d(d), l=w.listing([w.d(x) for x in names]))
        return done(w, clause, f"mkdir -p {d} && touch " + " ".join(f"{d}/{x}" for x in names), f"I made {d}.")
    form = rng.choice(["{p} [with|containing] [|the text |the word ]{t}", "{p}, which [contains|says] [|the text ]{t}", "{p} ([with the text |containing |]{t})", "{p} with the [content|text|line] {t}", "a file {p} that [says|contains|holds] [|the word |the text ]{t}", "{p}: {t}", "{p} saying {t}"])
    quote = rng.random() < 0.6
    items = []
    for name, text in zip(names, texts):
        items.append(w.say([form], p=w.d(name), t=w.q(text) if quote else text))
    clause = w.say([
        "create a [folder|directory] [|called |named ]{d} with {f}: {l}",
        "make [a|the] [folder|directory] {d}, and in it {l}",
        "create [the |a ][folder|directory] {d} [containing|with] {l}",
        "set up a [folder|directory] {d}; it [contains|holds|has] {l}",
        "in a new [folder|directory] {d}, [create|write] {l}",
        "[make|create] a [folder|directory] {d} that [has|contains] {f}, {l}",
    ], d=w.d(d), f=f"{spelled(w, n)} file" + "s" * (n > 1), l=w.listing(items))
    calls = [w.write(f"{d}/{name}", text) for name, text in zip(names, texts)]
    w.last = None
    return Step(clause, calls, f"I wrote the files in {d}.")


@task(3)
def several_files(w):
    """Two or three files with a text each."""
    rng, n = w.rng, w.rng.choice([2, 2, 3])
    names, texts = [w.v.path() for _ in range(n)], [w.v.sentence(1, 3) if w.rng.random() < 0.5 else w.v.word() for _ in range(n)]
    form = rng.choice(["{p} [with|containing] [|the text |the word ]{t}", "{p}, which [holds|contains|says] [|the text ]{t}", "{p} ({t})", "{p} with the [content|text|line] {t}", "{p}: {t}", "{p} saying {t}"])
    quote = rng.random() < 0.6
    items = [w.say([form], p=w.d(name), t=w.q(text) if quote else text) for name, text in zip(names, texts)]
    clause = w.say(["[create|write|make] [|the |these ]{n} files: {l}", "create {l}", "[write|make] {n} [text |]files, {l}", "I need {n} files: {l}", "make the files {l}", "[create|write] [the files |]{l}"], n=spelled(w, n), l=w.listing(items))
    calls = [w.write(name, text) for name, text in zip(names, texts)]
    w.last = None
    return Step(clause, calls, f"I wrote the {n} files.")


@task(4)
def file_to_file(w):
    """The text of a file at the end of another; then perhaps the first goes."""
    rng, a, b, kind = w.rng, w.source(), w.v.path(), w.rng.random()
    text = "[the contents|the content|the lines|everything]"
    join = w.say([
        "append " + text.replace("everything", "all lines") + " of [the file |]{a} to [the end of |the file |]{b}",
        "add " + text.replace("everything", "all lines") + " of {a} [at the end of|to the end of|to] [the file |]{b}",
        "put " + text.replace("everything", "all lines") + " of {a} at the end of {b}",
        "extend {b} [with|by] " + text.replace("everything", "all lines") + " of {a}",
        "{b} should end with the [text|lines|content] of {a}: append it",
        "copy the [text|lines|contents] of {a} to the end of {b}",
    ], a=w.p(a), b=w.d(b))
    if kind < 0.55:
        w.made(b)
        return Step(join, [w.shell(f"cat {a} >> {b}")], f"I added {a} to {b}.")
    rest = w.say(["{j}, [then|and then|and] [delete|remove] {a}", "{j}; after that, [delete|remove] {a}", "{j} and get rid of {a}", "{j}. [Delete|Remove] {a} [afterwards|then|after that]", "{j}, and [remove|delete] {a} [afterwards|after that]"], j=join.replace("{", "{{"), a=w.d(a))
    w.made(b)
    return Step(rest.replace("{{", "{"), [w.shell(f"cat {a} >> {b} && rm {a}")], f"I added {a} to {b} and deleted it.")


@task(4)
def copy_then_change(w):
    """Keep a copy, then change a word or number."""
    rng, a, b = w.rng, w.given(w.v.path(rng_ext(w))), w.v.path(rng_ext(w), nested=0.1)
    x, y = w.v.word(), w.v.word()
    if rng.random() < 0.5:
        x, y = rng.choice([(str(w.v.number()), str(w.v.number())), (f"{w.v.number(0, 99)}.{rng.randint(10, 99)}", f"{w.v.number(0, 99)}.{rng.randint(10, 99)}"), (w.v.name(), w.v.name())])
    if x == y:
        y += "1"
    thing = rng.choice(["", "", "", "the word ", "the number ", "the value ", "the name "]) if rng.random() < 0.6 else ""
    qx, qy = (w.q(x), w.q(y)) if rng.random() < 0.45 else (x, y)
    first = w.say(["copy {a} to {b}", "make a copy of {a} [called|named] {b}", "save a copy of {a} as {b}", "back up {a} [to|as] {b}", "keep a copy of {a} [in|as] {b}"], a=w.d(a), b=w.d(b))
    target = a if rng.random() < 0.75 else b
    second = w.say(["[change|replace] " + thing + "{x} [to|with|by] {y} in {t}".replace("[to|with|by]", "with"), "replace " + thing + "{x} [by|with] {y} in {t}", "in {t}, [change|turn] " + thing + "{x} [to|into] {y}".replace("[to|into]", "into"), "in {t}, {x} becomes {y}", "change " + thing + "{x} to {y} in {t}", "edit {t} so that " + thing + "{x} becomes {y}"], x=qx, y=qy, t=w.d(target) if rng.random() < 0.8 else ("the original" if target == a else "the copy"))
    clause = first + rng.choice([", then ", " and then ", "; then ", " and "]) + second if rng.random() < 0.6 else first + rng.choice([". Then ", ". After that, ", ". Next, ", ". Afterwards, "]) + second
    escaped = x.replace(".", "\\.")
    calls = [w.shell(f"cp {a} {b}"), w.shell(f"sed -i 's/{escaped}/{y}/g' {target}")]
    w.last = None
    return Step(clause, calls, f"I copied {a} and changed {target}.")


def rng_ext(w):
    return w.rng.choice(["txt", "txt", "md", "conf", "ini", "csv", "json", "yaml", "py", "sh", "list", "html"])


# Small repairs that the instruction describes --------------------------------------------------------------------------


def misspelt(rng, word):
    """A word with a typing mistake."""
    while True:
        i = rng.randrange(len(word) - 1)
        wrong = rng.choice([word[:i] + word[i + 1] + word[i] + word[i + 2 :], word[:i] + word[i + 1 :], word[: i + 1] + word[i] + word[i + 1 :]])
        if wrong != word and wrong not in word:
            return wrong


@task(5)
def typing_mistake(w):
    rng = w.rng
    code = rng.random() < 0.5
    word = rng.choice(["print", "yield", "import", "range", "while", "False", "True", "append", "class", "echo", "function", "lambda", "length", "global", "except", "continue", "break", "input", "string", "result", "else", "done", "then", "export"]) if code else rng.choice([x for x in (w.v.word() for _ in range(6)) if len(x) > 3] or ["summer"])
    wrong, path = misspelt(rng, word), w.given(w.v.path(rng.choice(["py", "py", "sh"]) if code else rng_ext(w)))
    q = rng.random() < 0.5
    x, y = (w.q(wrong), w.q(word)) if q else (wrong, word)
    clause = w.say([
        "[there is|we found] a [typo|typing mistake|spelling error] in {a}: {x} [should|must] be {y}. [Fix|Correct] it",
        "{a} [has|contains] a [typo|typing error]: {x} instead of {y}. [Please correct it|Fix that|Repair it|Correct that]",
        "in {a} someone [wrote|typed] {x} instead of {y}[. Fix it|; correct that|: repair it]",
        "[fix|correct] the [typo|spelling] in {a}: {x} [should be|must be|is meant to be] {y}",
        "the word {y} is misspelt as {x} in {a}. [Fix it|Correct the spelling|Put it right]",
        "{a} says {x}, but {y} is meant. [Correct|Repair|Fix] [this|it]",
        "[the script|the file] {a} does not work because of a typing mistake, {x} for {y}. [Repair|Fix|Correct] it",
        "[correct|mend] {a}, [which has|it has] {x} [where|in a place where] {y} belongs",
    ], a=w.p(path), x=x, y=y)
    return done(w, clause, f"sed -i 's/{wrong}/{word}/g' {path}", f"I corrected {path}.")


MARKS = [
    ('"', ["double quote", "closing double quote", "quotation mark", "closing quote", "double quotation mark"]),
    (")", ["closing parenthesis", "closing bracket", "right parenthesis", "parenthesis"]),
    ("]", ["closing square bracket", "square bracket", "right square bracket"]),
    ("}", ["closing brace", "right brace", "curly brace"]),
    (":", ["colon"]), (";", ["semicolon"]), (",", ["comma"]), (".", ["full stop", "period", "dot"]), ("!", ["exclamation mark"]), ("?", ["question mark"]),
]


@task(4)
def missing_mark(w):
    rng, path = w.rng, w.given(w.v.path(w.rng.choice(["py", "sh", "json", "txt", "js", "c", "conf", "md"])))
    mark, names = rng.choice(MARKS)
    name = rng.choice(names)
    an = ("an " if name[0] in "aeiou" else "a ") + name
    shown = rng.choice([name, name, f"{name} ({mark})"])
    if rng.random() < 0.5:
        n = rng.randint(1, 20)
        line = rng.choice([f"line {n}", f"line {n}", f"line number {n}"] + ([f"the {['first', 'second', 'third', 'fourth', 'fifth'][n - 1]} line"] if n < 6 else []))
        clause = w.say([
            "{a} [is broken|fails|does not work]: {an} is missing at the end of {l}. [Insert it|Repair it]",
            "[add|put|append] the missing {s} [at|to] the end of {l} [of|in] {a}",
            "[at the end of {l}|{l}] of {a} lacks {an} at its end; add it".replace("[at the end of {l}|{l}]", "{l}"),
            "in {a}, {l} [should|must] end with {an}, but [it does not|there is none]. [Put it there|Fix that|Add one]",
            "there is no {n} at the end of {l} in {a}. [Write|Insert] it",
            "{l} of {a} has lost the {n} at its end. [Restore it|Put it back|Add it again]",
            "append {an} to {l} of {a}",
        ], a=w.p(path), an=an, s=shown, n=name, l=line)
        return done(w, clause, f"sed -i '{n}s/$/{mark}/' {path}", f"I added the {name}.")
    word = w.v.word() if rng.random() < 0.6 else str(w.v.number(10))
    q = w.q(word) if rng.random() < 0.4 else word
    clause = w.say([
        "{a} [is not valid|is broken|fails]: {an} is missing [after|behind] {x}. [Add|Insert] it",
        "[add|put|insert] {an} [after|behind] {x} in {a}",
        "in {a}, [there should be|put] {an} [after|behind] {x}".replace("there should be", "insert"),
        "in {a} the {n} [after|behind] {x} is missing; [add it|put it there|repair that]",
        "{a} lacks {an} [after|right after|behind] {x}. [Put it there|Fix it|Add it]",
        "someone forgot the {n} after {x} in {a}. [Insert|Add] it",
    ], a=w.p(path), an=an, n=name, x=q)
    return done(w, clause, f"sed -i 's/{word}/{word}{mark}/' {path}", f"I added the {name}.")


# Programs that print what the instruction lists, or that compute a formula in words ---------------------------------------


@task(6)
def listed_program(w):
    """A Python or bash script that prints given items."""
    rng, v, python = w.rng, w.v, w.rng.random() < 0.5
    kind = rng.random()
    if kind < 0.3:
        start, step, count = rng.randint(6, 40), rng.choice([1, 2, 3, 5, 10]), rng.randint(3, 7)
        items = [str(start + i * step) for i in range(count)]
        if rng.random() < 0.4:
            items.reverse()
    elif kind < 0.55:
        items = [str(v.number(0, 99)) for _ in range(rng.randint(2, 7))]
    elif kind < 0.8:
        items = [v.word() for _ in range(rng.randint(2, 5))]
    else:
        items = v.lines(2, 4)
        if any(" " in x or "'" in x or '"' in x or "," in x for x in items):
            items = [v.name() for _ in range(rng.randint(2, 4))]
    numeric = items[0].isdigit()
    noun = "[|the |the numbers |these numbers: ]" if numeric else "[|the words |the names |these words: ]"
    name = w.target("py" if python else "sh")
    tongue = rng.choice(["Python", "Python", "python", "Python 3"]) if python else rng.choice(["bash", "bash", "shell", "Bash"])
    script = f"[a|the] {tongue} [script|program] [|called |named ]{{p}}"
    each = rng.choice([", one per line", ", each on its own line", ", one on each line", " on separate lines", ", one a line", ", one number per line" if numeric else ", one word per line", ", every one on a line of its own", ""])
    end = rng.choice(["", "", "", " and nothing else", ", nothing more"])
    clause = w.say([
        "[write|create] " + script + " that prints " + noun + "{l}" + each + end,
        "[write|create] " + script + " which [outputs|prints] " + noun + "{l}" + each,
        "create {p}, a " + tongue + " script that prints " + noun + "{l}" + each + end,
        "[make|write] {p}: a " + tongue + " [script|program] that prints " + noun + "{l}" + each,
        "I need " + script + " that outputs " + noun + "{l}" + each,
        "[write|make] " + script + ". [It prints|It should print|Its output is|It must print] " + noun + "{l}" + each,
    ], p=w.p(name), l=w.listing(items, rng.choice(["{}", "{}", "{}", w.quote]) if not numeric else "{}"))
    if python:
        shown = "[" + ", ".join(items if numeric else [repr(i) for i in items]) + "]"
        code = f"for x in {shown}:\n    print(x)"
    else:
        code = "#!/bin/bash\n" + "\n".join(f"echo {sh(i)}" for i in items)
    calls, closing = [w.write(name, code)], f"I wrote {name}."
    if rng.random() < 0.2:
        clause += w.say([" and run it", ", then run it", ". Run it", ", and execute it", ". Then run it"])
        calls.append(w.shell(f"{'python3' if python else 'bash'} {name}", "\n".join(items)))
    w.made(name, code)
    return Step(clause, calls, closing)


@task(4)
def text_program(w):
    """A script that prints a text without quotes."""
    rng, python = w.rng, w.rng.random() < 0.5
    text = w.v.phrase(1, 5) if rng.random() < 0.6 else w.v.sentence(1, 5)
    name = w.target("py" if python else "sh")
    tongue = rng.choice(["Python", "Python", "python"]) if python else rng.choice(["bash", "bash", "shell"])
    script = f"[a|the] {tongue} [script|program] [|called |named ]{{p}}"
    q = w.q(text) if rng.random() < 0.3 else text
    clause = w.say([
        "[write|create] " + script + " that prints [this|the following] [line|text|sentence]: {q}",
        "[write|create] " + script + " that [prints|outputs] the [words|text|line|message] {q}",
        "create {p}, a " + tongue + " script [whose output is|that prints only] {q}",
        "[make|write] " + script + ". Its [only |]output [is|should be]: {q}",
        "[write|make] " + script + " which says {q}",
        "[make|create] a " + tongue + " script {p} printing {q}",
    ], p=w.p(name), q=q)
    code = f"print({text!r})" if python else f"#!/bin/bash\necho {sh(text)}"
    w.made(name, code)
    return Step(clause, [w.write(name, code)], f"I wrote {name}.")


@task(5)
def formula(w):
    """A Python function or script for a formula in words."""
    rng, v = w.rng, w.v
    f, x = v.identifier(), rng.choice(["x", "n", "value", "amount", "price", "number", v.identifier(), v.identifier(), "km", "hours", "width"])
    if rng.random() < 0.3:
        f = rng.choice(["to_", "from_", "in_", "as_", "get_"]) + v.word()
    phrase, code, first = x, x, True
    if rng.random() < 0.15:
        phrase = rng.choice(["its argument", "the argument", "the number"])
    for _ in range(rng.choice([1, 1, 2, 2, 3])):
        n = rng.choice([rng.randint(2, 12), rng.randint(2, 1000), round(rng.uniform(0.1, 9.9), rng.choice([1, 2, 3]))])
        words, op = rng.choice([(["times {n}", "multiplied by {n}"], "*"), (["divided by {n}", "over {n}"], "/"), (["plus {n}", "increased by {n}"], "+"), (["minus {n}", "less {n}", "reduced by {n}"], "-")])
        comma = rng.choice(["", "", ","]) if not first else ""
        phrase += comma + " " + rng.choice(words).format(n=n)
        code = f"({code}) {op} {n}" if op in "*/" and any(s in code for s in (" + ", " - ")) and not code.startswith("(") else f"{code} {op} {n}"
        first = False
    path, head = w.target("py"), f"{f}({x})"
    extra = w.say(["returns {e}", "returns {e}", "gives [back |]{e}", "computes and returns {e}", "calculates {e} and returns [it|the result]"], e=phrase)
    clause = w.say([
        "[write|create] [a|the] Python [module|file] {p} with a function {f} that {x}",
        "[create|make] {p} [with|containing] a [Python |]function {f} that {x}",
        "[write|define] a [Python |]function {f} in {p} that {x}",
        "in {p}, define a function {f} which {x}",
        "I need a Python [module|file] {p}. It [has|holds|defines] a function {f} that {x}",
        "implement the function {f} in {p}: it {x}",
    ], p=w.p(path), f=w.d(head), x=extra)
    text = f"def {head}:\n    return {code}"
    w.made(path, text)
    return Step(clause, [w.write(path, text)], f"I wrote the function {f} to {path}.")


@task(5)
def bash_arguments(w):
    """A bash script that works with its arguments or with a file."""
    rng, v, name, n = w.rng, w.v, w.target("sh"), w.rng.randint(2, 6)
    source = v.path(nested=0)
    times = "twice" if n == 2 else f"{spelled(w, n)} times"
    first = "[its first argument|the first argument|its argument|the argument that it gets|the word given as argument|the first command-line argument]"
    phrases, body = rng.choice([
        (["prints " + first + " {k}", "echoes " + first + " {k}", "repeats " + first + " {k}", "outputs " + first + " {k}, [one per line|on separate lines]", "prints {k} what it gets as first argument, each on a line", "prints " + first + " {k}, [every time on a new line|one below the other]"], "\n".join(['echo "$1"'] * n)),
        (["prints " + first, "echoes " + first, "outputs " + first + "[| and nothing else]", "prints what it gets as [its |]first argument", "writes " + first + " to the screen"], 'echo "$1"'),
        (["prints its [two |]arguments in reverse order", "prints its second argument and then its first", "swaps its two arguments and prints them", "outputs the second argument before the first[|, each on a line]", "takes two arguments and prints the second one first"], 'echo "$2"\necho "$1"'),
        (["prints the number of its arguments", "prints how many arguments it got", "counts its arguments and prints the number", "outputs the argument count", "prints how many arguments were given"], "echo $#"),
        (["prints [each|every one] of its arguments on [a line of its own|its own line]", "prints its arguments, one per line", "loops over its arguments and prints each", "outputs all arguments, one a line", "writes every argument on a separate line"], 'for x in "$@"; do\n  echo "$x"\ndone'),
        (["prints the product of its two arguments", "multiplies its two arguments and prints the [result|product]", "takes two numbers and prints their product", "outputs the product of the two numbers given to it", "multiplies two numbers given as arguments"], "echo $(($1 * $2))"),
        (["prints the sum of its two arguments", "adds its two arguments and prints the [result|sum]", "takes two numbers and prints their sum", "outputs the sum of the two numbers given to it", "adds two numbers given as arguments"], "echo $(($1 + $2))"),
        (["prints " + first + " in [upper case|capital letters]", "turns " + first + " into capitals and prints it", "outputs " + first + " in uppercase", "uppercases the text it is given and prints it", "prints what it is given in capital letters"], 'echo "$1" | tr a-z A-Z'),
        (["prints the number of lines of the file given as argument", "prints how many lines the file named by its first argument has", "counts the lines of the file that it is given", "takes a file name and prints the number of lines in it", "prints the line count of the file passed to it"], 'wc -l < "$1"'),
        (["adds up the numbers in {a} and prints [only |]the sum", "prints the sum of the numbers in {a}[|, which has one per line]", "sums {a}, one number per line, and prints the [result|total]", "reads the numbers of {a} and prints their sum", "prints the total of all numbers in {a}"], f"awk '{{s += $1}} END {{print s}}' {source}"),
        (["prints the [first|top] line of {a}", "shows the first line of {a}", "outputs only the first line of {a}", "prints line 1 of {a}", "prints just the top line of {a}"], f"head -n 1 {source}"),
        (["prints the number of lines in {a}", "counts the lines of {a} and prints the number", "prints how many lines {a} has", "outputs the line count of {a}", "shows how many lines are in {a}"], f"wc -l < {source}"),
        (["prints the lines of {a} in [alphabetical order|sorted order]", "sorts {a} and prints the result", "prints {a} sorted", "outputs the sorted lines of {a}", "shows the lines of {a} in alphabetical order"], f"sort {source}"),
        (["prints yes if its first argument is [greater|larger] than {m}, and no otherwise", "prints yes or no: whether its argument is [above|more than] {m}", "tells with yes or no if the number it gets is greater than {m}", "outputs yes for a number above {m} and no for others", "says yes if the argument exceeds {m}, else no"], f"if [ \"$1\" -gt {n * 7} ]; then\n  echo yes\nelse\n  echo no\nfi"),
    ])
    what = w.say(phrases, k=times, a=w.d(source), m=n * 7)
    word = v.word()
    tail = w.say(["", "", ". So bash {p} {x} works", ". [Call|Run] it as bash {p}", ", called as bash {p}"], p=name, x=word) if rng.random() < 0.3 else ""
    script = "[a|the] [bash|bash|shell] script [|called |named ]{p}"
    clause = w.say(["[write|create] " + script + " that {x}", "create {p}, a bash script that {x}", "make " + script + " which {x}", "I need " + script + " that {x}", "[write|make] " + script + ". It {x}", "[make|create] the script {p} in bash; it {x}"], p=w.p(name), x=what) + tail
    w.made(name)
    return Step(clause, [w.write(name, f"#!/bin/bash\n{body}")], f"I wrote {name}.")


# Questions about tables in plain words ---------------------------------------------------------------------------------

SUBJECTS = [
    (["people", "customers", "members", "guests", "students", "players", "employees", "patients", "users"], [
        ("city", ["live in {v}", "are from {v}", "come from {v}", "have the city {v}"]), ("town", ["live in {v}", "come from {v}", "are at home in {v}"]), ("country", ["are from {v}", "come from {v}", "live in {v}"]),
        ("department", ["work in {v}", "belong to {v}"]), ("team", ["play for {v}", "are in {v}", "belong to {v}"]), ("name", ["are called {v}", "have the name {v}"]), ("status", ["are {v}", "have the status {v}"]), ("job", ["work as {v}", "have the job {v}"])]),
    (["products", "items", "articles", "goods", "things"], [
        ("category", ["belong to {v}", "are in the category {v}", "are of the category {v}"]), ("color", ["are {v}", "have the color {v}"]), ("maker", ["are made by {v}", "come from {v}"]), ("shop", ["are sold by {v}", "are from {v}"]), ("size", ["have the size {v}", "are of size {v}"])]),
    (["orders", "trips", "rows", "records", "entries", "payments", "visits"], [
        ("status", ["are {v}", "have the status {v}", "are marked {v}"]), ("customer", ["are by {v}", "belong to {v}", "come from {v}"]), ("city", ["go to {v}", "are from {v}"]), ("type", ["are of type {v}", "have the type {v}"]), ("day", ["are from {v}", "fall on {v}"])]),
    (["books", "songs", "films", "plants", "animals", "cars", "boats", "houses"], [
        ("author", ["are by {v}", "were written by {v}"]), ("genre", ["belong to {v}", "are {v}"]), ("color", ["are {v}", "have the color {v}"]), ("owner", ["belong to {v}", "are owned by {v}"]), ("kind", ["are {v}", "are of the kind {v}"]), ("place", ["are in {v}", "stand in {v}"])]),
]


@task(6)
def table_question(w):
    rng = w.rng
    nouns, kinds = rng.choice(SUBJECTS)
    noun = rng.choice(nouns)
    column, phrases = rng.choice(kinds)
    others = ["id", "name", "age", "price", "date", "year", "amount", "email", "weight", "title", "score", "number"]
    columns = [column]
    while len(columns) < rng.randint(2, 5):
        other = rng.choice(others) if rng.random() < 0.7 else w.v.identifier()
        if other not in columns:
            columns.append(other)
    rng.shuffle(columns)
    k = columns.index(column) + 1
    path, out, value = w.given(w.v.path("csv")), w.v.path("txt"), rng.choice([w.v.word, w.v.name, lambda: w.v.word().capitalize()])()
    number = rng.choice([c for c in columns if c != column])
    j = columns.index(number) + 1
    cols = w.listing(columns)
    told = w.say(["{a} has the columns {c}. ", "the [file|table|CSV file] {a} [has|contains] [the columns|columns named] {c}. ", "{a} is a [table|CSV file] with the columns {c}. ", "the columns of {a} are {c}. ", "in {a} there are the columns {c}. "], a=w.p(path), c=cols)
    q = w.q(value) if rng.random() < 0.3 else value
    such = rng.choice(phrases).format(v=q)
    kind = rng.random()
    where = rng.choice(["", "", f" in {w.d(path)}", " there"])
    if kind < 0.5:
        asks = [
            "count the {n} that {s}{i} and [write|save] the [number|count] to {o}", "[write|put] the number of {n} that {s}{i} [to|into|in] {o}", "how many {n}{i} {s}? [Write|Put|Save] the [number|answer] [to|into|in] {o}",
            "find out how many {n}{i} {s}, and [write|save] the [number|answer] to {o}", "{o} [should|must] [hold|contain] the number of {n} that {s}",
        ]
        command = f"awk -F, '${k} == \"{value}\" {{n++}} END {{print n + 0}}' {path} > {out}"
    elif kind < 0.7:
        asks = ["[write|save] the {m} of the {n} that {s}{i} to {o}[|, one per line]", "list the {m} of all {n} that {s}{i} in {o}", "which {m} have the {n} that {s}? [Write|Put] them [to|into] {o}", "put the {m} of each of the {n} that {s}{i} into {o}", "{o} should list the {m} of the {n} that {s}"]
        command = f"awk -F, '${k} == \"{value}\" {{{{print ${j}}}}}' {path} > {out}".replace("{{", "{").replace("}}", "}")
    elif kind < 0.85:
        asks = ["add up the {m} of the {n} that {s}{i} and [write|save] the sum to {o}", "[write|save] the sum of the {m} of all {n} that {s} to {o}", "what is the total {m} of the {n} that {s}{i}? [Write|Put] it [to|into] {o}", "compute the total of {m} over the {n} that {s}, [result|answer] in {o}", "{o} should hold the sum of {m} for the {n} that {s}"]
        command = f"awk -F, '${k} == \"{value}\" {{s += ${j}}} END {{print s + 0}}' {path} > {out}"
    else:
        asks = ["[write|save] the sum of the column {m}{i} to {o}", "add up [the column |]{m}{i} and [write|put] the [sum|result] [to|into] {o}", "what is the sum of [all values of |]{m}{i}? [Write|Put] it [to|into] {o}", "compute the total of [the column |]{m}{i}, [result|answer] in {o}", "{o} should hold the sum of [the column |]{m}"]
        command = f"awk -F, 'NR > 1 {{s += ${j}}} END {{print s + 0}}' {path} > {out}"
    ask = w.say(asks, n=noun, s=such, o=w.d(out), m=number, i=where)
    return done(w, told + ask[0].upper() + ask[1:], command, f"The answer is in {out}.", out)


# Everyday jobs again, in other words -----------------------------------------------------------------------------------


@task(7)
def reworded(w):
    """Jobs that other files have, worded with the result first, in two sentences, or with what must not change."""
    rng, a, out = w.rng, w.source(), w.v.path("txt")
    keep = w.rng.choice(["", "", "", f". {w.d(a)} [stays|must stay] [as it is|unchanged]", f". [Do not change|Don't change|Don't touch] {w.d(a)}", f"; {w.d(a)} [itself |]must not change", f", and leave {w.d(a)} alone", f". Keep {w.d(a)} as it is"])
    n = rng.randint(2, 12)
    heads, command = rng.choice([
        (["[sort|order] the lines of {a} [alphabetically|in alphabetical order|by the alphabet]", "put the lines of {a} in [alphabetical order|the order of the alphabet]", "bring the lines of {a} into alphabetical order", "sort {a} as a dictionary does, A first", "arrange the lines [of|in] {a} alphabetically"], "sort {a} > {o}"),
        (["[sort|order] the lines of {a} backwards, Z first", "sort {a} in reverse alphabetical order", "put the lines of {a} in reversed alphabetical order", "arrange the lines of {a} backwards through the alphabet", "sort the lines of {a} in descending alphabetical order"], "sort -r {a} > {o}"),
        (["turn the text of {a} into capital letters", "convert [the text of |]{a} to capitals", "change all letters of {a} to capital letters", "make every letter of {a} a capital", "put [the text of |]{a} in capital letters"], "tr a-z A-Z < {a} > {o}"),
        (["turn the text of {a} into small letters", "convert [the text of |]{a} to small letters", "change all letters of {a} to lower case", "make every capital of {a} a small letter", "put [the text of |]{a} in lower case"], "tr A-Z a-z < {a} > {o}"),
        (["find the [largest|biggest|greatest|highest] [number|value] in {a}", "look for the [largest|biggest|highest] number in {a}", "determine the [greatest|largest] of the numbers in {a}", "pick the highest number out of {a}", "get the biggest of the numbers in {a}"], "sort -n {a} | tail -n 1 > {o}"),
        (["find the [smallest|lowest|least] [number|value] in {a}", "look for the [smallest|lowest] number in {a}", "determine the [least|smallest] of the numbers in {a}", "pick the lowest number out of {a}", "get the smallest of the numbers in {a}"], "sort -n {a} | head -n 1 > {o}"),
        (["count the lines [of|in] {a}", "count how many lines {a} has", "determine the number of lines in {a}", "find out how many lines {a} has", "count the lines that {a} has"], "wc -l < {a} > {o}"),
        (["count the words [of|in] {a}", "count how many words {a} has", "determine the number of words in {a}", "find out how many words {a} has", "count the words that {a} has"], "wc -w < {a} > {o}"),
        (["add up the numbers in {a}", "sum the numbers of {a}", "compute the sum of the numbers in {a}", "calculate the sum of the values in {a}", "add all the numbers that {a} has"], "awk '{{s += $1}} END {{print s}}' {a} > {o}"),
        (["take the first {n} lines of {a}", "pick the first {n} lines out of {a}", "copy the first {n} lines of {a}", "get the first {n} lines of {a}", "take lines 1 to {n} of {a}"], "head -n {n} {a} > {o}"),
        (["take the last {n} lines of {a}", "pick the last {n} lines out of {a}", "copy the last {n} lines of {a}", "get the last {n} lines of {a}", "take the final {n} lines of {a}"], "tail -n {n} {a} > {o}"),
        (["turn the order of the lines of {a} around", "reverse the order of the lines in {a}", "put the lines of {a} in reverse order", "take the lines of {a} from last to first", "turn {a} upside down line by line"], "tac {a} > {o}"),
        (["remove repeated lines from {a}[| but keep the order]", "drop repeated lines of {a}, keeping the order", "take each different line of {a} once, in the same order", "leave out lines of {a} that came before", "keep each line of {a} only the first time"], "awk '!seen[$0]++' {a} > {o}"),
        (["remove the empty lines from {a}", "leave out the blank lines of {a}", "drop all empty lines in {a}", "take {a} without its blank lines", "take the lines of {a} that are not empty"], "sed '/^$/d' {a} > {o}"),
    ])
    if rng.random() < 0.25:
        bare = w.say(heads, a=w.p(a), n=n)
        clause = w.say([
            "[write|put] [to|into] {o}", "{o} [shall|should] be the result",
        ], o=w.d(out))
        clause = rng.choice([f"{bare}. {w.say(['[Write|Save|Put] the [result|outcome] [to|into|in] {o}', 'The [result|outcome] [goes|belongs] [to|into] [the file |]{o}', '[Write|Save] it [to|as] [the new file |a new file |]{o}'], o=w.d(out))}", f"{bare}; {w.say(['[write|save|put] the [result|outcome] [to|into|in] {o}', 'the [result|outcome] [goes|belongs] [to|into] [the file |]{o}', 'the new file is [called|named] {o}'], o=w.d(out))}"])
    else:
        clause = w.say([h + t for h in heads for t in [" and [write|save|put] [it|the result|them|that] [to|into|in] {o}", " and [write|save] [it|the result] [to|as] [a new file |the new file |a file called |a file named |the file ]{o}"]], a=w.p(a), o=w.d(out), n=n)
    clause += w.say([keep], )
    return done(w, clause, command.format(a=a, o=out, n=n), f"The result is in {out}.", out)


@task(4)
def output_of(w):
    """The output of a command that the instruction names goes to a file."""
    rng, out, a = w.rng, w.target("txt"), w.v.path()
    d, n = w.v.folder(1), rng.randint(2, 50)
    command = rng.choice(["uname -a", "uname -r", "uname -m", "whoami", "pwd", "date", "hostname", "id", "id -u", "nproc", "ls", "ls -l", "ls -la", "df -h", "free -m", "env", "uptime", "ps aux", "git status", "git log --oneline", "python3 --version", "bash --version", f"ls {d}", f"ls -l {d}", f"cat {a}", f"wc -l {a}", f"wc {a}", f"head -n {n} {a}", f"tail -n {n} {a}", f"sort {a}", f"seq {n}", f"seq 1 {n}", f"echo {w.v.word()}", f"du -sh {d}", f"find {d}", f"find . -name {w.v.word()}.txt", f"expr {n} + {n + 3}", f"date +%Y", "date -u", "locale", "printenv HOME", "getconf PAGE_SIZE", "arch", "tty", "groups", f"stat {a}", f"file {a}", f"md5sum {a}", f"sha1sum {a}", f"cksum {a}", f"basename {d}/{a}", f"dirname {d}/{a}"])
    c = rng.choice([command, command, f"`{command}`", f'"{command}"', f"'{command}'"])
    clause = w.say([
        "[save|store|put] the output of {c} [in|into] {o}", "run [the command |]{c} and [write|save] [its|the] output to {o}", "execute {c} and [redirect|save] [the |its |]output to {o}", "[run|execute] {c}, output [in|into|to] {o}",
        "{o} should [contain|hold] [the output of|what] {c}".replace("[the output of|what]", "the output of"), "[write|save] what [the command |]{c} [prints|says] to {o}", "run {c}. [Save|Write|Put] what it prints [to|in] {o}", "[write|put] the output of [the program |the shell command |]{c} [to|into] [the file |]{o}",
    ], c=c, o=w.p(out))
    return done(w, clause, f"{command} > {out}", f"The output is in {out}.", out)


@task(4)
def add_line(w):
    """A line at the end, in more words."""
    path, line = w.source(), w.v.sentence()
    clause = w.say([
        "[add|append|put|write] [the line |the sentence |the text |one more line, ]{q} [at the end of|at the bottom of|to the end of|below the last line of] [the file |]{a}",
        "[add|append] a [last |further |new ]line to [the file |]{a}: {t}",
        "[the file |]{a} [should|must|shall] [end with|get] [the |a new |one more ]line {q}[| at the end]".replace("[end with|get]", "get"),
        "{a} needs one more line at [its|the] end: {t}",
        "[add|append] {q} to {a} as [a new|the] last line",
        "at the end of {a}, [add|append] [the line |]{q}",
        "write {q} on a new line at the end of {a}",
    ], a=w.p(path), q=w.q(line), t=line)
    w.made(path)
    return Step(clause, [w.shell(f"echo {sh(line)} >> {path}")], f"I added the line to {path}.")


@task(3)
def swap_word(w):
    """A word of a file by another, in more words."""
    rng, path = w.rng, w.source()
    a, b = rng.choice([(w.v.word(), w.v.word()), (w.v.name(), w.v.name()), (w.v.word().capitalize(), w.v.word().capitalize()), (str(w.v.number(1)), str(w.v.number(1))), tuple(rng.sample(["Monday", "Wednesday", "Friday", "Saturday", "Sunday", "January", "March", "June", "July", "October", "December"], 2))])
    if a == b:
        b += "x"
    x, y = (w.q(a), w.q(b)) if rng.random() < 0.4 else (a, b)
    clause = w.say([
        "in [the file |]{f}, [replace|exchange] [the word |every |each |]{x} [with|for|by] {y}[| wherever it occurs| in all places]".replace("[with|for|by]", "with"),
        "[everywhere |]in {f}, {y} should stand in place of {x}",
        "wherever {f} says {x}, it should say {y}",
        "[change|turn] [every|each] {x} [in|of] [the file |]{f} [to|into] {y}".replace("[to|into]", "into"),
        "{f} [uses|has] the [word|name|term] {x}. [Make it|Change it to|It should be] {y} [everywhere|in all places|each time]",
        "put {y} in place of {x} [everywhere |]in {f}",
        "[use|write] {y} instead of {x} in {f}",
    ], f=w.p(path), x=x, y=y)
    return done(w, clause, f"sed -i 's/{a}/{b}/g' {path}", f"I replaced {a} by {b} in {path}.")


@task(3)
def pass_on(w):
    """Read a short file and write what it says, or a part, to another."""
    rng = w.rng
    a, out, kind = w.v.path(), w.target(), rng.random()
    word = w.v.word() if rng.random() < 0.7 else str(w.v.number())
    what = "number" if word.isdigit() else "word"
    clause = w.say([
        "[read|look into|open] [the file |]{a} and [write|copy|put] the [only |single |]{w} [in it|it contains|it holds|you find there] [to|into] {o}".replace("[to|into]", "to"),
        "{a} holds [one|a single] {w}. [Read it|Look it up] and [write|put] it [to|into] [the file |]{o}",
        "[write|put] the {w} that [the file |]{a} [holds|contains] [into|to] {o}",
        "read the {w} in {a}; write it to [a new file |]{o}",
        "find out which {w} is in {a} and write it to {o}",
        "which {w} does {a} contain? Read it, then write it to {o}",
    ], a=w.d(a), o=w.d(out), w=what)
    calls = [w.read(a, word), w.write(out, word)]
    w.made(out, word)
    return Step(clause, calls, f"I wrote {word} to {out}.")


@task(2)
def key_file(w):
    """A small JSON object, key by key, in words."""
    rng, path = w.rng, w.target("json")
    keys = []
    while len(keys) < rng.randint(2, 4):
        key = w.v.identifier()
        if key not in keys:
            keys.append(key)
    data = {k: rng.choice([w.v.word, w.v.name, w.v.number, lambda: rng.choice([True, False]), lambda: [w.v.word(), w.v.word()]])() for k in keys}
    form = rng.choice(["{k} is {v}", "{k}, which is {v}", "the key {k} with the value {v}", "{k} ({v})", "{k} with {v}"])
    shown = [form.format(k=k, v=v if isinstance(v, str) else "the list of " + " and ".join(v) if isinstance(v, list) else json.dumps(v)) for k, v in data.items()]
    text = json.dumps(data)
    clause = w.say(["[write|create] a JSON file {p} with one object: {i}", "{p} [shall|should] be a JSON file with one object, in which {i}", "make the JSON file {p}; its object has {i}", "create {p}, a JSON file. Its keys: {i}", "write an object to {p} as JSON: {i}"], p=w.p(path), i=w.listing(shown))
    w.made(path, text)
    return Step(clause, [w.write(path, text)], f"I wrote {path}.")
