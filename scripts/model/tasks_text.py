"""Steps on text files: count, sort, filter, replace, look."""

from world import Step, sh, task

TO = "[and |, ][write|save|put|store] "


def into(world, templates, command, **slots):
    """A step whose command reads one file and writes its result to another."""
    source, out = world.source(), world.target("txt")
    clause = world.say(templates, a=world.p(source), o=world.d(out), **slots)
    call = world.shell(command.format(a=source, o=out))
    world.made(out)
    return Step(clause, [call], f"The result is in {out}.")


@task(5)
def count(w):
    what, flag = w.rng.choice([("lines", "-l"), ("lines", "-l"), ("words", "-w"), ("characters", "-m"), ("bytes", "-c")])
    return into(w, [
        "count the {w} in {a} and [write|save|put] the [number|result|count] [to|in|into] {o}",
        "[write|save|store] the number of {w} [in|of] {a} [to|in] {o}",
        "how many {w} [are in|does] {a}[| have]? [Write|Put|Save] the [answer|number] [to|into|in] {o}",
        "determine how many {w} {a} has and [write|save] it to {o}",
        "{o} should [contain|hold] the number of {w} in {a}",
        "count how many {w} there are in {a}[, and| and] [write|store] [only |just |]the [number|count] [in|to] {o}",
        "get the {w} count of {a} and [put|save] it [in|into] {o}",
        "count {w} of {a} [into|, result in] {o}",
        "count the [total |]number of {w} in {a} and [write|save] [it|just the number] to [a file called |a file named |the file |]{o}",
    ], f"wc {flag} < {{a}} > {{o}}", w=what)


@task(3)
def tell(w):
    """A question whose answer is the closing sentence."""
    kind, source = w.rng.random(), w.source()
    if kind < 0.5:
        what, flag = w.rng.choice([("lines", "-l"), ("words", "-w"), ("characters", "-m")])
        n = w.v.number(1)
        clause = w.say(["how many {w} [are in|does] {a}[| have]?", "count the {w} in {a}", "tell me [how many {w} are in|the number of {w} in] {a}", "what is the number of {w} in {a}?", "give me the {w} count of {a}"], w=what, a=w.p(source))
        return Step(clause, [w.shell(f"wc {flag} < {source}", str(n))], f"{source} has {n} {what}.")
    if kind < 0.8:
        text = w.files.get(source) or "\n".join(w.v.lines(1, 3))
        clause = w.say(["show [me |](the content of |what is in |)[the file |]{a}".replace("(", "[").replace(")", "]"), "what [is in|does] {a}[| contain| say]?", "read {a} [and tell me what it says|aloud|]", "print [the contents of |]{a}", "display {a}"], a=w.p(source))
        return Step(clause, [w.read(source, text)], f"{source} contains: {text}")
    names = sorted(w.v.path(nested=0) for _ in range(w.rng.randint(1, 4)))
    folder = w.v.folder(1) if w.rng.random() < 0.5 else ""
    clause = w.say(["list the files [in {d}]".replace("[", "").replace("]", ""), "what files are [there |]in {d}?", "show [me |]the [files|contents] in {d}", "which files does {d} [contain|have]?", "give me a listing of {d}"], d=w.d(folder) if folder else "the current directory")
    return Step(clause, [w.shell(f"ls {folder}".strip(), "\n".join(names))], "The files are: " + ", ".join(names))


@task(4)
def count_matching(w):
    word = w.rng.choice(["ERROR", "WARN", "INFO", "DEBUG", "FAIL", "TODO", "error", "OK", "FATAL", "WARNING"]) if w.rng.random() < 0.4 else w.v.word()
    if w.rng.random() < 0.65:
        return into(w, [
            "count the lines [in|of] {a} [that contain|containing|with] {q} and [write|save|put] the [number|count|result] [to|in] {o}",
            "[write|save] the number of lines [containing|with|that contain] {q} in {a} to {o}",
            "how many lines [of|in] {a} contain {q}? [Write|Put|Save] the [number|answer] [to|in] {o}",
            "count {q} lines in {a} and [write|store] the [number|result] [in|to] {o}",
            "{o} should [contain|hold] the number of lines in {a} [containing|that contain|with] {q}",
            "count how many lines in {a} [contain|include|mention] [the word |]{q}[, and| and] write [just |only |]the [number|count] to {o}",
        ], f"grep -c {sh(word)} {{a}} > {{o}}", q=w.q(word) if w.rng.random() < 0.7 else word)
    return into(w, [
        "count how often [the word |]{q} [occurs|appears] in {a} and [write|save] the [number|count] to {o}",
        "[write|save] the number of occurrences of [the word |]{q} in {a} to {o}",
        "how many times does [the word |]{q} [occur|appear] in {a}? [Write|Put|Save] the [number|answer] [to|in] {o}",
        "count all occurrences of {q} in {a}, [result|count] in {o}",
        "{o} should [contain|hold] how many times {q} [occurs|appears] in {a}",
    ], f"grep -o {sh(word)} {{a}} | wc -l > {{o}}", q=w.q(word))


@task(4)
def extract_matching(w):
    word = w.rng.choice(["ERROR", "WARN", "INFO", "DEBUG", "FAIL", "TODO", "error", "FIXME", "FATAL", "WARNING"]) if w.rng.random() < 0.4 else w.v.word()
    q, kind = w.q(word) if w.rng.random() < 0.7 else word, w.rng.random()
    if kind < 0.7:
        return into(w, [
            "[write|save|copy|extract] [all|the] lines [of|in|from] {a} [that contain|containing|with] {q} to {o}",
            "find [all|the|every] line[s|] [containing|with] {q} in {a} and [write|save] [them|the result] to {o}",
            "filter {a} for {q} and [save|store|put] the [matching lines|matches|result] in {o}",
            "put [every line|all lines] of {a} [that mentions|with] {q} [into|in] {o}",
            "{o} should contain [only |]the lines of {a} that contain {q}",
            "extract [all|the] {q} lines from {a} [into|to] {o}",
            "grep {a} for {q} and write the matching lines to {o}",
        ], f"grep {sh(word)} {{a}} > {{o}}", q=q)
    if kind < 0.85:
        return into(w, [
            "[write|save|copy] [all|the] lines [of|in|from] {a} that do not contain {q} to {o}",
            "remove [all|the] lines with {q} from {a} and [write|save] the rest to {o}",
            "filter out [the |all |]{q} lines of {a}, [result in|saving to] {o}",
            "put every line of {a} without {q} [into|in] {o}",
            "{o} should contain the lines of {a} that don't [contain|mention] {q}",
        ], f"grep -v {sh(word)} {{a}} > {{o}}", q=q)
    out = w.target("txt")
    clause = w.say([
        "find [all|the|which] files [that contain|containing] {q} and [write|save] [their names|the list] to {o}",
        "[write|save] the names of [the|all] files [containing|that mention] {q} to {o}",
        "search all files [here |recursively |]for {q} and [put|store] the [file names|matching files] in {o}",
        "which files contain {q}? [List|Write] them [in|to] {o}",
        "list every file [in this tree |]that contains {q} in {o}",
    ], q=q, o=w.p(out))
    call = w.shell(f"grep -rl {sh(word)} . | sort > {out}")
    w.made(out)
    return Step(clause, [call], f"The result is in {out}.")


SORTS = [
    ("sort {a} > {o}", ["sort [the lines of |the lines in |]{a} [alphabetically |]", "sort [the lines of |]{a} in alphabetical order ", "put [the lines of |]{a} in alphabetical order ", "order the lines of {a} [alphabetically |]", "alphabetically sort [the file |]{a} "]),
    ("sort -u {a} > {o}", ["remove [the |]duplicate lines from {a}, [sort|sort it|sorted] ", "sort [the lines of |]{a} and remove duplicates ", "get the [unique|distinct] lines of {a} ", "deduplicate [the lines of |]{a} ", "take the sorted unique lines of {a} "]),
    ("sort -n {a} > {o}", ["sort [the numbers in |]{a} numerically ", "sort the numbers in {a} [in ascending order|from small to large|from smallest to largest|ascending] ", "order the numbers [of|in] {a} from low to high ", "sort [the lines of |]{a} by number ", "put the numbers of {a} in [increasing|ascending] order "]),
    ("sort -rn {a} > {o}", ["sort the numbers in {a} [in descending order|from large to small|descending|from largest to smallest] ", "order the numbers [of|in] {a} from high to low ", "sort {a} numerically in reverse ", "put the numbers of {a} in [decreasing|descending] order ", "sort [the lines of |]{a} by number, largest first "]),
    ("sort -r {a} > {o}", ["sort [the lines of |]{a} in reverse [alphabetical |]order ", "sort {a} backwards alphabetically ", "sort [the lines of |]{a} [descending|reversed] ", "reverse sort {a} ", "put {a} in reverse alphabetical order "]),
    ("tac {a} > {o}", ["reverse the [order of the |]lines [of|in] {a} ", "reverse [the line order of |]{a} ", "turn {a} upside down, last line first, ", "put the lines of {a} in reverse order ", "flip the order of the lines in {a} "]),
    ("rev {a} > {o}", ["reverse [each|every] line of {a} ", "reverse the characters [in|of] each line of {a} ", "mirror each line of {a} ", "write [each|every] line of {a} backwards ", "reverse the text of every line in {a} "]),
    ("tr a-z A-Z < {a} > {o}", ["convert [the text of |the contents of |]{a} to upper[ |-|]case ", "[turn|change] [all letters of |the text in |]{a} into upper[ |-|]case ", "make [all letters of |]{a} uppercase ", "capitalise all letters in {a} ", "uppercase [everything in |the contents of |]{a} "]),
    ("tr A-Z a-z < {a} > {o}", ["convert [the text of |the contents of |]{a} to lower[ |-|]case ", "[turn|change] [all letters of |the text in |]{a} into lower[ |-|]case ", "make [all letters of |]{a} lowercase ", "lowercase [everything in |the contents of |]{a} ", "change the letters in {a} to small letters "]),
    ("awk '!seen[$0]++' {a} > {o}", ["remove duplicate lines from {a} [keeping|but keep] the [original |]order ", "drop repeated lines of {a}, keeping the first [of each|occurrence], ", "deduplicate {a} without sorting ", "remove repeated lines [from|in] {a} while preserving [the |]order ", "keep only the first occurrence of each line of {a} "]),
    ("cat -n {a} > {o}", ["number the lines of {a} ", "add line numbers to {a} ", "prefix [each|every] line of {a} with its number ", "put line numbers before the lines of {a} ", "write {a} with line numbers "]),
    ("paste -sd, {a} > {o}", ["join the lines of {a} with commas ", "join all lines of {a} into one [comma-separated |]line ", "turn the lines of {a} into a comma-separated list ", "make one comma-separated line of {a} ", "combine the lines of {a} separated by commas "]),
    ("sed 's/ /_/g' {a} > {o}", ["replace [the |all |]spaces in {a} [by|with] underscores ", "turn every space of {a} into an underscore ", "change spaces to underscores in {a} ", "substitute underscores for spaces in {a} ", "replace each space with an underscore in {a} "]),
    ("sed '/^$/d' {a} > {o}", ["remove [the |all |]empty lines from {a} ", "delete blank lines of {a} ", "drop the empty lines in {a} ", "strip {a} of blank lines ", "take {a} without its empty lines "]),
    ("awk '{{print $1}}' {a} > {o}", ["extract the first word of [each|every] line of {a} ", "take the first [column|field|word] of {a} ", "get the first word on each line of {a} ", "cut the first [space-separated |]column out of {a} ", "keep only the first word of every line in {a} "]),
    ("awk '{{print $2}}' {a} > {o}", ["extract the second word of [each|every] line of {a} ", "take the second [column|field|word] of {a} ", "get the second word on each line of {a} ", "cut the second space-separated column out of {a} ", "keep only the second word of every line in {a} "]),
    ("awk '{{print $NF}}' {a} > {o}", ["extract the last word of [each|every] line of {a} ", "take the last [column|field|word] of {a} ", "get the last word on each line of {a} ", "cut the last space-separated column out of {a} ", "keep only the last word of every line in {a} "]),
    ("sort {a} | uniq -c | sort -rn > {o}", ["count how often each line [of|in] {a} occurs ", "count the repeated lines of {a}, most frequent first, ", "make a frequency table of the lines in {a} ", "tally the lines of {a} ", "count the occurrences of each distinct line in {a} "]),
    ("sort {a} | uniq -d > {o}", ["find the duplicate lines in {a} ", "extract the lines that occur more than once in {a} ", "list the repeated lines of {a} ", "get the duplicated lines of {a} ", "find lines that appear several times in {a} "]),
    ("tr -cs A-Za-z '\\n' < {a} | tr A-Z a-z | sort | uniq -c | sort -rn | awk 'NR==1 {{print $2}}' > {o}", ["find the most [common|frequent] word in {a} ", "determine which word occurs most often in {a} ", "get the word that appears most [often |]in {a} ", "look for the most used word of {a} ", "find out the top word of {a} "]),
    ("awk 'length > m {{m = length; s = $0}} END {{print s}}' {a} > {o}", ["find the longest line [of|in] {a} ", "get the longest line of {a} ", "extract the line of {a} with the most characters ", "determine the longest line in {a} ", "look for the longest line in {a} "]),
    ("awk '{{s += $1}} END {{print s}}' {a} > {o}", ["[sum|add up] [all |]the numbers in {a} ", "compute the sum of the numbers in {a} ", "calculate the total of all [numbers|values] in {a} ", "add all numbers of {a} together ", "total the numbers in {a} ", "read the numbers [from|in] {a}, [one per line, |]add them up "]),
    ("awk '{{s += $1}} END {{print s / NR}}' {a} > {o}", ["compute the [average|mean] over [all |the |]numbers in {a} ", "calculate the [mean|average] of all [numbers|values] in {a} ", "average the numbers of {a} ", "find the mean value of {a} ", "get the average of the numbers in {a} "]),
    ("sort -n {a} | tail -n 1 > {o}", ["find the [largest|biggest|highest] number in {a} ", "get the maximum of the numbers in {a} ", "determine the [largest|highest] [number|value] in {a} ", "look up the [max|maximum] of {a} ", "take the biggest value of {a} "]),
    ("sort -n {a} | head -n 1 > {o}", ["find the [smallest|lowest] number in {a} ", "get the minimum of the numbers in {a} ", "determine the [smallest|lowest] [number|value] in {a} ", "look up the [min|minimum] of {a} ", "take the smallest value of {a} "]),
    ("grep -oE '[[:alnum:]._-]+@[[:alnum:].-]+' {a} | sort -u > {o}", ["extract [all|the] [e-mail|email|mail] addresses from {a} ", "find [all|every] [email|e-mail] address[es|] in {a} ", "collect the mail addresses [of|in] {a} ", "get the email addresses out of {a} ", "pull all e-mail addresses from {a} "]),
    ("grep -oE '[0-9]+' {a} > {o}", ["extract [all|the] numbers from {a} ", "find [all|every] number[s|] in {a} ", "collect the numbers [occurring |]in {a} ", "get all integers out of {a} ", "pull the numbers from {a} "]),
    ("sort {a} | uniq | wc -l > {o}", ["count the [unique|distinct|different] lines [in|of] {a} ", "count how many different lines {a} has ", "determine the number of [unique|distinct] lines in {a} ", "find out how many distinct lines are in {a} ", "get the number of different lines of {a} "]),
    ("base64 {a} > {o}", ["encode {a} [as|in|with] base64 ", "base64-encode {a} ", "convert {a} to base64 ", "make a base64 version of {a} ", "apply base64 to {a} "]),
]
RESULT = ["and [write|save|store|put] [the result|it|the output|the result] [to|in|into] {o}", "[into|, output to|, result in|to] {o}", "and [save|write] [the result |]as {o}", "[writing|saving] the [result|output] to {o}", "with the [result|output] in {o}", "and put [that|the result] into a file [called|named] {o}"]


@task(11)
def transform(w):
    command, templates = w.rng.choice(SORTS)
    heads = [t.rstrip(" ") for t in templates]
    result = w.say(RESULT, o="{o}")
    return into(w, [h + (result if result.startswith(",") else " " + result) for h in heads], command)


@task(4)
def pieces(w):
    n, kind = w.rng.randint(2, 30), w.rng.random()
    ordinal = {1: "1st", 2: "2nd", 3: "3rd"}.get(n, f"{n}th") if n < 21 else f"{n}."
    words = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 10: "ten"}
    number = words[n] if n in words and w.rng.random() < 0.4 else str(n)
    if kind < 0.4:
        command, templates = f"head -n {n} {{a}} > {{o}}", ["[write|save|copy] the first {n} lines of {a} to {o}", "take the first {n} lines [of|from] {a} and [save|put] them in {o}", "put the top {n} lines of {a} into {o}", "extract the first {n} lines from {a} [into|to] {o}", "{o} should contain [only |]the first {n} lines of {a}"]
    elif kind < 0.75:
        command, templates = f"tail -n {n} {{a}} > {{o}}", ["[write|save|copy] the last {n} lines of {a} to {o}", "take the last {n} lines [of|from] {a} and [save|put] them in {o}", "put the final {n} lines of {a} into {o}", "extract the last {n} lines from {a} [into|to] {o}", "{o} should contain [only |]the last {n} lines of {a}"]
    elif kind < 0.9:
        number = str(n)
        command, templates = f"sed -n {n}p {{a}} > {{o}}", ["[write|save|copy] line {n} of {a} to {o}", "take line [number |]{n} [of|from] {a} and [save|put] it in {o}", "put the {k} line of {a} into {o}", "extract line {n} from {a} [into|to] {o}", "{o} should contain line {n} of {a}"]
    else:
        m = n + w.rng.randint(1, 10)
        command, templates = f"sed -n {n},{m}p {{a}} > {{o}}", ["[write|save|copy] lines {n} to {m} of {a} to {o}", "take lines {n} through {m} [of|from] {a} and [save|put] them in {o}", "put lines {n}-{m} of {a} into {o}", "extract lines {n} to {m} from {a} [into|to] {o}", "{o} should contain lines {n} to {m} of {a}"]
        return into(w, templates, command, n=n, m=m)
    return into(w, templates, command, n=number, k=ordinal)


@task(5)
def replace(w):
    path, a, b = w.source(), w.v.word(), w.v.word()
    if w.rng.random() < 0.4:
        a, b = w.rng.choice([(w.v.name(), w.v.name()), (w.v.identifier(), w.v.identifier()), (str(w.v.number()), str(w.v.number())), (a.capitalize(), b.capitalize())])
    if a == b:
        b += "x"
    qa, qb = (w.q(a), w.q(b)) if w.rng.random() < 0.65 else (a, b)
    if w.rng.random() < 0.8:
        clause = w.say([
            "replace [|every |all |the word |each |every occurrence of |all occurrences of ]{x} [by|with] {y} in {a}",
            "in {a}, [replace|change] [|every |all |the word ]{x} [with|to|by] {y}".replace("[replace|change]", "replace"),
            "change [|every |all |the word ]{x} to {y} in {a}",
            "[substitute|swap] {x} [with|for] {y} [everywhere |]in {a}".replace("substitute|swap", "replace").replace("[with|for]", "with"),
            "edit {a} so that [every |]{x} becomes {y}",
            "in {a}, change [|every |all |the word ]{x} to {y}",
            "[modify|update] {a}: {x} [should become|becomes|must become] {y}",
            "[the file |]{a} [contains|mentions|has] {x}; [replace it with|change it to|make it] {y}",
        ], a=w.p(path), x=qa, y=qb)
        return Step(clause, [w.shell(f"sed -i 's/{a}/{b}/g' {path}")], f"I replaced {a} by {b} in {path}.")
    out = w.target()
    clause = w.say([
        "replace [|every |all |the word ]{x} [by|with] {y} in {a} and [save|write] the result to {o}",
        "[write|save] {a} with {x} replaced by {y} to {o}",
        "make {o} from {a} by changing {x} to {y}",
        "copy {a} to {o}, but with {y} instead of {x}",
        "[write|create] {o} as a copy of {a} in which {x} is replaced by {y}",
    ], a=w.p(path), x=qa, y=qb, o=w.d(out))
    call = w.shell(f"sed 's/{a}/{b}/g' {path} > {out}")
    w.made(out)
    return Step(clause, [call], f"The result is in {out}.")


@task(3)
def edit_lines(w):
    path, word, kind = w.source(), w.v.word(), w.rng.random()
    q = w.q(word) if w.rng.random() < 0.7 else word
    if kind < 0.3:
        line = w.v.phrase()
        clause = w.say(["insert [the line |]{q} at the [beginning|top|start] of {a}", "add {q} as the first line of {a}", "prepend [the line |]{q} to {a}", "put [the line |]{q} before everything else in {a}", "{a} should begin with a [new |]line {q}"], q=w.q(line), a=w.p(path))
        command = f"sed -i {sh('1i ' + line)} {path}"
    elif kind < 0.6:
        clause = w.say(["[delete|remove] [all|the|every] line[s|] [containing|with|that contain] {q} from {a}", "[delete|remove] from {a} the lines [containing|with] {q}", "drop every line of {a} that mentions {q}", "in {a}, delete the lines with {q}", "clean {a} of lines that contain {q}"], q=q, a=w.p(path))
        command = f"sed -i '/{word}/d' {path}"
    elif kind < 0.75:
        n = w.rng.randint(1, 20)
        clause = w.say(["[delete|remove] line [number |]{n} [of|from] {a}", "drop line {n} of {a}", "in {a}, delete line {n}", "take line {n} out of {a}", "erase line {n} in {a}"], n=n, a=w.p(path))
        command = f"sed -i {n}d {path}"
    elif kind < 0.9:
        clause = w.say(["[delete|remove] [all |the |]empty lines [from|in] {a} [in place|itself|]", "delete blank lines in {a}", "strip blank lines from {a} in place", "drop all empty lines of {a}", "get rid of the blank lines in {a}"], a=w.p(path))
        command = f"sed -i '/^$/d' {path}"
    else:
        mark = w.rng.choice(["# ", "> ", "- ", "* ", word + " "])
        clause = w.say(["put {q} [before|in front of] [every|each] line of {a}", "prefix [every|each] line of {a} with {q}", "start each line in {a} with {q}", "add the prefix {q} to all lines of {a}", "insert {q} at the start of every line in {a}"], q=w.q(mark), a=w.p(path))
        command = f"sed -i 's/^/{mark}/' {path}"
    call = w.shell(command)
    w.made(path)
    return Step(clause, [call], f"I changed {path}.")


@task(2)
def compare(w):
    a, b, out, kind = w.v.path(), w.v.path(), w.target("txt"), w.rng.random()
    if kind < 0.5:
        clause = w.say(["[write|save] the differences between {a} and {b} to {o}", "compare {a} and {b} and [write|save] the [diff|differences] to {o}", "put the diff of {a} and {b} into {o}", "diff {a} [against|with] {b}, [output|result] in {o}", "{o} should contain the diff between {a} and {b}"], a=w.d(a), b=w.d(b), o=w.d(out))
        command = f"diff {a} {b} > {out} || true"
    elif kind < 0.8:
        clause = w.say(["find the lines [that are |]common to {a} and {b} and [write|save] them to {o}", "[write|save] the lines that occur in both {a} and {b} to {o}", "put the [shared|common] lines of {a} and {b} into {o}", "which lines are in both {a} and {b}? Save them in {o}", "{o} should list the lines {a} and {b} have in common"], a=w.d(a), b=w.d(b), o=w.d(out))
        command = f"comm -12 <(sort {a}) <(sort {b}) > {out}"
    else:
        clause = w.say(["find the lines of {a} that are not in {b} and [write|save] them to {o}", "[write|save] the lines that occur in {a} but not in {b} to {o}", "put the lines only {a} has, compared with {b}, into {o}", "which lines of {a} are missing in {b}? Save them in {o}", "{o} should list the lines of {a} missing from {b}"], a=w.d(a), b=w.d(b), o=w.d(out))
        command = f"comm -23 <(sort {a}) <(sort {b}) > {out}"
    w.made(out)
    return Step(clause, [w.shell(command)], f"The result is in {out}.")
