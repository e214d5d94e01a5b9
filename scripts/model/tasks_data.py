"""Steps on structured data: JSON, CSV, INI, and files read before acting."""

import json

from world import Step, task

OPEN = "import csv\nrows = list(csv.DictReader(open({a!r})))\n"


def value(w):
    """A scalar for a key: text, number or boolean."""
    kind = w.rng.random()
    if kind < 0.4:
        return w.v.word()
    if kind < 0.55:
        return w.v.name()
    if kind < 0.85:
        return w.v.number()
    if kind < 0.92:
        return w.rng.choice([True, False])
    return round(w.rng.uniform(0, 100), w.rng.choice([1, 2]))


def pairs(w, low=1, high=4):
    keys = []
    while len(keys) < w.rng.randint(low, high) or not keys:
        key = w.v.identifier() if w.rng.random() < 0.7 else w.rng.choice(["name", "age", "version", "port", "host", "id", "title", "count", "debug", "price"])
        if key not in keys:
            keys.append(key)
    return {key: value(w) for key in keys}


@task(5)
def write_json(w):
    path, data = w.target("json"), pairs(w)
    plain = {k: json.dumps(v) if not isinstance(v, str) else v for k, v in data.items()}
    form = w.rng.choice(["{k} {v}", "{k} = {v}", "{k}: {v}", "{k} set to {v}", "{k} with value {v}", '"{k}" {q}', "the key {k} with the value {v}", "{k} {q}"])
    items = w.listing([form.format(k=k, v=v, q=w.q(v) if isinstance(data[k], str) else v) for k, v in plain.items()])
    text = json.dumps(data)
    clause = w.say([
        "create [a|the] JSON file {p} with {i}",
        "write [a|the] JSON [object|file] [|with ]{i} to {p}".replace("[|with ]", "with "),
        "[make|create] {p}, a JSON [file|object|document] with {i}",
        "create [a|the] [JSON |]file {p} [containing|with] [the JSON |]{t}",
        "save a JSON object with {i} [as|in|to] {p}",
        "[write|create] {p} as [valid |]JSON with [these keys|the fields|the keys]: {i}",
        "{p} should be [a|valid] JSON [file |object |]with {i}",
        "[store|write] {i} as JSON in {p}",
        "create [a file |]{p} containing a JSON object with {i}",
    ], p=w.p(path), i=items, t=text)
    step = Step(clause, [w.write(path, text)], f"I wrote {path}.")
    w.made(path, text)
    return step


@task(1.5)
def write_json_list(w):
    path = w.target("json")
    data = w.v.lines(2, 5) if w.rng.random() < 0.6 else [w.v.number() for _ in range(w.rng.randint(2, 6))]
    text = json.dumps(data)
    clause = w.say([
        "create [a|the] JSON file {p} [containing|with|holding] [a list of|the list|an array of] {l}",
        "write {l} as a JSON [array|list] to {p}",
        "[make|create] {p} with the JSON array {t}",
        "save the JSON list of {l} [in|to] {p}",
        "{p} should [hold|contain] a JSON array of {l}",
    ], p=w.p(path), l=w.listing([str(d) for d in data]), t=text)
    step = Step(clause, [w.write(path, text)], f"I wrote {path}.")
    w.made(path, text)
    return step


@task(4)
def write_csv(w):
    path, rng = w.target("csv"), w.rng
    columns = []
    while len(columns) < rng.randint(2, 4):
        column = w.v.identifier() if rng.random() < 0.5 else rng.choice(["name", "age", "city", "price", "id", "score", "amount", "date", "email", "quantity"])
        if column not in columns:
            columns.append(column)
    kinds = [rng.random() < 0.45 for _ in columns]
    rows = [[str(w.v.number()) if kind else (w.v.name() if i == 0 else w.v.word()) for i, kind in enumerate(kinds)] for _ in range(rng.randint(1, 4))]
    header, body = ",".join(columns), [",".join(r) for r in rows]
    text = "\n".join([header, *body])
    clause = w.say([
        "create [a|the] CSV file {p} with [the |]header {h} and [the |]row[s|] {r}",
        "[write|create] {p} with [the |]columns {c} and [the |]row[s|] {r}",
        "make [a|the] CSV {p} [with|containing]:\n{t}",
        "save [this|these] CSV [data|lines] [as|to|in] {p}:\n{t}",
        "create {p} as CSV: [the |]header {h}, [then |]row[s|] {r}",
        "write a CSV file [called|named] {p} [with|having] [the |]columns {c}, row[s|] {r}",
    ], p=w.p(path), h=w.q(header) if rng.random() < 0.4 else header, c=w.listing(columns), r=rng.choice([w.listing(body, w.quote), "; ".join(body), w.listing([f"({b})" for b in body])]), t=text)
    step = Step(clause, [w.write(path, text)], f"I wrote {path}.")
    w.made(path, text)
    return step


@task(3)
def write_config(w):
    rng, data = w.rng, {k: v for k, v in pairs(w).items()}
    plain = {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in data.items()}
    section, kind = w.v.identifier(), rng.random()
    listed = w.listing([rng.choice(["{} = {}", "{}={}", "{} set to {}"]).format(k, v) for k, v in plain.items()])
    if kind < 0.45:
        path, text = w.target(rng.choice(["ini", "cfg", "conf"])), f"[{section}]\n" + "\n".join(f"{k} = {v}" for k, v in plain.items())
        clause = w.say(["create [an|the] INI file {p} with [a|the] section {s} and {i}", "write {p} with [a|the] section {s} [holding|containing] {i}", "[make|create] {p}: [a|the] section {s} with {i}", "[create|make] [a|the] config file {p} [in INI format |]with section {s}, {i}", "in {p}, [create|write] [a|the] section {s} [with|containing] {i}"], p=w.p(path), s=rng.choice(["[{}]", "{}", '"{}"']).format(section), i=listed)
    elif kind < 0.7:
        path, text = w.target("env") if rng.random() < 0.5 else ".env", "\n".join(f"{k.upper()}={v}" for k, v in plain.items())
        listed = w.listing([f"{k.upper()}={v}" for k, v in plain.items()])
        clause = w.say(["create [an env file|the file] {p} with {i}", "write {i} to {p}[|, one per line]", "[make|create] {p} [defining|setting] {i}", "{p} should [define|set] {i}", "set {i} in a new file {p}"], p=w.p(path), i=listed)
    else:
        path, text = w.target(rng.choice(["yaml", "yml"])), "\n".join(f"{k}: {v}" for k, v in plain.items())
        clause = w.say(["create [a|the] YAML file {p} with {i}", "write {i} as YAML to {p}", "[make|create] {p}, a YAML file [setting|with] {i}", "{p} should be YAML with {i}", "save {i} in YAML [format |]as {p}"], p=w.p(path), i=listed)
    step = Step(clause, [w.write(path, text)], f"I wrote {path}.")
    w.made(path, text)
    return step


WRITE = ["and [write|save|store|put] [it|the value|the result] [to|in|into] {o}", "[into|to] {o}", "and save [it|the value] as {o}", "[storing|saving] it in {o}", "with the [result|value] in {o}"]


def compute(w, ext, heads, code, **slots):
    """A step done by the python tool on one file, its result in another."""
    source, out = w.given(w.v.path(ext)) if not (w.last or "").endswith("." + ext) else w.last, w.v.path("txt", nested=0)
    result = w.say(WRITE, o="{o}")
    clause = w.say([h + " " + result for h in heads], a=w.p(source), o=w.d(out), **slots)
    call = w.python(code.replace("SRC", repr(source)).replace("OUT", repr(out)), "")
    w.made(out)
    return Step(clause, [call], f"The result is in {out}.")


@task(4)
def json_value(w):
    key, kind = w.v.identifier() if w.rng.random() < 0.7 else w.rng.choice(["name", "version", "port", "host", "title", "id"]), w.rng.random()
    q = w.q(key) if w.rng.random() < 0.5 else key
    if kind < 0.6:
        return compute(w, "json", [
            "[read|take|get] the [value of|field|key] {k} [from|in] [the JSON file |]{a}",
            "extract [the value of |]{k} from {a}",
            "look up {k} in [the JSON file |]{a}",
            "get {k} out of {a}",
            "find the value of [the key |]{k} in {a}",
            "read [the JSON file |]{a}, take its {k}",
        ], f"import json\nprint(json.load(open(SRC))[{key!r}], file=open(OUT, 'w'))", k=q)
    if kind < 0.75:
        other = w.v.identifier()
        return compute(w, "json", [
            "[read|take|get] the nested value {k} from {a}",
            "extract {k} from [the JSON file |]{a}",
            "look up {k} in [the JSON in |]{a}",
            "get the value at {k} in {a}",
            "find {k} in the JSON {a}",
        ], f"import json\nprint(json.load(open(SRC))[{other!r}][{key!r}], file=open(OUT, 'w'))", k=f"{other}.{key}")
    if kind < 0.88:
        return compute(w, "json", [
            "count the [entries|items|elements] [in|of] [the JSON file |the JSON list in ]{a}",
            "get the number of [items|elements|entries] in the JSON [array|list] {a}",
            "determine how many [entries|items] [the JSON file |]{a} has",
            "compute the length of the JSON list in {a}",
            "find how many elements are in the JSON array {a}",
        ], "import json\nprint(len(json.load(open(SRC))), file=open(OUT, 'w'))")
    return compute(w, "json", [
        "sum [up |]the {k} [values|fields] of all [entries|objects|items] in [the JSON list |]{a}",
        "add up {k} over all [objects|entries] in {a}",
        "compute the total {k} of the [entries|items|objects] in [the JSON file |]{a}",
        "calculate the sum of all {k} values in {a}",
        "total the field {k} of every object in {a}",
    ], f"import json\nprint(sum(x[{key!r}] for x in json.load(open(SRC))), file=open(OUT, 'w'))", k=q)


@task(2)
def json_change(w):
    rng, path, key, new = w.rng, w.v.path("json"), w.v.identifier(), value(w)
    shown = json.dumps(new) if not isinstance(new, str) else (w.q(new) if rng.random() < 0.5 else new)
    kind = rng.random()
    if kind < 0.7:
        clause = w.say(["[set|change] {k} to {v} in [the JSON file |]{a}", "in {a}, [set|change] [the key |the value of |]{k} to {v}", "[add|set] the [key|field] {k} with [the |]value {v} in {a}", "update {a} so that {k} is {v}", "[the value of |]{k} in {a} should [become|be] {v}"], a=w.p(path), k=w.q(key) if rng.random() < 0.4 else key, v=shown)
        code = f"import json\nd = json.load(open({path!r}))\nd[{key!r}] = {new!r}\njson.dump(d, open({path!r}, 'w'), indent=2)"
    elif kind < 0.85:
        clause = w.say(["[remove|delete] [the key |the field |]{k} from [the JSON file |]{a}", "in {a}, delete the key {k}", "drop {k} from the JSON {a}", "take the field {k} out of {a}", "erase the key {k} in [the JSON file |]{a}"], a=w.p(path), k=w.q(key) if rng.random() < 0.4 else key)
        code = f"import json\nd = json.load(open({path!r}))\ndel d[{key!r}]\njson.dump(d, open({path!r}, 'w'), indent=2)"
    else:
        clause = w.say(["[format|pretty-print|indent] [the JSON file |]{a}", "reformat {a} with indentation", "make the JSON in {a} readable[| with indentation]", "pretty print the JSON file {a} in place", "indent the JSON of {a}"], a=w.p(path))
        code = f"import json\nd = json.load(open({path!r}))\njson.dump(d, open({path!r}, 'w'), indent=2)"
    return Step(clause, [w.python(code, "")], f"I changed {path}.")


@task(6)
def csv_compute(w):
    column, rng = w.v.identifier() if w.rng.random() < 0.5 else w.rng.choice(["price", "amount", "score", "age", "quantity", "salary", "total", "sales", "value", "weight"]), w.rng
    q = w.q(column) if rng.random() < 0.4 else column
    name, expr, verbs = rng.choice([
        ("sum", "sum(float(r[K]) for r in rows)", ["sum [up |]the {k} column [of|in] [the CSV file |]{a}", "compute the [sum|total] of [the column |]{k} in {a}", "add up [all values of |the values in ]the {k} column [of|in] {a}", "calculate the total {k} [in|of] {a}", "[total|sum] the values of [the column |]{k} in {a}", "compute the total of the {k} column in {a}"]),
        ("mean", "sum(float(r[K]) for r in rows) / len(rows)", ["compute the [average|mean] of [the column |]{k} in {a}", "calculate the [average|mean] {k} [in|of] {a}", "average the {k} column of {a}", "get the mean of {k} from [the CSV |]{a}", "find the average of the {k} column in {a}"]),
        ("max", "max(float(r[K]) for r in rows)", ["find the [maximum|largest|highest] {k} in {a}", "get the [maximum|largest value] of [the column |]{k} in {a}", "determine the [highest|largest] {k} of {a}", "look up the maximum of {k} in the CSV {a}", "get the highest value of the {k} column in {a}"]),
        ("min", "min(float(r[K]) for r in rows)", ["find the [minimum|smallest|lowest] {k} in {a}", "get the [minimum|smallest value] of [the column |]{k} in {a}", "determine the [lowest|smallest] {k} of {a}", "look up the minimum of {k} in the CSV {a}", "get the lowest value of the {k} column in {a}"]),
    ])
    code = OPEN.replace("{a!r}", "SRC") + f"x = {expr}\nprint(int(x) if x == int(x) else round(x, 2), file=open(OUT, 'w'))"
    return compute(w, "csv", verbs, code.replace("K", repr(column)), k=q)


@task(4)
def csv_select(w):
    rng, column, other = w.rng, w.v.identifier(), w.v.identifier()
    if rng.random() < 0.5:
        column = rng.choice(["name", "price", "age", "city", "score", "amount", "email", "category", "status"])
    q, kind = w.q(column) if rng.random() < 0.4 else column, rng.random()
    if kind < 0.25:
        return compute(w, "csv", ["extract the {k} column [from|of] [the CSV |]{a}[|, without header]", "take [the column |]{k} [from|of] {a}", "get all values of [the column |]{k} [from|in] {a}, one per line,", "list the {k} of every row in {a}", "pull the {k} column out of {a}"], OPEN.replace("{a!r}", "SRC") + f"print(*[r[{column!r}] for r in rows], sep='\\n', file=open(OUT, 'w'))", k=q)
    if kind < 0.45:
        return compute(w, "csv", ["count the [data |]rows [of|in] [the CSV file |]{a}[| without the header]", "count how many [data rows|records] {a} has", "determine the number of [data rows|records] in [the CSV |]{a}", "get the row count of {a}, not counting the header,", "find out how many records are in {a}"], OPEN.replace("{a!r}", "SRC") + "print(len(rows), file=open(OUT, 'w'))")
    if kind < 0.6:
        val = w.v.word() if rng.random() < 0.7 else w.v.name()
        return compute(w, "csv", ["count the rows [of|in] {a} [where|in which] {k} is {v}", "count how many rows in {a} have {k} {v}", "get the number of records with {k} equal to {v} in {a}", "determine how many rows of {a} have the {k} {v}", "find how many entries of {a} have {v} as {k}"], OPEN.replace("{a!r}", "SRC") + f"print(sum(r[{column!r}] == {val!r} for r in rows), file=open(OUT, 'w'))", k=q, v=w.q(val) if rng.random() < 0.5 else val)
    if kind < 0.75:
        return compute(w, "csv", ["get the [unique|distinct|different] values of [the column |]{k} in {a}, [sorted|in order],", "list the [distinct|unique] {k} values of {a} [sorted |in sorted order |]", "collect the different {k} values [of|in] {a} [alphabetically |]", "extract the unique {k} entries from {a}", "find all distinct {k} values in [the CSV |]{a}"], OPEN.replace("{a!r}", "SRC") + f"print(*sorted({{r[{column!r}] for r in rows}}), sep='\\n', file=open(OUT, 'w'))", k=q)
    if kind < 0.88:
        return compute(w, "csv", ["find the {n} with the [highest|largest|biggest] {k} in {a}", "get the {n} of the row with the [highest|largest] {k} in {a}", "determine which {n} has the [highest|most] {k} in {a}", "look up who or what {n} has the largest {k} in {a}", "find which {n} has the maximum {k} in the CSV {a}"], OPEN.replace("{a!r}", "SRC") + f"print(max(rows, key=lambda r: float(r[{column!r}]))[{other!r}], file=open(OUT, 'w'))", k=q, n=other)
    code = OPEN.replace("{a!r}", "SRC") + f"t = {{}}\nfor r in rows:\n    t[r[{other!r}]] = t.get(r[{other!r}], 0) + int(r[{column!r}])\nfor k in sorted(t):\n    print(f'{{k}},{{t[k]}}', file=open(OUT, 'a'))"
    return compute(w, "csv", ["sum [up |]{k} [per|by|for each] {n} in {a}", "compute the total {k} [per|for each|by] {n} in [the CSV |]{a}", "group {a} by {n}, add up {k}", "calculate {k} totals [by|per] {n} from {a}", "total the {k} of each {n} in {a}"], code, k=q, n=other)


@task(2)
def csv_transform(w):
    rng, source, column, kind = w.rng, w.given(w.v.path("csv")), w.v.identifier(), w.rng.random()
    head = OPEN.format(a=source)
    if kind < 0.45:
        out = w.v.path("json", nested=0)
        clause = w.say(["convert [the CSV file |]{a} to [JSON|a JSON file] {o}", "turn {a} into [a list of JSON objects|JSON] [in|saved as] {o}", "[write|save] the rows of {a} as JSON [objects |]to {o}", "make a JSON version of {a} [called|named] {o}", "read {a} and write its rows as a JSON array to {o}"], a=w.p(source), o=w.d(out))
        code = f"import json\n{head}json.dump(rows, open({out!r}, 'w'), indent=2)"
    else:
        out, number, numeric = w.v.path("csv", nested=0), w.v.number(), kind < 0.75
        q = w.q(column) if rng.random() < 0.4 else column
        tail = f"out = csv.DictWriter(open({out!r}, 'w'), rows[0].keys())\nout.writeheader()\nout.writerows(rows)"
        if numeric:
            sign, words = rng.choice([(">", "[greater|larger|higher|more] than"), ("<", "[less|smaller|lower] than"), (">=", "at least"), (">", "above"), ("<", "below")])
            clause = w.say(["[write|save|keep|copy] [the|all] rows of {a} [with|where] {k} " + words + " {n} to {o}", "filter {a} for {k} " + words + " {n} and [write|save] the rows to {o}", "select [the|all] rows [of|from] {a} [whose|where] {k} is " + words + " {n} into {o}".replace("whose|where", "where"), "{o} should contain the rows of {a} with {k} " + words + " {n}", "take the rows of {a} where {k} is " + words + " {n} and save them in {o}"], a=w.p(source), o=w.d(out), k=q, n=number)
            code = head + f"rows = [r for r in rows if float(r[{column!r}]) {sign} {number}]\n" + tail
        else:
            clause = w.say(["sort [the rows of |]{a} by [the column |]{k} [and write the result to|into] {o}", "[write|save] {a} sorted by {k} to {o}", "order the rows of {a} by {k}, output in {o}", "sort the CSV {a} on {k} and save it as {o}", "make {o}, the rows of {a} sorted by {k}"], a=w.p(source), o=w.d(out), k=q)
            code = head + f"rows.sort(key=lambda r: r[{column!r}])\n" + tail
    w.made(out)
    return Step(clause, [w.python(code, "")], f"I wrote {out}.")


@task(3)
def csv_columns(w):
    n, kind = w.rng.randint(1, 6), w.rng.random()
    nth = ["first", "second", "third", "fourth", "fifth", "sixth"][n - 1]
    source, out = w.given(w.v.path("csv")), w.target("txt")
    if kind < 0.5:
        clause = w.say(["extract [the {t} column|column {n}] [of|from] {a} [into|to] {o}", "[write|save] [the {t} column|column {n}] of {a} to {o}", "cut column {n} out of {a} and [save|write] it to {o}", "take the {t} [field|column] of each line of {a} and put it in {o}", "{o} should contain column {n} of {a}"], a=w.p(source), o=w.d(out), n=n, t=nth)
        command = f"cut -d, -f{n} {source} > {out}"
    elif kind < 0.8:
        clause = w.say(["[sum|add up] [the {t} column|column {n}] of {a} and [write|save] the [sum|total] to {o}", "[write|save] the sum of [the {t} column|column {n}] of {a} to {o}", "total column {n} of {a} [in|into] {o}", "compute the sum over the {t} column of {a}, [result|total] in {o}", "{o} should contain the sum of column {n} of {a}"], a=w.p(source), o=w.d(out), n=n, t=nth)
        command = f"awk -F, '{{s += ${n}}} END {{print s}}' {source} > {out}"
    else:
        clause = w.say(["[write|save] {a} without its header [line |row |]to {o}", "remove the header [line|row] of {a} and save the rest [to|in] {o}", "drop the first line of {a}, [result|output] in {o}", "copy all but the first line of {a} to {o}", "{o} should contain {a} minus the header"], a=w.p(source), o=w.d(out))
        command = f"tail -n +2 {source} > {out}"
    w.made(out)
    return Step(clause, [w.shell(command)], f"The result is in {out}.")


@task(3)
def config_value(w):
    rng, key, out = w.rng, w.v.identifier(), w.target("txt")
    if rng.random() < 0.3:
        key = rng.choice(["port", "host", "version", "user", "timeout", "path", "name"])
    ext = rng.choice(["ini", "conf", "env", "cfg", "properties", "txt"])
    source, q = w.given(w.v.path(ext)), w.q(key) if rng.random() < 0.3 else key
    clause = w.say(["[read|take|get] the value of {k} from {a} and [write|save] it to {o}", "extract [the setting |]{k} from {a} [into|to] {o}", "[write|save] the value of {k} in {a} to {o}", "look up [the setting |]{k} in {a} and put [it|the value] in {o}", "{o} should contain the value of {k} from {a}", "find {k} in the config file {a} and [write|save] [just |only |]its value to {o}"], a=w.p(source), o=w.d(out), k=q)
    command = f"sed -n 's/^{key} *= *//p' {source} > {out}"
    w.made(out)
    return Step(clause, [w.shell(command)], f"The value is in {out}.")


@task(6)
def read_then_act(w):
    """Look at a file first, then use what it says."""
    rng, kind = w.rng, w.rng.random()
    if kind < 0.4:
        data = pairs(w, 2, 4)
        key = rng.choice(list(data))
        plain = {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in data.items()}
        form, ext = rng.choice([("{} = {}", "ini"), ("{}={}", "conf"), ("{}: {}", "yaml"), ("{}: {}", "txt")])
        source, out, text = w.v.path(ext), w.target("txt"), "\n".join(form.format(k, v) for k, v in plain.items())
        if rng.random() < 0.3:
            source, text = w.v.path("json"), json.dumps(data)
        clause = w.say(["read {a}[|,] and [then |]write the [value of |]{k} to {o}", "open {a}, [find|look for] {k} and write its value to {o}", "look at {a} and put what {k} is into {o}", "check {a} for {k}, [then |and ]write the value [to|into] {o}", "read the file {a} and create {o} with the value of {k}"], a=w.p(source), o=w.d(out), k=w.q(key) if rng.random() < 0.4 else key)
        calls = [w.read(source, text), w.write(out, plain[key])]
        closing, content = f"{key} is {plain[key]}; I wrote it to {out}.", plain[key]
    elif kind < 0.65:
        source, text, out = w.v.path(), w.v.sentence(1, 5), w.target()
        clause = w.say(["read {a} and write [its content|what it says|the same text] to {o}", "read {a}, then create {o} with the same [content|text]", "look into {a} and write what you find to {o}", "open {a} and put its text into a new file {o}", "read what is in {a} and store the same in {o}"], a=w.p(source), o=w.d(out))
        calls, closing, content = [w.read(source, text), w.write(out, text)], f"I wrote the text of {source} to {out}.", text
    elif kind < 0.85:
        source, name = w.v.path(), w.target()
        content = w.v.sentence(1, 5)
        quoted = w.q(content) if rng.random() < 0.6 else content
        text = rng.choice(["Create {p} with the text {q}", "Please write {q} to {p}.", "Make a file {p} containing {q}", "write {q} into the file {p}"]).format(p=name, q=w.q(content))
        clause = w.say(["[read|open] {a} and [do what it says|follow its instructions|do what it asks]", "follow the instruction[s|] in {a}", "{a} [contains|has] an instruction: carry it out", "do what [the file |]{a} [says|asks for]", "read the task in {a} and carry it out"], a=w.p(source))
        out, calls, closing = name, [w.read(source, text), w.write(name, content)], f"I wrote {name} as {source} asks."
        del quoted
    else:
        lines = w.v.lines(2, 5)
        i = rng.randrange(len(lines))
        nth = ["first", "second", "third", "fourth", "fifth"][i]
        source, out, content = w.v.path(), w.target(), lines[i]
        clause = w.say(["read {a} and write its {t} line to {o}", "look at {a}, [then |]write the {t} line into {o}", "open {a} and save [only |]the {t} line [as|in] {o}", "read the file {a} and put line {n} into {o}", "check {a} and create {o} with its {t} line"], a=w.p(source), o=w.d(out), t=nth, n=i + 1)
        calls, closing = [w.read(source, "\n".join(lines)), w.write(out, content)], f"I wrote the {nth} line to {out}."
    w.made(out, content)
    return Step(clause, calls, closing)
