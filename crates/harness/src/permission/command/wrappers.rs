//! Programs that run another command which their arguments name: data.

use std::sync::LazyLock;

/// A program, or a subcommand of one, whose arguments are a command.
#[derive(Clone, Copy, Debug)]
pub struct Wrapper {
    /// Its names, a `|` between them; each may be several words (`git bisect run`).
    pub names: &'static str,
    /// How many words stand between its options and the command: a time, a file.
    pub operands: usize,
    /// Options that take a value as a word of its own.
    pub values: &'static str,
    /// Options whose value is the text of a script.
    pub texts: &'static str,
    /// Options with which it runs nothing.
    pub stops: &'static str,
    /// How it goes on.
    pub runs: Runs,
    /// Whether it runs a shell if no command is named; that reads its input.
    pub shell: bool,
}

/// What a wrapper makes of the words after its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// A command.
    Command,
    /// A command, to which words are added that are not known.
    Appended,
    /// The words make the text of a script.
    Joined,
    /// The first word is the text of a script.
    First,
    /// Any of the words may begin a command: its options are too many for this table.
    Anywhere,
}

const fn wrapper(names: &'static str, operands: usize, values: &'static str) -> Wrapper {
    Wrapper { names, operands, values, texts: "", stops: "", runs: Runs::Command, shell: false }
}

impl Wrapper {
    const fn texts(self, texts: &'static str) -> Self {
        Wrapper { texts, ..self }
    }

    const fn stops(self, stops: &'static str) -> Self {
        Wrapper { stops, ..self }
    }

    const fn shell(self) -> Self {
        Wrapper { shell: true, ..self }
    }

    const fn runs(self, runs: Runs) -> Self {
        Wrapper { runs, ..self }
    }
}

/// The shells whose grammar is that of bash or a part of it: what they run is the text after `-c`.
pub const SHELLS: [&str; 5] = ["ash", "bash", "dash", "rbash", "sh"];

/// Shells of which nothing is told.
pub const OTHER_SHELLS: [&str; 15] = [
    "csh", "elvish", "fish", "hush", "ksh", "mksh", "nu", "osh", "posh", "pwsh", "rc", "tcsh", "xonsh",
    "yash", "zsh",
];

/// What runs a text that is not among its arguments: a file, or its input.
pub const FED: [&str; 5] = [".", "at", "batch", "enable", "source"];

/// Options of git that stand before the subcommand and take a value as a word of its own.
pub const GIT_VALUES: [&str; 9] = [
    "-C",
    "-c",
    "--git-dir",
    "--work-tree",
    "--namespace",
    "--exec-path",
    "--super-prefix",
    "--config-env",
    "--attr-source",
];

/// Builtins of bash that evaluate subscripts in their arguments, and with them what stands in
/// those.
pub const EVALUATING: [&str; 16] = [
    "[",
    "declare",
    "export",
    "getopts",
    "let",
    "local",
    "mapfile",
    "printf",
    "read",
    "readarray",
    "readonly",
    "test",
    "typeset",
    "unset",
    "wait",
    "((",
];

/// Variables whose value a program runs as a command.
pub const RUN_VARIABLES: [&str; 20] = [
    "BROWSER",
    "EDITOR",
    "FCEDIT",
    "GIT_ASKPASS",
    "GIT_EDITOR",
    "GIT_EXTERNAL_DIFF",
    "GIT_PAGER",
    "GIT_PROXY_COMMAND",
    "GIT_SEQUENCE_EDITOR",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "LESSCLOSE",
    "LESSOPEN",
    "MANPAGER",
    "PAGER",
    "PROMPT_COMMAND",
    "RSYNC_RSH",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "VISUAL",
];

/// Variables that change what a shell or git runs; a `*` stands for any end.
pub const CHANGING_VARIABLES: [&str; 5] = ["BASH_ENV", "BASH_FUNC_*", "GIT_CONFIG*", "PS4", "SHELLOPTS"];

/// The table.
/// A row may be added for whatever runs its arguments; its order does not matter.
#[rustfmt::skip]
pub const WRAPPERS: &[Wrapper] = &[
    // Of the shell itself.
    wrapper("builtin|jobs|coproc|!", 0, ""),
    wrapper("command", 0, "").stops("-v -V"),
    wrapper("exec", 0, "-a"),
    wrapper("eval", 0, "").runs(Runs::Joined),
    wrapper("trap", 0, "").stops("-l -p").runs(Runs::First),
    wrapper("compgen|complete|mapfile|readarray", 99, "").texts("-C"),
    // Time, priority, place.
    wrapper("timeout|gtimeout", 1, "-k --kill-after -s --signal"),
    wrapper("time|gtime", 0, "-f --format -o --output"),
    wrapper("nice|gnice", 0, "-n --adjustment"),
    wrapper("ionice", 0, "-c --class -n --classdata -p --pid -P --pgid -u --uid"),
    wrapper("chrt", 1, "-T --sched-runtime -P --sched-period -D --sched-deadline"),
    wrapper("taskset", 1, ""),
    wrapper("numactl", 0, "-N --cpunodebind -m --membind -C --physcpubind -i --interleave -p --preferred -w"),
    wrapper("nohup|setsid|ssh-agent|dbus-launch|nocache|eatmydata|unbuffer|catchsegv|tini|dumb-init", 0, ""),
    wrapper("stdbuf|gstdbuf", 0, "-i --input -o --output -e --error"),
    wrapper("rlwrap", 0, "-b -C -f -H -l -O -p -P -q -s -S -t -z"),
    wrapper("prlimit", 0, "-p --pid"),
    wrapper("cgexec", 0, "-g"),
    wrapper("caffeinate", 0, "-t -w"),
    wrapper("setarch", 1, "-p"),
    wrapper("linux32|linux64|i386|x86_64|arch", 0, "-arch"),
    wrapper("env|genv", 0, "-u --unset -C --chdir -a --argv0").texts("-S --split-string"),
    // Another user, another root.
    wrapper("sudo", 0, "-a -C -c -D -g -h -p -R -r -t -T -u -U --auth-type --close-from --login-class --chdir \
        --group --host --prompt --chroot --role --type --command-timeout --user --other-user")
        .stops("-l --list -v --validate -V --version").shell(),
    wrapper("doas", 0, "-a -C -u").shell(),
    wrapper("run0", 0, "-u --user -g --group -D --chdir --setenv --unit --property --slice --nice --background \
        --description --machine").shell(),
    wrapper("pkexec", 0, "--user").shell(),
    wrapper("su|runuser", 99, "-s --shell -g --group -G --supp-group -w --whitelist-environment -T")
        .texts("-c --command --session-command").shell(),
    wrapper("runuser -u|runuser --user", 1, ""),
    wrapper("sg|newgrp", 1, "").texts("-c").runs(Runs::Joined).shell(),
    wrapper("gosu|su-exec|setuidgid|envdir|envuidgid", 1, ""),
    wrapper("setpriv", 0, "--reuid --regid --ruid --euid --rgid --egid --groups --inh-caps --ambient-caps \
        --bounding-set --securebits --pdeathsig --selinux-label --apparmor-profile --landlock-access \
        --landlock-rule --seccomp-filter --ptracer"),
    wrapper("capsh", 99, "").texts("-c").shell(),
    wrapper("chroot", 1, "--groups --userspec").shell(),
    wrapper("unshare", 0, "-R --root -w --wd -S --setuid -G --setgid --propagation --setgroups --map-user \
        --map-group --map-users --map-groups --owner --monotonic --boottime -l --load-interp").shell(),
    wrapper("nsenter", 0, "-t --target -S --setuid -G --setgid -N").shell(),
    wrapper("fakeroot", 0, "-l --lib --faked -s -i -b --fd-base").shell(),
    wrapper("systemd-run", 0, "-u --unit -p --property -M --machine -H --host --description --slice --uid --gid \
        --nice --working-directory -E --setenv --on-active --on-boot --on-startup --on-calendar \
        --timer-property --path-property --socket-property --service-type"),
    wrapper("systemd-inhibit", 0, "--what --who --why --mode"),
    wrapper("dbus-run-session", 0, "--config-file --dbus-daemon"),
    wrapper("xvfb-run", 0, "-n --server-num -e --error-file -f --auth-file -p --xauth-protocol -s --server-args \
        -w --wait"),
    wrapper("bwrap|firejail|proot|fakechroot|gdb|lldb|rr|perf|start-stop-daemon|cpulimit", 0, "")
        .runs(Runs::Anywhere),
    wrapper("ssh", 1, "-b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -P -Q -R -S -W -w -B").runs(Runs::Joined),
    // Files, many times, on change.
    wrapper("flock", 1, "-w --wait --timeout -E --conflict-exit-code").texts("-c --command"),
    wrapper("xargs|gxargs", 0, "-a --arg-file -d --delimiter -E -I -J -L --max-lines -n --max-args -P --max-procs \
        -R -s -S --max-chars --process-slot-var").runs(Runs::Appended),
    wrapper("parallel|sem", 0, "-j --jobs -P --max-procs -a --arg-file -I -n --max-args -N -L -l -d --delimiter -C \
        --colsep -S --sshlogin --joblog --results --tmpdir --timeout --delay --retries --load --memfree --nice \
        --workdir --wd --tagstring --basefile --return --env -s -E --halt").runs(Runs::Joined).shell(),
    wrapper("watch", 0, "-n --interval -q --equexit -s --shotsdir").runs(Runs::Joined),
    wrapper("entr", 0, "").texts("-s"),
    wrapper("hyperfine", 0, "").runs(Runs::Anywhere),
    wrapper("script", 1, "-T --log-timing -I --log-in -O --log-out -B --log-io -m --logging-format -o \
        --output-limit -E --echo -t").texts("-c --command").shell(),
    wrapper("strace", 0, "-a -b -e -E -I -o -O -p -P -s -S -u -U -X"),
    wrapper("ltrace", 0, "-a -A -D -e -F -l -n -o -p -s -u -x -X -w"),
    wrapper("valgrind", 0, ""),
    wrapper("busybox|toybox", 0, ""),
    wrapper("ld.so|ld-linux.so.2|ld-linux-x86-64.so.2|ld-linux-aarch64.so.1|ld-musl-x86_64.so.1|\
        ld-musl-aarch64.so.1", 0, "--library-path --preload --audit --argv0 --inhibit-rpath --glibc-hwcaps-prepend \
        --glibc-hwcaps-mask"),
    // Version control, packages, environments.
    wrapper("git bisect run", 0, ""),
    wrapper("git submodule foreach", 0, "").runs(Runs::Joined),
    wrapper("git rebase", 99, "").texts("-x --exec"),
    wrapper("git difftool|git mergetool", 99, "").texts("-x --extcmd"),
    wrapper("git filter-branch", 99, "").texts("--env-filter --tree-filter --index-filter --parent-filter \
        --msg-filter --commit-filter --tag-name-filter --setup"),
    wrapper("uv run", 0, "--with --with-editable --with-requirements -p --python --extra --group --only-group \
        --no-group --package --project --directory --env-file --index --default-index -i --index-url \
        --extra-index-url -f --find-links --config-file --cache-dir"),
    wrapper("poetry run|pipenv run|pdm run|hatch run|rye run|bundle exec|rbenv exec|pyenv exec|asdf exec", 0, ""),
    wrapper("conda run|mamba run|micromamba run", 0, "-n --name -p --prefix --cwd"),
    wrapper("npx|npm exec|npm x|pnpm exec|pnpm dlx|yarn exec|yarn dlx|bunx", 0, "-p --package -w --workspace")
        .texts("-c --call"),
    wrapper("mise exec|mise x|nix develop|nix shell|nix run|guix shell", 0, "").runs(Runs::Anywhere),
    wrapper("direnv exec|rustup run", 1, ""),
    wrapper("nix-shell", 99, "").texts("--run --command"),
];

/// One name of the table, by words, with its row.
pub type Named = (Vec<&'static str>, &'static Wrapper);

/// The rows by name.
pub static NAMED: LazyLock<Vec<Named>> = LazyLock::new(|| {
    let rows = WRAPPERS.iter();
    rows.flat_map(|row| row.names.split('|').map(move |name| (name.split(' ').collect(), row))).collect()
});

/// What an option of a wrapper does to the words after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opt {
    /// Nothing.
    Flag,
    /// The next word is its value.
    Value,
    /// The text of a script is its value, or the next word.
    Text(Option<String>),
    /// Nothing is run.
    Stop,
}

impl Wrapper {
    /// What one of its options does.
    /// Long ones may be cut short; of letters behind one dash the one with a value ends them.
    pub fn option(&self, word: &str) -> Opt {
        let listed = |list: &'static str, name: &str| list.split(' ').any(|listed| listed == name);
        if word.starts_with("--") {
            let (name, value) =
                word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
            let is_in = |list: &'static str| {
                listed(list, name)
                    || (name.len() > 3 && list.split(' ').any(|listed| listed.starts_with(name)))
            };
            return match value {
                _ if is_in(self.texts) => Opt::Text(value.map(str::to_owned)),
                None if is_in(self.values) => Opt::Value,
                None if is_in(self.stops) => Opt::Stop,
                _ => Opt::Flag,
            };
        }
        if listed(self.values, word) {
            return Opt::Value;
        }
        for (at, letter) in word.char_indices().skip(1) {
            let (name, rest) = (format!("-{letter}"), &word[at + letter.len_utf8()..]);
            if listed(self.texts, &name) {
                return Opt::Text((!rest.is_empty()).then(|| rest.to_owned()));
            }
            if listed(self.values, &name) {
                return if rest.is_empty() { Opt::Value } else { Opt::Flag };
            }
            if listed(self.stops, &name) {
                return Opt::Stop;
            }
        }
        Opt::Flag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_take_what_they_take() {
        let check = |name: &str, word: &str, expected: Opt| {
            let row = NAMED.iter().find(|(names, _)| names.join(" ") == name).unwrap().1;
            assert_eq!(row.option(word), expected, "{name} {word}");
        };
        check("timeout", "-k", Opt::Value);
        check("timeout", "-k5", Opt::Flag);
        check("timeout", "--signal=9", Opt::Flag);
        check("timeout", "--sig", Opt::Value);
        check("nice", "-5", Opt::Flag);
        check("sudo", "-nu", Opt::Value);
        check("sudo", "-ul", Opt::Flag);
        check("sudo", "-nl", Opt::Stop);
        check("command", "-pv", Opt::Stop);
        check("env", "-S", Opt::Text(None));
        check("env", "-iSrm x", Opt::Text(Some("rm x".into())));
        check("arch", "-arch", Opt::Value);
    }

    #[test]
    fn names_of_the_table_are_there_once() {
        let mut names: Vec<String> = NAMED.iter().map(|(names, _)| names.join(" ")).collect();
        names.sort();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
