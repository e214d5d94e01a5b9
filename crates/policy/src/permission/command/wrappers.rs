//! Programs that run another command from their arguments: data.

use std::sync::LazyLock;

/// A program, or a subcommand of one, whose arguments are a command.
#[derive(Clone, Copy, Debug)]
pub struct Wrapper {
    /// Its names, separated by `|`; each may be several words (`git bisect run`).
    pub names: &'static str,
    /// The number of words between its options and the command: a time, a file.
    pub operands: usize,
    /// Options that take a value as a separate word.
    pub values: &'static str,
    /// Options that take no value, or only one after a `=` or directly after the letter.
    /// An option that is in no list may take a value or not.
    pub flags: &'static str,
    /// Options whose value is the text of a script.
    pub texts: &'static str,
    /// Options with which it runs nothing.
    pub stops: &'static str,
    /// How it runs the words.
    pub runs: Runs,
    /// Whether it runs a shell without a command; that shell reads its input.
    pub shell: bool,
}

/// How a wrapper runs the words after its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// A command.
    Command,
    /// A command, to which unknown words are added.
    Appended,
    /// The words together are the text of a script.
    Joined,
    /// The first word is the text of a script.
    First,
    /// Any of the words may begin a command: it has too many options for this table.
    Anywhere,
}

const fn wrapper(names: &'static str, operands: usize, values: &'static str) -> Wrapper {
    let (flags, texts, stops) = ("", "", "");
    Wrapper { names, operands, values, flags, texts, stops, runs: Runs::Command, shell: false }
}

impl Wrapper {
    const fn texts(self, texts: &'static str) -> Self {
        Wrapper { texts, ..self }
    }

    const fn flags(self, flags: &'static str) -> Self {
        Wrapper { flags, ..self }
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

/// The shells with the grammar of bash or a part of it: they run the text after `-c`.
pub(crate) const SHELLS: [&str; 5] = ["ash", "bash", "dash", "rbash", "sh"];

/// Shells whose scripts alara doesn't read.
pub(crate) const OTHER_SHELLS: [&str; 15] = [
    "csh", "elvish", "fish", "hush", "ksh", "mksh", "nu", "osh", "posh", "pwsh", "rc", "tcsh", "xonsh",
    "yash", "zsh",
];

/// Programs that run a text that is not among their arguments: a file, or their input.
pub(crate) const FED: [&str; 5] = [".", "at", "batch", "enable", "source"];

/// git options that come before the subcommand and take a value as a separate word.
pub(crate) const GIT_VALUES: [&str; 9] = [
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

/// bash builtins that evaluate subscripts in their arguments, and the commands in these.
pub(crate) const EVALUATING: [&str; 16] = [
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
pub(crate) const RUN_VARIABLES: [&str; 24] = [
    "BROWSER",
    "CC",
    "CXX",
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
    "RUSTC",
    "RUSTC_WRAPPER",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "VISUAL",
];

/// bash builtins that set the variables in their arguments, with a value after `=`.
pub(crate) const DECLARING: [&str; 5] = ["declare", "export", "local", "readonly", "typeset"];

/// bash builtins that set variables, named in their arguments, to any text.
pub(crate) const SETTING: [&str; 9] =
    ["declare", "export", "local", "mapfile", "printf", "read", "readarray", "readonly", "typeset"];

/// Variables that change what a shell or git runs; `*` matches any rest of a name.
const CHANGING_VARIABLES: [&str; 12] = [
    "BASH_ALIASES*",
    "BASH_CMDS*",
    "BASH_ENV",
    "BASH_FUNC_*",
    "EXINIT",
    "GIT_CONFIG*",
    "LUA_INIT*",
    "MAKEFILES",
    "PERL5DB",
    "PS4",
    "SHELLOPTS",
    "VIMINIT",
];

/// Variables whose values are options of a program.
pub(crate) const OPTIONS_OF: [(&str, &str); 6] = [
    ("GNUMAKEFLAGS", "make"),
    ("LESS", "less"),
    ("MAKEFLAGS", "make"),
    ("NODE_OPTIONS", "node"),
    ("PERL5OPT", "perl"),
    ("RUBYOPT", "ruby"),
];

/// Whether a variable of this name changes what a shell or git runs.
pub(crate) fn is_changing(name: &str) -> bool {
    CHANGING_VARIABLES.iter().any(|listed| match listed.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *listed,
    })
}

/// The table.
/// Add a row for any program that runs its arguments; the order of rows doesn't matter.
#[rustfmt::skip]
pub const WRAPPERS: &[Wrapper] = &[
    // The shell itself.
    wrapper("builtin|jobs|coproc|!", 0, ""),
    wrapper("command", 0, "").flags("-p").stops("-v -V"),
    wrapper("exec", 0, "-a").flags("-c -l"),
    wrapper("eval", 0, "").runs(Runs::Joined),
    wrapper("trap", 0, "").stops("-l -p").runs(Runs::First),
    wrapper("compgen|complete|mapfile|readarray", 99, "").texts("-C"),
    // Time, priority, place.
    wrapper("timeout|gtimeout", 1, "-k --kill-after -s --signal")
        .flags("-p --preserve-status -f --foreground -v --verbose"),
    wrapper("time|gtime", 0, "-f --format -o --output").flags("-a --append -p --portability -q --quiet -v --verbose"),
    wrapper("nice|gnice", 0, "-n --adjustment"),
    wrapper("ionice", 0, "-c --class -n --classdata -p --pid -P --pgid -u --uid").flags("-t --ignore"),
    wrapper("chrt", 1, "-T --sched-runtime -P --sched-period -D --sched-deadline").flags("-b --batch -d --deadline -f \
        --fifo -i --idle -o --other -r --rr -R --reset-on-fork -a --all-tasks -p --pid -v --verbose"),
    wrapper("taskset", 1, "").flags("-a --all-tasks -p --pid -c --cpu-list"),
    wrapper("numactl", 0, "-N --cpunodebind -m --membind -C --physcpubind -i --interleave -p --preferred -w")
        .flags("-a --all -l --localalloc -b --balancing"),
    wrapper("nohup|nocache|eatmydata|unbuffer|catchsegv|chronic|ifne|lckdo|pgrphack|fghack|gamemoderun|mangohud|\
        primusrun|optirun|vglrun|torsocks|torify|tsocks|proxychains|proxychains4", 0, ""),
    wrapper("setsid", 0, "").flags("-c --ctty -f --fork -w --wait"),
    wrapper("ssh-agent", 0, "-a -E -O -P -t").flags("-c -d -D -k -s"),
    wrapper("dbus-launch", 0, "--config-file").flags("--auto-syntax --exit-with-session --exit-with-x11"),
    wrapper("tini|dumb-init", 0, "-e -p -r --rewrite").flags("-c --single-child -g -s -v --verbose -w"),
    wrapper("stdbuf|gstdbuf", 0, "-i --input -o --output -e --error"),
    wrapper("choom", 0, "-n --adjust -p --pid"),
    wrapper("uclampset", 0, "-m -M -p --pid").flags("-a --all-tasks -s --system -R --reset-on-fork -v --verbose"),
    wrapper("coresched", 0, "-s --source -d --dest -t --dest-type").flags("-v --verbose"),
    wrapper("faketime|datefudge|setlock|lockf|dtach", 1, ""),
    wrapper("chpst", 0, "-u -U -b -e -/ -n -l -L -m -d -o -p -f -c -r -t -C").flags("-v -V -P -0 -1 -2"),
    wrapper("softlimit", 0, "-a -c -d -f -l -m -o -p -r -s -t"),
    wrapper("daemonize|daemon|systemd-cat|sshpass|screen|tmux|expect|xterm|systemd-nspawn|machinectl|lxc-attach|\
        lxc-execute|scriptlive", 0, "").runs(Runs::Anywhere),
    wrapper("ip netns exec|ip vrf exec", 1, ""),
    wrapper("rlwrap", 0, "-b -C -f -H -l -O -p -P -q -s -S -t -z"),
    wrapper("prlimit", 0, "-p --pid -o --output").flags("--noheadings --raw --verbose -c --core -d --data -e --nice \
        -f --fsize -i --sigpending -l --memlock -m --rss -n --nofile -q --msgqueue -r --rtprio -s --stack -t --cpu -u \
        --nproc -v --as -x --locks -y --rttime"),
    wrapper("cgexec", 0, "-g"),
    wrapper("caffeinate", 0, "-t -w"),
    wrapper("setarch", 1, "-p --pid").flags("-B --32bit -F --fdpic-funcptrs -I --short-inode -L \
        --addr-compat-layout -R --addr-no-randomize -S --whole-seconds -T --sticky-timeouts -X --read-implies-exec \
        -Z --mmap-page-zero -3 --3gb --4gb --uname-2.6 -v --verbose").shell(),
    wrapper("linux32|linux64|i386|i486|i586|i686|x86_64|uname26|arch|armv7l|armv8l|aarch64", 0, "-arch -p --pid").flags("-B \
        --32bit -F --fdpic-funcptrs -I --short-inode -L --addr-compat-layout -R --addr-no-randomize -S \
        --whole-seconds -T --sticky-timeouts -X --read-implies-exec -Z --mmap-page-zero -3 --3gb --4gb --uname-2.6 -v \
        --verbose").shell(),
    wrapper("env|genv", 0, "-u --unset -C --chdir -a --argv0").texts("-S --split-string")
        .flags("- -i --ignore-environment -0 --null -v --debug --block-signal --default-signal --ignore-signal \
        --list-signal-handling"),
    // Another user, another root.
    wrapper("sudo", 0, "-a -C -c -D -g -h -p -R -r -t -T -u -U --auth-type --close-from --login-class --chdir \
        --group --host --prompt --chroot --role --type --command-timeout --user --other-user")
        .flags("-A --askpass -b --background -B --bell -E --preserve-env -H --set-home -i --login -K --remove-timestamp \
        -k --reset-timestamp -N --no-update -n --non-interactive -P --preserve-groups -S --stdin -s --shell")
        .stops("-l --list -v --validate -V --version").shell(),
    wrapper("doas", 0, "-a -C -u").flags("-L -n -s").shell(),
    wrapper("run0", 0, "-u --user -g --group -D --chdir --setenv --unit --property --slice --nice --background \
        --description --machine").shell(),
    wrapper("pkexec", 0, "--user").shell(),
    wrapper("su|runuser", 99, "-s --shell -g --group -G --supp-group -w --whitelist-environment -T")
        .texts("-c --command --session-command").shell(),
    wrapper("runuser -u|runuser --user", 1, ""),
    wrapper("sg|newgrp", 1, "").texts("-c").runs(Runs::Joined).shell(),
    wrapper("gosu|su-exec|setuidgid|s6-setuidgid|envdir|envuidgid", 1, ""),
    wrapper("aa-exec", 0, "-p --profile -n --namespace").flags("-d --debug -i --immediate -v --verbose"),
    wrapper("runcon", 1, "-t --type -u --user -r --role -l --range").flags("-c --compute"),
    wrapper("setpriv", 0, "--reuid --regid --ruid --euid --rgid --egid --groups --inh-caps --ambient-caps \
        --bounding-set --securebits --pdeathsig --selinux-label --apparmor-profile --landlock-access \
        --landlock-rule --seccomp-filter --ptracer")
        .flags("--nnp --no-new-privs --clear-groups --keep-groups --init-groups --reset-env"),
    wrapper("capsh", 99, "").texts("-c").shell(),
    wrapper("chroot", 1, "--groups --userspec").flags("--skip-chdir").shell(),
    wrapper("unshare", 0, "-R --root -w --wd -S --setuid -G --setgid --propagation --setgroups --map-user \
        --map-group --map-users --map-groups --owner --monotonic --boottime -l --load-interp").flags("-f --fork -r --map-root-user -c --map-current-user --map-auto \
        --keep-caps -m --mount -u --uts -i --ipc -n --net -p --pid -U --user -C --cgroup -T --time --kill-child \
        --mount-proc --mount-binfmt").shell(),
    wrapper("nsenter", 0, "-t --target -S --setuid -G --setgid -N --net-socket -W --wdns").flags("-a --all \
        --preserve-credentials --keep-caps -F --no-fork -Z --follow-context -e --env -c --join-cgroup \
        --user-parent -m --mount -u --uts -i --ipc -n --net -p --pid -C --cgroup -U --user -T --time -r --root -w \
        --wd").shell(),
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
    wrapper("flock", 1, "-w --wait --timeout -E --conflict-exit-code").flags("-s --shared -x -e --exclusive -u --unlock \
        -n --nb --nonblock --nonblocking -o --close -F --no-fork --fcntl --verbose").texts("-c --command"),
    wrapper("xargs|gxargs", 0, "-a --arg-file -d --delimiter -E -I -J -L -n --max-args -P --max-procs -R -s -S \
        --max-chars --process-slot-var").flags("-0 --null -o --open-tty -p --interactive -r --no-run-if-empty \
        --show-limits -t --verbose -x --exit -e --eof -i --replace -l --max-lines").runs(Runs::Appended),
    wrapper("parallel|sem", 0, "-j --jobs -P --max-procs -a --arg-file -I -n --max-args -N -L -l -d --delimiter -C \
        --colsep -S --sshlogin --joblog --results --tmpdir --timeout --delay --retries --load --memfree --nice \
        --workdir --wd --tagstring --basefile --return --env -s -E --halt").runs(Runs::Joined).shell(),
    wrapper("watch", 0, "-n --interval -q --equexit -s --shotsdir").flags("-b --beep -c --color -C --no-color -d \
        --differences -e --errexit -g --chgexit -p --precise -r --no-rerun -t --no-title -w --no-wrap -x --exec")
        .runs(Runs::Joined),
    wrapper("entr", 0, "").texts("-s"),
    wrapper("hyperfine", 0, "").runs(Runs::Anywhere),
    wrapper("script", 1, "-T --log-timing -I --log-in -O --log-out -B --log-io -m --logging-format -o \
        --output-limit -E --echo -t").texts("-c --command").shell(),
    wrapper("strace", 0, "-a -b -e -E -I -o -O -p -P -s -S -u -U -X").flags("-A -c -C -d -D -f -F -h -i -k -n -q -r \
        -t -T -v -V -w -x -y -Y -z -Z --follow-forks --summary --summary-only --stack-traces --decode-fds"),
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
    wrapper("uvx|uv tool run|pipx run|poetry run|pipenv run|pdm run|hatch run|rye run|bundle exec|rbenv exec|pyenv exec|asdf exec", 0, ""),
    wrapper("conda run|mamba run|micromamba run", 0, "-n --name -p --prefix --cwd"),
    wrapper("npx|bun x|npm exec|npm x|pnpm exec|pnpm dlx|yarn exec|yarn dlx|bunx", 0, "-p --package -w --workspace")
        .texts("-c --call"),
    wrapper("mise exec|mise x|nix develop|nix shell|nix run|guix shell", 0, "").runs(Runs::Anywhere),
    wrapper("direnv exec|rustup run", 1, ""),
    wrapper("nix-shell", 99, "").texts("--run --command"),
    // Programs that pass files through a command, or reach another machine by one.
    wrapper("tar|gtar|bsdtar", 99, "-C --directory -f --file -b -N -T --files-from -X --exclude-from -g -K -V -L")
        .texts("-I --use-compress-program --to-command -F --info-script --new-volume-script --rsh-command \
            --rmt-command"),
    wrapper("split|gsplit", 99, "").texts("--filter"),
    wrapper("sort|gsort", 99, "").texts("--compress-program"),
    wrapper("zip", 99, "").texts("-TT --unzip-command"),
    wrapper("rsync", 99, "").texts("-e --rsh --rsync-path"),
    wrapper("nc|ncat|netcat", 99, "-p -s -w").texts("-c -e --exec --sh-exec"),
    wrapper("man", 99, "").texts("-P --pager -H --html"),
    wrapper("scp|sftp", 99, "-c -F -i -J -l -o -P -X").texts("-S -D"),
    wrapper("wget", 99, "-e --execute").texts("--use-askpass"),
    wrapper("pandoc", 99, "").texts("-F --filter --pdf-engine"),
    wrapper("cmake -E", 0, "").runs(Runs::Anywhere),
    wrapper("ctest", 0, "").runs(Runs::Anywhere),
];

/// One name of the table, as words, with its row.
pub type Named = (Vec<&'static str>, &'static Wrapper);

/// The rows by name.
pub static NAMED: LazyLock<Vec<Named>> = LazyLock::new(|| {
    let rows = WRAPPERS.iter();
    rows.flat_map(|row| row.names.split('|').map(move |name| (name.split(' ').collect(), row))).collect()
});

/// The effect of a wrapper's option on the words after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opt {
    /// None.
    Flag,
    /// Unknown; the option may take the next word.
    Unknown,
    /// The next word is its value.
    Value,
    /// Its value, or the next word, is the text of a script.
    Text(Option<String>),
    /// The wrapper runs nothing.
    Stop,
}

impl Wrapper {
    /// The effect of one of its options.
    /// Long options may be abbreviated; among letters after one dash, the one with a value ends
    /// them.
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
                Some(_) if [self.values, self.flags, self.stops].into_iter().any(is_in) => Opt::Flag,
                Some(_) => Opt::Unknown,
                None if is_in(self.values) => Opt::Value,
                None if is_in(self.stops) => Opt::Stop,
                None if is_in(self.flags) => Opt::Flag,
                None => Opt::Unknown,
            };
        }
        if listed(self.values, word) {
            return Opt::Value;
        }
        if listed(self.texts, word) {
            return Opt::Text(None);
        }
        let mut is_known = true;
        for (at, letter) in word.char_indices().skip(1) {
            let (name, rest) = (format!("-{letter}"), &word[at + letter.len_utf8()..]);
            if listed(self.texts, &name) {
                return Opt::Text((!rest.is_empty()).then(|| rest.to_owned()));
            }
            if listed(self.values, &name) {
                return if rest.is_empty() { Opt::Value } else { Opt::Flag };
            }
            // After an unknown letter, it may be that letter's value.
            if listed(self.stops, &name) && is_known {
                return Opt::Stop;
            }
            is_known &= listed(self.flags, &name) || letter.is_ascii_digit();
        }
        if is_known || listed(self.flags, word) { Opt::Flag } else { Opt::Unknown }
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
        check("command", "-xv", Opt::Unknown);
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
