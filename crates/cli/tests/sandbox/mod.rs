//! The sandbox around steps, from inside: programs that try forbidden actions, and the results.
//! Runs everything as the current user, and again as an ordinary user if that is the superuser.
//! superuser.
#![cfg(target_os = "linux")]

mod commits;
pub mod guard;
mod jobs;
mod limits;
mod repositories;
mod syscalls;
mod worktrees;
mod wrappers;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use alara_harness::sandbox::{Enforced, Output, enforced, launch_with};
use alara_harness::sandbox::{Policy, Sandbox, Script};

/// A sandbox with its own work directory, next to a directory that it must not access.
struct SandboxDir {
    root: tempfile::TempDir,
    sandbox: Sandbox,
}

impl SandboxDir {
    fn new(policy: Policy) -> Self {
        launch_with(Path::new(env!("CARGO_BIN_EXE_alara")));
        // Not `/tmp`, which may be in memory; but inside a sandbox there is nothing else.
        let root = tempfile::tempdir_in("/var/tmp").or_else(|_| tempfile::tempdir()).unwrap();
        std::fs::create_dir(root.path().join("work")).unwrap();
        std::fs::write(root.path().join("outside"), "as it was").unwrap();
        let mut policy = policy;
        policy.readable.push(root.path().to_owned());
        let sandbox = Sandbox::new(&root.path().join("work"), policy).unwrap();
        SandboxDir { root, sandbox }
    }

    fn run(&self, program: &[&str], network: bool) -> Output {
        let timeout = Duration::from_secs(60);
        let script = Script { network, ..Script::new(program, timeout) };
        self.sandbox.run(&script).unwrap()
    }

    fn bash(&self, code: &str) -> Output {
        self.run(&["bash", "-c", code], false)
    }
}

/// Allocates 90 MiB and keeps them.
const HOG: &str = "x = bytearray(90 << 20); x[::4096] = b'x' * len(x[::4096]); import time; time.sleep(30)";

/// Returns what this machine enforces; `None`, with a visible note, if a test needs more.
pub fn needs(test: &str, holds: fn(&Enforced) -> bool) -> Option<Enforced> {
    launch_with(Path::new(env!("CARGO_BIN_EXE_alara")));
    let found = *enforced();
    if !holds(&found) {
        eprintln!("SKIPPED: {test}: this machine enforces only {found}");
    }
    holds(&found).then_some(found)
}

fn all(found: &Enforced) -> bool {
    found.warning().is_none()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().to_owned()
}

/// Runs bash; it must end with this status, and print this on stdout (0) or stderr.
fn check(dir: &SandboxDir, code: &str, exit: i32, expected: &str) {
    let output = dir.bash(code);
    let message = text(if exit == 0 { &output.stdout } else { &output.stderr });
    assert!(output.exit == Some(exit) && message.contains(expected), "{code:?} gave {output:?}\n{message}");
}

#[test]
fn what_outlives_its_program_is_told() {
    let Some(_) = needs("what_outlives_its_program_is_told", all) else { return };
    let dir = SandboxDir::new(Policy::default());
    let output = dir.bash("sleep 98764 & echo on; echo problem >&2");
    assert_eq!(output.left, ["sleep 98764"]);
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("on".to_owned(), "problem".to_owned()));
    // A process that is about to end may do so.
    let output = dir.bash("(sleep 0.01; echo late) & echo on");
    assert_eq!((output.left, text(&output.stdout)), (Vec::new(), "on\nlate".to_owned()));
}

#[test]
fn only_the_work_directory_can_be_written() {
    let Some(_) = needs("only_the_work_directory_can_be_written", all) else { return };
    let dir = SandboxDir::new(Policy::default());
    check(&dir, "echo x > inside && cat inside", 0, "x");
    check(&dir, "mktemp > /dev/null && echo x > $HOME/note && echo made", 0, "made");
    check(&dir, "echo x > ../outside", 1, "../outside: Read-only file system");
    check(&dir, "ln -s ../outside link; echo x > link", 1, "link: Read-only file system");
    check(&dir, "ln -s .. up; echo x > up/new", 1, "up/new: Read-only file system");
    check(&dir, "echo x > /tmp/alara-was-here", 1, "/tmp/alara-was-here: Read-only file system");
    check(&dir, "echo x >> /etc/passwd", 1, "/etc/passwd: ");
    check(&dir, "rm ../outside", 1, "Read-only file system");
    check(&dir, "mv ../outside .", 1, "Read-only file system");
    const FIXED: &str = "Read-only file system";
    for (what, call, expected) in [
        ("permissions", "chmod(f, 0o600)", FIXED),
        ("owner", "chown(f, os.getuid(), os.getgid())", FIXED),
        ("times", "utime(f, (1, 1))", FIXED),
        ("attributes", "setxattr(f, 'user.x', b'y')", "Operation not supported"),
    ] {
        let code = format!("python3 -c \"import os; f = '../outside'; os.{call}\"");
        let output = dir.bash(&code);
        assert!(text(&output.stderr).contains(expected), "{what}: {output:?}");
    }
    check(&dir, "ls / > /dev/null && cat ../outside", 0, "as it was");
    assert_eq!(std::fs::read_to_string(dir.root.path().join("outside")).unwrap(), "as it was");
}

#[test]
fn sockets_outside_are_out_of_reach() {
    let Some(_) = needs("sockets_outside_are_out_of_reach", all) else { return };
    let dir = SandboxDir::new(Policy::default());
    let code = "import socket, sys\nfor p in sys.argv[1:]:\n try: socket.socket(socket.AF_UNIX).connect(p); \
                print('open')\n except OSError as e: print(e.strerror)";
    for root in ["/tmp", "/var/tmp", "/run"] {
        // Not all folders are writable for everyone.
        let Ok(directory) = tempfile::tempdir_in(root) else { continue };
        let path = directory.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let path = path.to_str().unwrap();
        let plain = Command::new("python3").args(["-c", code, path]).output().unwrap();
        assert_eq!(text(&plain.stdout), "open", "{root} gave {plain:?}");
        for (network, expected) in [(false, "Operation not permitted"), (true, "No such file or directory")] {
            let output = dir.run(&["python3", "-c", code, path], network);
            assert_eq!(text(&output.stdout), expected, "{root} gave {output:?}");
        }
    }
    // One in another place, as many services have it.
    let path = dir.root.path().join("service");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let path = path.to_str().unwrap();
    for (network, expected) in [(false, "Operation not permitted"), (true, "open")] {
        let output = dir.run(&["python3", "-c", code, path], network);
        assert_eq!(text(&output.stdout), expected, "{output:?}");
    }
    let pair = "import socket; a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))";
    check(&dir, &format!("python3 -c \"{pair}\""), 0, "b'x'");
    check(&dir, "cat /etc/resolv.conf > /dev/null && ls -A /tmp | wc -l", 0, "");
}

#[test]
fn what_is_protected_cannot_be_changed() {
    let Some(_) = needs("what_is_protected_cannot_be_changed", all) else { return };
    let root = tempfile::tempdir().unwrap();
    let work = root.path().join("work");
    std::fs::create_dir_all(work.join("a/b/team/jinxes")).unwrap();
    std::fs::write(work.join("a/b/team/permissions.yaml"), "as it was").unwrap();
    std::fs::write(work.join("agents.md"), "as it was").unwrap();
    let protected = ["a/b/team", "agents.md", "missing", "."].map(|name| work.join(name)).to_vec();
    let sandbox = Sandbox::new(&work, Policy { protected, ..Policy::default() }).unwrap();
    let dir = SandboxDir { root, sandbox };
    check(&dir, "echo x > a/b/mine && echo y > a/mine && echo z > mine && cat a/b/mine", 0, "x");
    check(&dir, "cat a/b/team/permissions.yaml agents.md", 0, "as it wasas it was");
    for (code, expected) in [
        ("echo x > a/b/team/permissions.yaml", "Read-only file system"),
        ("echo x > a/b/team/jinxes/new", "Read-only file system"),
        ("echo x > agents.md", "Read-only file system"),
        ("rm a/b/team/permissions.yaml", "Read-only file system"),
        ("chmod 777 agents.md", "Read-only file system"),
        ("mv agents.md other", "busy"),
        ("rm agents.md", "busy"),
        ("mv a/b/team a/b/other", "busy"),
        ("mv a/b a/other", "busy"),
        ("mv a other", "busy"),
    ] {
        check(&dir, code, 1, expected);
    }
}

#[test]
fn a_team_is_out_of_its_agents_reach() {
    let Some(_) = needs("a_team_is_out_of_its_agents_reach", all) else { return };
    let root = tempfile::tempdir().unwrap();
    let alara = |directory: &Path, arguments: &[&str]| {
        let mut command = crate::alara();
        let output = command.args(arguments).current_dir(directory).output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let team = root.path().join("npc_team");
    std::fs::create_dir_all(team.join("jinxes")).unwrap();
    std::fs::write(team.join("team.ctx"), "forenpc: guide\n").unwrap();
    std::fs::write(team.join("guide.npc"), "name: guide\nprimary_directive: Help.\n").unwrap();
    let jinx = "inputs: [f]\nsteps: [{engine: bash, code: 'echo \"#\" >> \"$f\"'}]\n";
    std::fs::write(team.join("jinxes/write.jinx"), jinx).unwrap();
    // With the team in the work directory, and as the work directory.
    for (directory, prefix) in [(root.path(), "npc_team/"), (team.as_path(), "")] {
        for (file, allowed) in
            [("team.ctx", false), ("guide.npc", false), ("jinxes/new", false), ("../note", true)]
        {
            let file =
                if allowed && prefix.is_empty() { "note".to_owned() } else { format!("{prefix}{file}") };
            let jinx = team.join("jinxes/write.jinx");
            let team = team.to_str().unwrap();
            let (code, message) =
                alara(directory, &["run", "--team", team, jinx.to_str().unwrap(), &format!("f={file}")]);
            let refused = message.contains("Read-only file system");
            assert_eq!((code == Some(0), refused), (allowed, !allowed), "{file}: {message}");
        }
    }
}

#[test]
fn devices_and_terminals_are_out_of_reach() {
    let Some(_) = needs("devices_and_terminals_are_out_of_reach", all) else { return };
    let dir = SandboxDir::new(Policy::default());
    check(&dir, "head -c 3 /dev/zero | wc -c; ls /dev/pts", 0, "3\nptmx");
    check(
        &dir,
        "for f in /dev/*; do [ -b $f ] && head -c1 $f 2>&1 > /dev/null; done | grep -vc denied",
        1,
        "",
    );
    check(&dir, "python3 -c 'import pty; pty.spawn([\"echo\", \"on a terminal\"])'", 0, "on a terminal");
}

#[test]
fn the_environment_is_scrubbed() {
    let dir = SandboxDir::new(Policy::default());
    let output = dir.bash("env | cut -d= -f1 | sort | tr '\\n' ' '");
    assert_eq!(text(&output.stdout), "HOME LANG PATH PWD SHLVL TMPDIR _", "{output:?}");
    // A variable that would affect the launcher reaches only the program, as text.
    let env = ["LD_PRELOAD", "GREETING"].map(|name| (name.to_owned(), "/no/such.so".to_owned()));
    let timeout = Duration::from_secs(20);
    let program = &["bash", "-c", "echo $GREETING $LD_PRELOAD"];
    let script = Script { env: &env, ..Script::new(program, timeout) };
    let output = dir.sandbox.run(&script).unwrap();
    assert_eq!(text(&output.stdout), "/no/such.so /no/such.so");
    // Only the program's loader complains, not those of the two launchers before it.
    assert_eq!(text(&output.stderr).matches("LD_PRELOAD").count(), 1, "{output:?}");
}

#[test]
fn the_home_directory_is_hidden() {
    let Some(_) = needs("the_home_directory_is_hidden", |found| found.mounts) else { return };
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let write = |name: &str| {
        let path = root.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "#!/bin/sh\necho found\n").unwrap();
    };
    for file in [
        "home/.ssh/id",
        "home/diary",
        "home/bin/tool",
        "home/project/.git/config",
        "home/project/work/mine",
        "home/.cargo/bin/cargo",
        "home/.cargo/credentials.toml",
        "script.json",
    ] {
        write(file);
    }
    let jinx = "inputs: [f]\nsteps: [{engine: bash, code: 'cat \"$f\"'}]\n";
    std::fs::write(root.path().join("read.jinx"), jinx).unwrap();
    let home = root.path().join("home");
    let path = ["bin", ".cargo/bin"].map(|name| home.join(name).display().to_string()).join(":");
    let read = |work: &str, file: &str| {
        let output = crate::alara()
            .args([
                "run",
                "--yes",
                "--workdir",
                work,
                "../../../read.jinx",
                &format!("f={}", home.join(file).display()),
            ])
            .current_dir(home.join("project/work"))
            .env("HOME", &home)
            .env("PATH", format!("{path}:{}", std::env::var("PATH").unwrap()))
            .output()
            .unwrap();
        match output.status.success() {
            true => "seen",
            false if text(&output.stderr).contains("No such file") => "hidden",
            false if text(&output.stdout).is_empty() && text(&output.stderr).contains("ermission denied") => {
                "hidden"
            }
            false => panic!("{output:?}"),
        }
    };
    for (work, file, expected) in [
        (".", "diary", "hidden"),
        (".", ".ssh/id", "hidden"),
        (".", "bin/tool", "seen"),
        (".", "project/work/mine", "seen"),
        (".", "project/.git/config", "seen"),
        (".", ".cargo/bin/cargo", "seen"),
        // The home directory itself as the work directory: everything except the credentials.
        ("../..", "diary", "seen"),
        ("../..", ".ssh/id", "hidden"),
    ] {
        assert_eq!(read(work, file), expected, "{work} {file}");
    }
}

#[test]
fn nothing_outlives_its_program() {
    let Some(_) = needs("nothing_outlives_its_program", all) else { return };
    let dir = SandboxDir::new(Policy::default());
    let daemon = "(setsid bash -c 'exec sleep 7531' > /dev/null 2>&1 &) ; sleep 0.1; echo begun";
    check(&dir, daemon, 0, "begun");
    assert_eq!(running("7531"), 0);
    // Ended by the time limit, and by the flag: no process is left when the call returns.
    let program = &["bash", "-c", "(setsid sleep 8531 > /dev/null 2>&1 &); sleep 8531"];
    let timeout = Duration::from_millis(400);
    let script = Script::new(program, timeout);
    assert!(dir.sandbox.run(&script).unwrap().timed_out);
    assert_eq!(running("8531"), 0);
    let cancel = Arc::new(AtomicBool::new(false));
    let sandbox = Sandbox::new(dir.sandbox.work(), Policy::default()).unwrap().with_cancel(cancel.clone());
    let runs = std::thread::spawn(move || {
        let timeout = Duration::from_secs(60);
        sandbox.run(&Script::new(&["sleep", "8532"], timeout))
    });
    let begun = Instant::now();
    while running("8532") == 0 && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(5));
    }
    cancel.store(true, Ordering::Relaxed);
    assert!(runs.join().unwrap().unwrap().cancelled);
    assert_eq!(running("8532"), 0);
}

/// Counts the processes that sleep for this number of seconds.
fn running(seconds: &str) -> usize {
    let sleeps = |path: &Path| {
        std::fs::read(path.join("cmdline")).is_ok_and(|line| line == format!("sleep\0{seconds}\0").as_bytes())
    };
    let entries = Path::new("/proc").read_dir().unwrap();
    entries.flatten().filter(|entry| sleeps(&entry.path())).count()
}

#[test]
fn the_network_is_by_declaration() {
    let Some(_) = needs("the_network_is_by_declaration", all) else { return };
    let dir = SandboxDir::new(Policy::default());
    let socket = |family: &str, network: bool, expected: &str| {
        let code = format!(
            "import socket\ntry: socket.socket({family}, socket.SOCK_DGRAM); print('made')\nexcept OSError as e: print(e.strerror)"
        );
        let output = dir.run(&["python3", "-c", &code], network);
        assert_eq!(text(&output.stdout), expected, "{family} {network} gave {output:?}");
    };
    socket("socket.AF_UNIX", false, "Operation not permitted");
    socket("socket.AF_INET", false, "Operation not permitted");
    socket("socket.AF_INET6", false, "Operation not permitted");
    socket("socket.AF_NETLINK", false, "Operation not permitted");
    socket("socket.AF_INET", true, "made");
    socket("socket.AF_PACKET", true, "Operation not permitted");
    check(&dir, "exec 3<>/dev/tcp/127.0.0.1/22", 1, "Operation not permitted");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let code = format!("exec 3<>/dev/tcp/127.0.0.1/{} && echo open", listener.local_addr().unwrap().port());
    assert_eq!(text(&dir.run(&["bash", "-c", &code], true).stdout), "open");
    // A policy without network access overrides a script that requests it.
    let closed = SandboxDir::new(Policy { network: false, ..Policy::default() });
    assert_eq!(closed.run(&["bash", "-c", &code], true).exit, Some(1));
}

#[test]
fn usual_programs_work() {
    let Some(_) = needs("usual_programs_work", all) else { return };
    let dir = SandboxDir::new(Policy::default());
    check(
        &dir,
        "git init -q . && echo 1 > f && git add f && git -c user.name=a -c user.email=b@c commit -qm one && git log --oneline | wc -l",
        0,
        "1",
    );
    check(
        &dir,
        "python3 -c 'import subprocess, multiprocessing as m; print(m.Pool(2).map(abs, [-1, 2]), subprocess.run([\"true\"]))'",
        0,
        "[1, 2] CompletedProcess(args=['true'], returncode=0)",
    );
    check(
        &dir,
        "python3 -c 'import asyncio\nasync def f(): return (await (await asyncio.create_subprocess_exec(\"echo\", \"hi\", stdout=-1)).communicate())[0]\nprint(asyncio.run(f()))'",
        0,
        "hi",
    );
    check(
        &dir,
        "python3 -c 'import threading; t = threading.Thread(target=print, args=[\"thread\"]); t.start(); t.join()'",
        0,
        "thread",
    );
    check(
        &dir,
        "command -v node > /dev/null || { echo '[1,2]'; exit; }; node -e 'new (require(\"worker_threads\").Worker)(\"setTimeout(()=>{},1)\", {eval: true}).on(\"exit\", () => console.log(JSON.stringify([1,2])))'",
        0,
        "[1,2]",
    );
    check(&dir, "sort <(seq 3) | tail -1; kill -9 $$ 2> /dev/null; true", 137, "");
    // Process 1 is immune, and outside processes are invisible.
    check(&dir, "kill -9 1; sleep 0.1; set -- /proc/[0-9]*; echo \"=$#=\"", 0, "=2=");
}

#[test]
fn many_run_at_a_time() {
    let dir = SandboxDir::new(Policy::default());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|number| {
                let dir = &dir;
                scope.spawn(move || {
                    text(&dir.bash(&format!("sleep 0.1; echo {number}; test $$ -lt 20")).stdout)
                })
            })
            .collect();
        for (number, thread) in threads.into_iter().enumerate() {
            assert_eq!(thread.join().unwrap(), number.to_string());
        }
    });
}

/// Compares a program in the sandbox with the program alone.
/// The limit is generous, since other tests run at the same time; the benchmark `sandbox` measures
/// it.
#[test]
fn the_sandbox_starts_quickly() {
    let Some(_) = needs("the_sandbox_starts_quickly", all) else { return };
    let dir = SandboxDir::new(Policy::default());
    let median = |run: &dyn Fn()| {
        let mut times: Vec<Duration> = (0..15)
            .map(|_| {
                let begun = Instant::now();
                run();
                begun.elapsed()
            })
            .collect();
        times.sort();
        times[times.len() / 2]
    };
    let sandboxed = median(&|| assert_eq!(dir.run(&["true"], false).exit, Some(0)));
    let plain = median(&|| assert!(Command::new("true").status().unwrap().success()));
    eprintln!("true: {plain:?}; in the sandbox: {sandboxed:?}");
    assert!(sandboxed < plain + Duration::from_millis(500), "{sandboxed:?} against {plain:?}");
}

#[test]
fn whoever_runs_a_jinx_is_told() {
    let Some(_) = needs("whoever_runs_a_jinx_is_told", all) else { return };
    let root = tempfile::tempdir().unwrap();
    let jinx = "inputs: []\nsteps: [{engine: bash, code: ':(){ :|:& };:; sleep 30'}]\n";
    std::fs::write(root.path().join("bomb.jinx"), jinx).unwrap();
    let mut command = crate::alara();
    let output = command.args(["run", "bomb.jinx"]).current_dir(root.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("killed: more than 256 processes"), "{output:?}");
}

#[test]
fn the_doctor_tells_what_holds() {
    launch_with(Path::new(env!("CARGO_BIN_EXE_alara")));
    let doctor = |arguments: &[&str]| {
        let mut command = crate::alara();
        command.arg("doctor").args(arguments).current_dir(std::env::temp_dir()).output().unwrap()
    };
    let output = doctor(&["--json"]);
    let findings: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let ok = |what: &str| findings.iter().find(|finding| finding["what"] == what).unwrap()["ok"].as_bool();
    let found = enforced();
    for (what, expected) in [
        ("user namespace", found.user),
        ("mount namespace", found.mounts),
        ("Landlock", found.landlock > 0),
        ("system call filter", found.seccomp),
        ("watched limits", found.supervised),
        ("bash", true),
    ] {
        assert_eq!(ok(what), Some(expected), "{what}");
    }
    let lacking = findings.iter().any(|finding| finding["essential"] == true && finding["ok"] == false);
    assert_eq!(output.status.code(), Some(i32::from(lacking)));
    // With an empty path, bash is missing.
    let mut command = crate::alara();
    let output =
        command.arg("doctor").env("PATH", "/nonexistent").current_dir(std::env::temp_dir()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stdout);
    assert!(
        message.contains("NO  bash") && message.ends_with("something is missing that alara can't do without"),
        "{message}"
    );
}

/// The superuser is the harder case, so both are tested if possible.
#[test]
fn the_sandbox_holds_for_an_ordinary_user_too() {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65534;
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let tests = std::env::current_exe().unwrap();
    let output = Command::new(&tests)
        .args(["sandbox::", "attacks::", "--skip", "ordinary_user", "--nocapture"])
        .env("HOME", "/nonexistent")
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .output();
    let output = match output {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            eprintln!(
                "SKIPPED: the_sandbox_holds_for_an_ordinary_user_too: {} is not for everyone",
                tests.display()
            );
            return;
        }
        output => output.unwrap(),
    };
    let message = text(&output.stdout);
    assert!(
        output.status.success() && !message.contains("running 0 tests"),
        "{message}\n{}",
        text(&output.stderr)
    );
}
