"""Steps about the machine and about git."""

from world import Step, sh, task

COMMIT = "git -c user.name=alara -c user.email=alara@localhost commit -qm "

FACTS = [
    ("whoami", ["the [name of the current user|current user name|user name]", "the current user", "who the current user is", "the name of the user [you run as|running this]", "the login name of the current user"]),
    ("hostname", ["the host[ |]name [of this machine|]", "the name of [this machine|the computer]", "this machine's host name", "the machine's name", "the hostname of the system"]),
    ("pwd", ["the [absolute |full |]path of the [current|working] directory", "the current [working |]directory", "the working directory's [absolute |]path", "where we are in the file system", "the full path of this directory"]),
    ("uname -s", ["the [kernel name|name of the kernel]", "the name of the operating system [kernel|]", "the operating system name", "what kind of system this is", "the output of uname -s"]),
    ("uname -r", ["the kernel [release|version]", "the [version|release] of the kernel", "the running kernel's version", "which kernel version runs", "the Linux kernel release"]),
    ("uname -m", ["the [machine|hardware|CPU|processor] architecture", "the architecture of [this machine|the processor]", "this computer's architecture", "which architecture the machine has", "the hardware architecture of the system"]),
    ("uname -a", ["[all|full|complete] system information [from uname|]", "the [complete|full] uname output", "the output of uname -a", "everything uname knows", "full kernel and system information"]),
    ("nproc", ["the number of [CPU cores|CPUs|processors|cores]", "how many [CPUs|cores|processors] there are", "the [CPU|core|processor] count", "how many CPU cores this machine has", "the number of processing units"]),
    ("date +%Y-%m-%d", ["[today's date|the current date|the date of today] [as|in the form|in the format] YYYY-MM-DD", "today's date", "the current date", "the date in ISO format", "the date of today as YYYY-MM-DD"]),
    ("date +%Y", ["the current year", "this year", "the year", "which year it is", "the current year as a number"]),
    ("date +%H:%M", ["the current time [as HH:MM|]", "the time of day", "the time", "what time it is", "the current time of day as HH:MM"]),
    ("date +%s", ["the [current |]Unix time[|stamp]", "the seconds since the epoch", "the current timestamp in seconds", "the epoch seconds", "the current Unix timestamp"]),
    ("date +%A", ["the [current |]day of the week", "today's weekday", "the name of today's weekday", "which weekday it is", "the weekday of today"]),
    ("id -u", ["the [numeric user id|user id|uid] of the current user", "the current user's id", "the numeric user id", "the uid", "the current uid as a number"]),
    ("id -gn", ["the [primary group|group name] of the current user", "the current user's group", "the name of the primary group", "which group the user is in", "the primary group's name"]),
    ("python3 --version", ["the [installed |]Python version", "the version of [Python|python3]", "which Python version is installed", "what python3 --version prints", "the installed version of Python"]),
    ("bash --version | head -n 1", ["the [installed |]bash version", "the version of bash", "which bash version is installed", "the first line of bash --version", "the installed version of bash"]),
    ("git --version", ["the [installed |]git version", "the version of git", "which git version is installed", "what git --version prints", "the installed version of git"]),
    ("df -h .", ["the [disk usage|free disk space|disk space] [of this file system|here|]", "the free space on this disk", "how full the disk is", "the disk space report", "the disk usage of the current file system"]),
    ("du -sh .", ["the total size of [this|the current] directory", "how much space this directory takes", "the disk usage of the current directory", "the size of the working directory", "the total size of the current folder"]),
    ("free -m", ["the memory usage [in megabytes|]", "how much memory is free", "the memory statistics", "the free and used memory", "the amount of memory in use"]),
    ("awk '/MemTotal/ {print $2}' /proc/meminfo", ["the total [memory|RAM] in [kB|kilobytes]", "the amount of RAM in kB", "the machine's total memory [from /proc/meminfo|]", "how much memory is installed, in kilobytes", "the total memory of this machine in kB"]),
    ("cut -d' ' -f1 /proc/uptime", ["the uptime in seconds", "how many seconds the system has been up", "the seconds since boot", "the system's uptime in seconds", "the number of seconds since the boot"]),
    ("sed -n 's/^PRETTY_NAME=//p' /etc/os-release", ["the name of the [Linux |]distribution", "which Linux distribution this is", "the distribution's name", "the [pretty |]name of the operating system distribution", "the Linux distribution name"]),
    ("env | sort", ["[all |the ]environment variables[|, sorted]", "the [sorted |]environment", "a sorted list of the environment variables", "every environment variable", "the list of all environment variables"]),
    ("ps aux | wc -l", ["the number of [running |]processes", "how many processes run", "the process count", "the count of running processes", "how many processes are running"]),
    ("echo $HOME", ["the [path of the |]home directory", "the value of [the environment variable |]HOME", "the current user's home directory", "where the home directory is", "the home directory of the current user"]),
    ("echo $SHELL", ["the [default|login] shell", "the value of [the environment variable |]SHELL", "which shell is set", "the user's shell", "the current user's default shell"]),
    ("echo $PATH", ["the value of [the environment variable |]PATH", "the PATH [variable|]", "the search path", "the content of PATH", "the value of the PATH variable"]),
]
ANSWERS = {"whoami": "root", "pwd": "/tmp/work", "nproc": "4", "uname -s": "Linux", "uname -m": "x86_64", "date +%Y": "2026", "date +%Y-%m-%d": "2026-04-17", "hostname": "worker1", "python3 --version": "Python 3.12.3", "id -u": "1000", "date +%A": "Friday", "echo $HOME": "/root", "uname -r": "6.8.0"}


@task(9)
def fact(w):
    command, phrases = w.rng.choice(FACTS)
    what, out = w.say(phrases), w.target("txt")
    if command in ANSWERS and w.rng.random() < 0.2:
        clause = w.say(["what is {x}?", "tell me {x}", "print {x}", "show me {x}", "find out {x}"], x=what)
        if not what.startswith("the"):
            clause = f"tell me {what}"
        return Step(clause, [w.shell(command, ANSWERS[command])], f"It is {ANSWERS[command]}.")
    clause = w.say([
        "[write|save|store|put] {x} [to|in|into] {o}",
        "find out {x} and [write|save] it [to|in] {o}",
        "[get|determine|look up] {x} and [store|put] [it|the result] in {o}",
        "create {o} [with|containing] {x}",
        "{o} should [contain|hold] {x}",
        "[write|save] {x} [to|into|in] [a|the] file [called|named|] {o}",
        "record {x} in [the file |]{o}",
    ], x=what, o=w.p(out))
    call = w.shell(f"{command} > {out}")
    w.made(out)
    return Step(clause, [call], f"The result is in {out}.")


@task(2)
def environment(w):
    name, out = w.v.identifier().upper(), w.target("txt")
    if w.rng.random() < 0.6:
        clause = w.say(["[write|save] the value of [the environment variable |]{n} to {o}", "put the [content|value] of [the variable |]${n} [in|into] {o}", "store what the environment variable {n} is set to in {o}", "read [the environment variable |]{n} and write [it|its value] to {o}", "{o} should contain the value of the environment variable {n}"], n=name, o=w.d(out))
        call = w.shell(f"echo ${name} > {out}")
    else:
        value = w.v.word()
        clause = w.say(["set [the environment variable |]{n} to {v} and [write|save] its value to {o}", "export {n}={v} and write {n} to {o}", "define the variable {n} as {v}, [then |]write it to {o}", "with {n} set to {v}, echo it into {o}", "set {n}={v} and echo the variable into {o}"], n=name, v=value, o=w.d(out))
        call = w.shell(f"export {name}={value} && echo ${name} > {out}")
    w.made(out)
    return Step(clause, [call], f"The value is in {out}.")


@task(2)
def computation(w):
    """Sequences, arithmetic and random data with shell tools."""
    rng, out, n = w.rng, w.target("txt"), w.rng.randint(3, 200)
    m = rng.randint(2, 50)
    command, phrases = rng.choice([
        (f"seq 1 {n}", ["the numbers [from |]1 to {n}[|, one per line]", "all integers from 1 to {n}", "the sequence 1 to {n}", "1 to {n}, one number per line", "every number from 1 through {n}"]),
        (f"seq 1 {n}", ["the numbers [from |]1 to {n}[|, one per line]", "all integers from 1 to {n}", "the sequence 1 to {n}", "the integers 1 through {n}", "every number between 1 and {n} inclusive"]),
        (f"seq 2 2 {2 * m}", ["the even numbers [from 2 |]to {e}", "all even numbers up to {e}", "every even number from 2 to {e}", "the even integers 2 to {e}", "the even numbers between 2 and {e}"]),
        (f"seq 1 2 {2 * m + 1}", ["the odd numbers [from 1 |]to {d}", "all odd numbers up to {d}", "every odd number from 1 to {d}", "the odd integers 1 to {d}", "the odd numbers between 1 and {d}"]),
        (f"seq {n} -1 1", ["the numbers from {n} down to 1", "a countdown from {n} to 1", "{n} down to 1, one per line", "the integers {n} to 1 in descending order", "the numbers {n} to 1 backwards"]),
        (f"echo $(({n} + {m}))", ["the result of {n} + {m}", "{n} plus {m}", "the sum of {n} and {m}", "what {n} + {m} is", "the value of {n} plus {m}"]),
        (f"echo $(({n} * {m}))", ["the result of {n} * {m}", "{n} times {m}", "the product of {n} and {m}", "what {n} * {m} is", "the value of {n} multiplied by {m}"]),
        (f"echo $(({n} - {m}))", ["the result of {n} - {m}", "{n} minus {m}", "the difference of {n} and {m}", "what {n} - {m} is", "the value of {n} minus {m}"]),
    ])
    what = w.say(phrases, n=n, m=m, e=2 * m, d=2 * m + 1)
    clause = w.say(["[write|save|put] {x} [to|into|in] {o}", "create {o} [with|containing] {x}", "generate {o} with {x}", "{o} should [contain|hold] {x}", "make [a file |]{o} that [contains|holds] {x}"], x=what, o=w.p(out))
    call = w.shell(f"{command} > {out}")
    w.made(out)
    return Step(clause, [call], f"The result is in {out}.")


REPO = ["[|the |this |the current ][repository|repo]", "git repository", "this git repository", "the git repo", "the current git repository"]


@task(4)
def git_init(w):
    kind, rng = w.rng.random(), w.rng
    if kind < 0.3:
        clause = w.say(["[initialise|initialize|create|start] a [|new ]git [repository|repo] [here|in the current directory|in this directory|]", "make [this|the current] [folder|directory] a git repository", "[run|do a] git init [here|]", "set up [a |]git repository [here|in this folder|]", "turn this directory into a git repo"])
        return Step(clause, [w.shell("git init -q -b main")], "I made a git repository.")
    if kind < 0.45:
        folder = w.v.folder(1)
        clause = w.say(["[initialise|initialize|create] a [|new ]git [repository|repo] in [the folder |the directory |]{d}", "create a [folder|directory] {d} and [initialise|initialize|make] a git [repository|repo] in it", "make {d} a git repository", "set up a git repository [called|named] {d}", "start a [new |]git repo in a directory {d}"], d=w.d(folder))
        return Step(clause, [w.shell(f"git init -q -b main {folder}")], f"{folder} is a git repository.")
    message = w.v.phrase(1, 5)
    if kind < 0.7:
        clause = w.say(["[initialise|initialize|create] a git [repository|repo] [here |], add all files and commit [them |]with [the |]message {q}", "make this [folder|directory] a git repository and commit everything [as|with the message] {q}", "git init, add everything, commit with message {q}", "set up a git repository here and commit all files with [the |]message {q}", "start a git repo, add [all|the] files and make a first commit {q}"], q=w.q(message))
        clause = clause.replace(" ,", ",")
        return Step(clause, [w.shell("git init -q -b main && git add -A && " + COMMIT + sh(message))], f"I committed all files as {message}.")
    path, text = w.v.path(nested=0), w.v.sentence(1, 5)
    clause = w.say(["[initialise|initialize|create] a git [repository|repo], create {p} [with|containing] [the text |]{t} and commit it with [the |]message {q}", "make a git repository with one commit {q} that adds [a file |]{p} [containing|with the text] {t}", "create a file {p} with {t}, git init, and commit it as {q}", "set up a git repo here, add [a file |]{p} saying {t}, commit with message {q}", "start a git repository, write {t} to {p}, and commit [it|the file] with message {q}"], p=w.d(path), t=w.q(text), q=w.q(message))
    calls = [w.write(path, text), w.shell(f"git init -q -b main && git add -A && " + COMMIT + sh(message))]
    return Step(clause, calls, f"I committed {path} as {message}.")


@task(5)
def git_change(w):
    rng, kind, message, branch = w.rng, w.rng.random(), w.v.phrase(1, 5), w.v.stem().lower().replace(".", "-")
    if rng.random() < 0.2:
        branch = f"{rng.choice(['feature', 'fix', 'release'])}/{branch}"
    if kind < 0.3:
        clause = w.say(["commit [all changes|everything|all files] with [the |]message {q}", "add [all files|everything] and commit [it |them |]with [the |]message {q}", "[stage|add] everything and make a commit {q}", "make a commit of all changes with [the |]message {q}", "git add and commit [everything|all], message {q}", "commit the current state as {q}"], q=w.q(message))
        return Step(clause, [w.shell("git add -A && " + COMMIT + sh(message))], f"I committed as {message}.")
    if kind < 0.42:
        path = w.source()
        clause = w.say(["commit [the file |only |]{a} with [the |]message {q}", "add {a} [to git |]and commit it with [the |]message {q}", "stage [only |]{a} and commit [it |]as {q}", "make a commit with {a}, message {q}", "git add {a} and commit with message {q}"], a=w.p(path), q=w.q(message))
        return Step(clause, [w.shell(f"git add {path} && " + COMMIT + sh(message))], f"I committed {path}.")
    if kind < 0.62:
        clause = w.say(["create [and switch to |]a [|new ]branch [|called |named ]{b}".replace("[and switch to |]", "and switch to "), "make a [|new ]branch {b} and [switch to|check out|use] it", "switch to a new branch [called|named|] {b}", "check out a new branch {b}", "start a branch [called|named] {b} and switch to it"], b=w.d(branch))
        return Step(clause, [w.shell(f"git checkout -q -b {branch}")], f"We are on the branch {branch}.")
    if kind < 0.74:
        clause = w.say(["create a [|new ][git |]branch [|called |named ]{b}", "make a [git |]branch {b}[| without switching to it]", "add a branch [called|named] {b} [to the repository|]", "I need a [new |]git branch {b}", "create branch {b} but stay on the current one"], b=w.d(branch))
        return Step(clause, [w.shell(f"git branch {branch}")], f"I created the branch {branch}.")
    if kind < 0.88:
        tag = rng.choice([f"v{rng.randint(0, 9)}.{rng.randint(0, 20)}", f"v{rng.randint(0, 9)}.{rng.randint(0, 20)}.{rng.randint(0, 9)}", branch.replace("/", "-")])
        clause = w.say(["[tag|mark] the [current|latest|last] commit [as|with] {t}", "create a [git |]tag {t}", "add [a|the] tag [called|named|] {t} to the current commit", "set a git tag {t}", "tag [this version|HEAD|the repository] [as|with] {t}"], t=w.d(tag))
        return Step(clause, [w.shell(f"git tag {tag}")], f"I tagged it {tag}.")
    choice = rng.random()
    if choice < 0.4:
        clause = w.say(["merge [the branch |]{b} [into the current branch|]", "merge [the branch |]{b} into main", "bring [the changes of |the branch |]{b} into the current branch by merging", "do a git merge of {b}", "merge the changes from {b}"], b=w.d(branch))
        return Step(clause, [w.shell(f"git -c user.name=alara -c user.email=alara@localhost merge -q {branch}")], f"I merged {branch}.")
    if choice < 0.6:
        clause = w.say(["switch to [the |]branch {b}", "check out [the |]branch {b}", "change to the branch {b}", "go to [the git |]branch {b}", "make {b} the current branch"], b=w.d(branch))
        return Step(clause, [w.shell(f"git checkout -q {branch}")], f"We are on {branch}.")
    if choice < 0.8:
        path = w.source()
        clause = w.say(["discard the [changes in|changes to|changes of] {a}", "restore {a} [from git|to the last commit|to the committed version]", "undo the [uncommitted |]changes in {a}", "reset {a} to its last committed version", "revert {a} to what is committed"], a=w.p(path))
        return Step(clause, [w.shell(f"git checkout -q -- {path}")], f"I restored {path}.")
    items = [rng.choice(["*.log", "*.tmp", "*.pyc", "build/", "node_modules/", "__pycache__/", ".env", "*.bak", "dist/", "*.o", w.v.word() + "/", w.v.path(nested=0)]) for _ in range(rng.randint(1, 3))]
    clause = w.say(["create a .gitignore [that ignores|ignoring|with] {l}", "make git ignore {l} [with a .gitignore|]", "write a .gitignore [for|with] {l}", "add a .gitignore file [listing|containing] {l}", "{l} should be ignored by git: write the .gitignore"], l=w.listing(items))
    return Step(clause, [w.write(".gitignore", "\n".join(items))], "I wrote .gitignore.")


LOOKS = [
    ("git log --oneline", ["the [commit |git |]log, one line per commit", "the one-line log", "the [short |]commit history", "the git history in one-line form", "the commits, one a line"]),
    ("git rev-list --count HEAD", ["the number of commits", "how many commits [there are|the repository has]", "the commit count", "the count of [all |]commits", "how many commits were made"]),
    ("git log -1 --format=%s", ["the [message|subject] of the [last|latest|most recent] commit", "the [last|latest] commit message", "the latest commit's message", "what the last commit message says", "the most recent commit message"]),
    ("git branch --show-current", ["the [name of the current|current] branch[| name]", "the current [git |]branch", "which branch is in use", "the name of the checked-out branch", "the name of the active branch"]),
    ("git rev-parse HEAD", ["the [full |]hash of the [last|latest|current|HEAD] commit", "the [current|latest] commit hash", "the commit id of HEAD", "the hash of HEAD", "the full commit hash of HEAD"]),
    ("git ls-files", ["[a list of |][all |the ]tracked files", "the files [that git tracks|under version control]", "the list of files tracked by git", "which files are tracked", "the names of all tracked files"]),
    ("git log -1 --format=%an", ["the author of the [last|latest] commit", "who made the last commit", "the latest commit's author", "the name of the last commit's author", "the author name of the most recent commit"]),
    ("git branch --format='%(refname:short)'", ["[a list of |]all [git |]branches", "the names of [all |the ]branches", "the branch names", "the list of branches", "every branch name"]),
    ("git tag", ["[a list of |]all [git |]tags", "the names of [all |the ]tags", "the tag names", "the list of tags", "every tag name"]),
    ("git status --short", ["the [short |]git status", "the status of the repository", "what git status says in short", "the short status output", "the output of git status --short"]),
    ("git diff --name-only", ["the names of [changed|modified] files", "which files changed[| since the last commit]", "the list of modified files", "the files with uncommitted changes", "the names of the files that changed"]),
]


@task(4)
def git_look(w):
    command, phrases = w.rng.choice(LOOKS)
    out = w.target("txt")
    clause = w.say([
        "[write|save|store|put] {x} [of [this|the] [git |]repository |][to|in|into] {o}",
        "find out {x} and [write|save] it [to|in] {o}",
        "[get|determine] {x} [of the git repository |]and [store|put] [it|the result] in {o}",
        "create {o} [with|containing] {x} [of this repo|]",
        "{o} should [contain|hold] {x}",
        "[write|save] {x} [of the repository |][to|into|in] [a|the] file [called|named|] {o}",
    ], x=w.say(phrases), o=w.d(out))
    call = w.shell(f"{command} > {out}")
    w.made(out)
    return Step(clause, [call], f"The result is in {out}.")
