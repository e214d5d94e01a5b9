"""Steps on files and folders: create, copy, move, delete, list, permissions."""

from world import Step, sh, task

FILE = "[a|the] [|new ][|text ]file [|called |named |with the name ]{p}"


@task(9)
def create_file(w):
    path, text = w.target(), w.v.sentence()
    clause = w.say([
        "create " + FILE + " [containing|that contains|with] [|the text |the line |just ]{q}",
        "write [|the text |the line |the words ]{q} [to|into] [|the file |a file called |a file named |a new file ]{p}",
        "make " + FILE + " with [the content|the contents|this text|one line]: {t}",
        "put [|the text |the sentence ]{q} [into|in] [|the file |a file called |a file ]{p}",
        "[save|store] [|the text |the phrase ]{q} [in|as|to] [|the file |a file named ]{p}",
        "create {p} [containing|with|with the text|with the content] {q}",
        "generate " + FILE + " whose [only |]content is {q}",
        "I want {p} to [contain|hold|say] {q}",
        "[add|make] " + FILE + " [saying|that says|holding|and write in it] {q}",
        "there should be " + FILE + " with [|the text ]{q} [in it|inside]",
        "[create|write] " + FILE + " [containing|with] [exactly|only] [|the text |the line ]{q}",
        "[create|write] " + FILE + " with exactly [this|one] line: {t}",
        "[create|make] " + FILE + "[. Its content should be|, its content is|. It should contain|. It must contain|. It says|. Write in it] {q}",
        "the file {p} should [contain|consist of|hold] [exactly |only |]{q}",
        "[produce|create] " + FILE + " that [has|contains] the [single |]line {q}",
        "create " + FILE + " [containing|that contains] the [word|text|string|message] {q}",
        "write a file [called|named] {p} that contains the [text|message|sentence|word] {q}",
        "create " + FILE + " [containing|that contains|with] [the word |the text |]{t}",
    ], p=w.p(path), q=w.q(text), t=text)
    step = Step(clause, [w.write(path, text)], f"I wrote {path}.")
    w.made(path, text)
    return step


@task(5)
def create_lines(w):
    path, lines = w.target(), w.v.lines()
    text = "\n".join(lines)
    count = ["zero", "one", "two", "three", "four", "five", "six"][len(lines)] if w.rng.random() < 0.6 else str(len(lines))
    clause = w.say([
        "create " + FILE + " with [the|these|the following] [|{n} ]lines: {l}",
        "write [the |]{n} lines {l} [to|into] [|the file |a file named ]{p}",
        "[create|write] " + FILE + " [containing|that contains|with] {l}, [each on its own line|one per line|on separate lines|one on each line]",
        "make " + FILE + " with [these|the] {n} lines:\n{block}",
        "put {l} [into|in] {p}, [one per line|each on a separate line|every item on its own line]",
        "[create|write] {p} [containing|with] [these|the following] lines:\n{block}",
        "[save|store] the [words|entries|items|values] {l} in {p}, [one per line|one a line|a line each]",
        "create " + FILE + " that lists {l} [one per line|on {n} lines|line by line]",
        "write the [following|list] [lines |]to {p}[:|, one per line:]\n{block}",
        "the file {p} should [have|contain] {n} lines: {l}",
    ], p=w.p(path), l=w.listing(lines, w.rng.choice(["{}", "{}", w.quote])), n=count, block=text)
    step = Step(clause, [w.write(path, text)], f"I wrote {len(lines)} lines to {path}.")
    w.made(path, text)
    return step


@task(2)
def create_empty(w):
    paths = [w.target() for _ in range(w.rng.choice([1, 1, 2, 3]))]
    folders = sorted({p.rpartition("/")[0] for p in paths if "/" in p})
    clause = w.say([
        "create [an|the] empty file[|s] [|named |called ]{l}",
        "make {l} as empty file[|s]",
        "[touch|create] {l} [without content|with no content|, left empty]",
        "I need [empty |blank ]file[|s] {l}[|, nothing in them|, without any text]",
        "add [the |]empty file[|s] {l}",
        "create {l}, empty[| for now]",
    ], l=w.listing([w.d(p) for p in paths]))
    command = "".join(f"mkdir -p {f} && " for f in folders) + "touch " + " ".join(paths)
    return Step(clause, [w.shell(command)], f"I created {' and '.join(paths)}.")


@task(4)
def make_folder(w):
    if w.rng.random() < 0.75:
        folder = w.v.folder()
        clause = w.say([
            "create [a|the] [|new ][folder|directory] [|called |named ]{d}",
            "make [a|the] [directory|folder] [|called |named ]{d}",
            "[add|set up] a [folder|directory] [|named |called ]{d}",
            "I need a [folder|directory] [|called |named ]{d}",
            "create the [nested |]directory [|path |structure |tree ]{d}",
            "there should be a [directory|folder] {d}",
        ], d=w.d(folder))
        return Step(clause, [w.shell(f"mkdir -p {folder}")], f"I created the folder {folder}.")
    if w.rng.random() < 0.5:
        folders = [w.v.folder(1) for _ in range(w.rng.choice([2, 3, 3, 4]))]
        clause = w.say([
            "create [the |][folders|directories] {l}",
            "make {n} [directories|folders]: {l}",
            "[create|add] [the |]{n} [folders|directories] [named |called |]{l}",
            "I need the [directories|folders] {l}",
            "set up [folders|directories] [called|named] {l}",
        ], l=w.listing([w.d(f) for f in folders]), n=len(folders))
        return Step(clause, [w.shell("mkdir -p " + " ".join(folders))], "I created the folders.")
    top, subs = w.v.folder(1), [w.v.folder(1) for _ in range(w.rng.choice([2, 2, 3]))]
    clause = w.say([
        "create a [folder|directory] {d} with [the |][subfolders|subdirectories] {l}",
        "make [the |]directory {d} and [inside it|in it|under it] {l}",
        "[inside|under] {d}, create [the |][folders|directories|subdirectories] {l}",
        "set up the [project |]structure {d} with {n} [folders|directories] inside: {l}",
        "create {d} containing [the |][subdirectories|folders] {l}",
    ], d=w.d(top), l=w.listing([w.d(f) for f in subs]), n=len(subs))
    return Step(clause, [w.shell("mkdir -p " + " ".join(f"{top}/{s}" for s in subs))], f"I created {top} and its folders.")


@task(2)
def folder_and_file(w):
    folder, base, text = w.v.folder(w.rng.choice([1, 1, 2])), w.v.path(nested=0), w.v.sentence()
    path = f"{folder}/{base}"
    clause = w.say([
        "create a [folder|directory] [|called |named ]{d} and [in it|inside it|inside] a file {b} [with|containing] [the text |]{q}",
        "make [a|the] directory {d} with a file {b} [in it |]that [contains|says] {q}",
        "in a [new |]folder [|called |named ]{d}, create [a file |]{b} [containing|with] {q}",
        "[create|write] {b} in [the|a] [folder|directory] {d} [with|containing] [the text |]{q}",
        "create the [directory|folder] {d}, and put a file [called|named] {b} [with the text|containing] {q} [in it|inside|there]",
    ], d=w.d(folder), b=w.d(base), q=w.q(text))
    step = Step(clause, [w.write(path, text)], f"I wrote {path}.")
    w.made(path, text)
    return step


def copied(w, verb, command, templates, many):
    """Copy or move: one file to a new name, into a folder, or all files of one extension."""
    rng, kind = w.rng, w.rng.random()
    if kind < 0.55:
        source, target = w.source(), w.target()
        folder = target.rpartition("/")[0]
        clause = w.say(templates, a=w.p(source), b=w.d(target))
        prefix = f"mkdir -p {folder} && " if folder else ""
        call, closing = w.shell(f"{prefix}{command} {source} {target}"), f"{verb} {source} to {target}."
        w.made(target)
        return Step(clause, [call], closing)
    folder = w.v.folder(1)
    if kind < 0.8:
        source = w.source()
        clause = w.say([t.replace("{b}", "[the folder |the directory ]{b}").replace(" as ", " to ") for t in templates], a=w.p(source), b=w.d(folder + rng.choice(["", "/"])))
        return Step(clause, [w.shell(f"mkdir -p {folder} && {command} {source} {folder}/")], f"{verb} {source} to {folder}.")
    ext = rng.choice(["txt", "log", "csv", "md", "py", "json", "jpg", "bak", "sh", "png"])
    clause = w.say(many, e=ext, b=w.d(folder))
    return Step(clause, [w.shell(f"mkdir -p {folder} && {command} *.{ext} {folder}/")], f"{verb} the {ext} files to {folder}.")


@task(3)
def copy(w):
    return copied(w, "I copied", "cp", [
        "copy [|the file ]{a} to {b}",
        "make a copy of {a} [called|named|as] {b}",
        "duplicate {a} as {b}",
        "create a backup of {a} [called|named|as] {b}",
        "[back up|backup] {a} to {b}",
        "copy {a} to {b}, [keeping|and keep] the original",
        "copy the contents of {a} to {b}",
    ], [
        "copy all .{e} files [|here |from the current directory ][to|into] [the folder |]{b}",
        "copy every .{e} file [to|into] [a folder called |a directory |]{b}",
        "back up all [the |]{e} files [to|into] {b}",
        "create a directory {b} and copy all .{e} files [into it|there]",
        "put a copy of [every|each] .{e} file in {b}",
    ])


@task(3)
def move(w):
    return copied(w, "I moved", "mv", [
        "rename [|the file ]{a} to {b}",
        "move [|the file ]{a} to {b}",
        "change the name of {a} to {b}",
        "[the file |]{a} should be [called|named|renamed to] {b}",
        "give {a} the new name {b}",
        "rename {a} as {b}",
    ], [
        "move all .{e} files [|here |from the current directory ][to|into] [the folder |]{b}",
        "move every .{e} file [to|into] [a folder called |a directory |]{b}",
        "create a [folder|directory] {b} and move all [the |].{e} files [into it|there]",
        "[sort|collect|gather] the {e} files into [the folder |]{b}",
        "put all .{e} files [into|in] [a directory named |]{b}",
    ])


@task(3)
def delete(w):
    rng, kind = w.rng, w.rng.random()
    if kind < 0.5:
        path = w.source()
        clause = w.say(["[delete|remove] [|the file ]{a}", "get rid of [|the file ]{a}", "[erase|delete] {a} [from disk|for good]", "I no longer need {a}, [delete|remove] it", "remove {a}"], a=w.p(path))
        return Step(clause, [w.shell(f"rm -f {path}")], f"I deleted {path}.")
    if kind < 0.75:
        ext = rng.choice(["tmp", "log", "bak", "txt", "swp", "old", "pyc", "cache", "o"])
        if rng.random() < 0.5:
            clause = w.say(["[delete|remove] all .{e} files [here|in the current directory|in this folder|]", "get rid of every .{e} file", "clean up: [delete|remove] the .{e} files", "[delete|remove] [every|each] file [ending in|with the extension] .{e}", "[erase|remove] all files [that end in|ending with] .{e}"], e=ext)
            return Step(clause, [w.shell(f"rm -f *.{ext}")], f"I deleted the {ext} files.")
        clause = w.say(["[delete|remove] all .{e} files [here and in all subfolders|in this directory and its subdirectories|recursively|anywhere below this directory]", "find and [delete|remove] [all|every] .{e} file[s|] [recursively|in all subfolders]", "recursively [delete|remove] files ending in .{e}", "[delete|remove] every .{e} file in the [whole |]tree", "get rid of .{e} files in all subdirectories"], e=ext)
        return Step(clause, [w.shell(f"find . -name '*.{ext}' -delete")], f"I deleted the {ext} files.")
    if kind < 0.88:
        folder = w.v.folder(1)
        clause = w.say(["[delete|remove] the [folder|directory] {d} [and everything in it|with all its contents|]", "remove {d} recursively", "get rid of the [directory|folder] {d}", "[delete|erase] the whole {d} [folder|directory]", "[remove|delete] the [directory|folder] {d} [including its contents|and its contents]"], d=w.d(folder))
        return Step(clause, [w.shell(f"rm -rf {folder}")], f"I deleted {folder}.")
    clause = w.say(["[delete|remove] all empty files [here|in this directory|]", "find and [delete|remove] empty files", "remove every file of size zero", "delete files that are empty", "get rid of [all |]zero-byte files"])
    return Step(clause, [w.shell("find . -type f -empty -delete")], "I deleted the empty files.")


OUT = "[and |][write|save|put|store] "


@task(4)
def find_files(w):
    out, ext = w.target("txt"), w.rng.choice(["txt", "log", "csv", "md", "py", "json", "yaml", "sh", "html", "conf", "xml"])
    kind = w.rng.random()
    if kind < 0.35:
        clause = w.say([
            "find all .{e} files [here and below|in all subfolders|recursively|in this directory tree] and [write|save] [their paths|the list|the sorted list] to {o}",
            "list [every|each] .{e} file [recursively|in the tree] in {o}[|, sorted]",
            "[save|write] the [sorted |]paths of all .{e} files [under the current directory|below this folder|in this tree] to {o}",
            "search for files ending in .{e} and put [the result|the paths|the list] into {o}",
            "write a [sorted |]list of all [the |]{e} files [in this directory and its subdirectories|recursively] to {o}",
        ], e=ext, o=w.p(out))
        call = w.shell(f"find . -name '*.{ext}' | sort > {out}")
    elif kind < 0.6:
        folder = w.v.folder(1) if w.rng.random() < 0.7 else "."
        clause = w.say([
            "count the files in {d} and [write|save] the [number|count] to {o}",
            "[write|save] the number of files in {d} to {o}",
            "how many files are in {d}? [Write|Save|Put] the [number|count|answer] [to|in] {o}",
            "count how many files {d} contains and [store|put] the [result|number] in {o}",
            "{o} should [contain|hold] the number of files in {d}",
        ], d="the current directory" if folder == "." else w.rng.choice(["", "the folder ", "the directory "]) + w.d(folder), o=w.p(out))
        call = w.shell(f"find {folder} -type f | wc -l > {out}")
    elif kind < 0.85:
        clause = w.say([
            "count [the|all|how many] .{e} files [there are |]and [write|save] the [number|count] to {o}",
            "[write|save] the number of .{e} files to {o}",
            "how many .{e} files are [there|here]? [Write|Save|Put] the [number|count|answer] [to|in] {o}",
            "count the files [ending in|with the extension] .{e} and put the [result|number] in {o}",
            "{o} should [contain|hold] the number of [{e}|.{e}] files",
        ], e=ext, o=w.p(out))
        call = w.shell(f"find . -name '*.{ext}' | wc -l > {out}")
    else:
        folder = w.v.folder(1)
        clause = w.say([
            "list the files in {d} and [write|save] the [list|names|listing] to {o}",
            "[write|save] [a listing|the file names] of {d} to {o}",
            "put the names of [the|all] files in {d} into {o}[|, one per line]",
            "[save|store] a [sorted |]list of what is in {d} as {o}",
            "list the contents of the [folder|directory] {d} in {o}",
        ], d=w.d(folder), o=w.p(out))
        call = w.shell(f"ls {folder} > {out}")
    w.made(out)
    return Step(clause, [call], f"The result is in {out}.")


@task(2)
def large_files(w):
    out, kind = w.target("txt"), w.rng.random()
    if kind < 0.4:
        clause = w.say(["find the largest file [here|in this directory|in the tree|] and [write|save] its name to {o}", "[write|save] the name of the [biggest|largest] file to {o}", "which file is the largest? Put its name in {o}", "put the name of the biggest file into {o}", "{o} should contain the name of the largest file"], o=w.p(out))
        call = w.shell(f"ls -S | head -n 1 > {out}")
    elif kind < 0.7:
        source = w.source()
        clause = w.say(["[write|save] the size of {a} in bytes to {o}", "how many bytes [has|does] {a}[| have]? [Write|Put] the number [to|in] {o}", "determine the file size [in bytes |]of {a} and save it [to|in] {o}", "put the [byte count|number of bytes] of {a} into {o}", "{o} should contain the size of {a} in bytes"], a=w.p(source), o=w.d(out))
        call = w.shell(f"wc -c < {source} > {out}")
    else:
        source = w.source()
        clause = w.say(["[write|save] the [SHA-256|sha256] [checksum|hash|sum] of {a} to {o}", "compute the sha256 [checksum|hash] of {a} and [put|save] it in {o}", "calculate the SHA-256 of {a}, output in {o}", "store the sha256 [sum|hash] of {a} in {o}", "{o} should hold the SHA-256 [hash|checksum] of {a}"], a=w.p(source), o=w.d(out))
        call = w.shell(f"sha256sum {source} | cut -d' ' -f1 > {out}")
    w.made(out)
    return Step(clause, [call], f"The result is in {out}.")


@task(2)
def permissions(w):
    kind = w.rng.random()
    if kind < 0.5:
        path = w.source("sh")
        clause = w.say(["make {a} executable", "set the executable [bit|flag] of {a}", "{a} [should be|must be made] executable", "give {a} execute permission", "add execute permission to {a}", "make the script {a} executable"], a=w.p(path))
        return Step(clause, [w.shell(f"chmod +x {path}")], f"{path} is executable now.")
    path, mode = w.source(), w.rng.choice(["600", "644", "755", "700", "640", "444", "400", "664"])
    clause = w.say(["set the permissions of {a} to {m}", "[change|set] the mode of {a} to {m}", "chmod {a} to {m}", "give {a} the [permissions|mode] {m}", "{a} should have [permissions|mode] {m}"], a=w.p(path), m=mode)
    return Step(clause, [w.shell(f"chmod {mode} {path}")], f"{path} has mode {mode}.")


@task(2)
def pack(w):
    kind, folder, stem = w.rng.random(), w.v.folder(1), w.v.stem()
    if kind < 0.45:
        clause = w.say(["[pack|compress|archive] [the folder |the directory |]{d} [into|as|to] {o}", "create [a|the] [tar |gzipped tar |]archive {o} [of|from|with] [the folder |the directory |]{d}", "make a tarball {o} of {d}", "put the [directory|folder] {d} into the archive {o}", "create {o} from the [folder|directory] {d}"], d=w.d(folder), o=w.d(stem + ".tar.gz"))
        return Step(clause, [w.shell(f"tar -czf {stem}.tar.gz {folder}")], f"I packed {folder} into {stem}.tar.gz.")
    if kind < 0.75:
        clause = w.say(["[unpack|extract] [the archive |]{o}", "[extract|unpack] {o} [here|into the current directory|in this directory]", "open up the archive {o}", "untar {o}", "[extract|unpack] the contents of {o}"], o=w.d(stem + ".tar.gz"))
        return Step(clause, [w.shell(f"tar -xzf {stem}.tar.gz")], f"I unpacked {stem}.tar.gz.")
    source, link = w.source(), w.v.path(nested=0)
    clause = w.say(["create a [symbolic link|symlink] {b} [to|pointing to|that points to] {a}", "make {b} a [symlink|symbolic link] to {a}", "link {b} to {a} [symbolically|with a symlink]", "add a symlink [called|named] {b} to {a}", "{b} should be a [symlink|symbolic link] to {a}"], a=w.p(source), b=w.d(link))
    return Step(clause, [w.shell(f"ln -s {source} {link}")], f"{link} points to {source}.")


@task(3)
def append(w):
    path, line = w.source(), w.v.sentence()
    clause = w.say([
        "append [|the line |the text ]{q} to {a}",
        "add [|the line |a line |the text ]{q} [to|at the end of|to the end of] {a}",
        "[put|write] {q} at the end of {a}[|, keeping what is there]",
        "add a [new |last |]line to {a}: {t}",
        "extend {a} [with|by] the line {q}",
        "append a line [saying|with the text|that says] {q} to {a}",
    ], a=w.p(path), q=w.q(line), t=line)
    call = w.shell(f"echo {sh(line)} >> {path}")
    w.made(path)
    return Step(clause, [call], f"I added the line to {path}.")


@task(2)
def concatenate(w):
    sources, out = [w.v.path() for _ in range(w.rng.choice([2, 2, 2, 3]))], w.target()
    clause = w.say([
        "[concatenate|combine|merge|join] [the files |]{l} into {o}",
        "[concatenate|combine] {l} [in this order |]and [write|save] the result to {o}",
        "write the contents of {l} [one after the other |]to {o}",
        "make {o} out of {l}[|, in that order]",
        "put {l} together [into|in] [one file |a file named |]{o}",
    ], l=w.listing([w.d(s) for s in sources]), o=w.d(out))
    call = w.shell(f"cat {' '.join(sources)} > {out}")
    w.made(out)
    return Step(clause, [call], f"I joined them into {out}.")


@task(1)
def numbered_files(w):
    n, stem, ext = w.rng.randint(2, 20), w.v.word(), w.rng.choice(["txt", "log", "md", "dat"])
    clause = w.say([
        "create {n} [|empty ]files named {s}1.{e} to {s}{n}.{e}",
        "make [the |]files {s}1.{e} through {s}{n}.{e}",
        "create [the |]empty files {s}1.{e}, {s}2.{e} and so on up to {s}{n}.{e}",
        "I need {n} empty files, {s}1.{e} to {s}{n}.{e}",
        "[create|touch] files {s}1.{e} up to {s}{n}.{e}",
    ], n=n, s=stem, e=ext)
    return Step(clause, [w.shell(f"touch {stem}{{1..{n}}}.{ext}")], f"I created {n} files.")
