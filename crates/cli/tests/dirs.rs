//! Test directories: for the program, or with a team in the test's own process.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use alara_harness::sandbox::Isolation;
use alara_harness::{Policy, Sandbox, Team};
use serde_json::{Value, json};

/// A directory with a work directory, a home, a state directory and a script for the model.
pub struct TestDir {
    pub root: tempfile::TempDir,
    /// Separate, because agents don't work in a parent of a home directory without asking.
    home: tempfile::TempDir,
}

impl TestDir {
    /// Sets up a model that plays `script`.
    pub fn with(script: &Value) -> Self {
        let dir = TestDir { root: tempfile::tempdir().unwrap(), home: tempfile::tempdir().unwrap() };
        std::fs::create_dir(dir.path("work")).unwrap();
        dir.write("script.json", &script.to_string());
        dir
    }

    /// Sets up a model that makes these shell calls one after the other and then says "Done.".
    pub fn calling(commands: &[&str]) -> Self {
        let call = |command: &&str| json!({"calls": [{"name": "shell", "arguments": {"command": command}}]});
        let mut replies: Vec<Value> = commands.iter().map(call).collect();
        replies.push(json!({"text": "Done."}));
        TestDir::with(&Value::from(replies))
    }

    /// Returns a path: `home` is the user's home directory, anything else is in the test directory.
    pub fn path(&self, name: &str) -> PathBuf {
        match name.strip_prefix("home").map(|rest| (rest, rest.strip_prefix('/'))) {
            Some(("", _)) => self.home.path().to_owned(),
            Some((_, Some(rest))) => self.home.path().join(rest),
            _ => self.root.path().join(name),
        }
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Returns a command for the program in this directory, with a secret in its environment.
    pub fn alara(&self, arguments: &[&str]) -> Command {
        let mut command = crate::alara();
        command
            .args(arguments)
            .current_dir(self.root.path())
            .env("HOME", self.path("home"))
            .env_remove("XDG_CONFIG_HOME")
            .env("XDG_STATE_HOME", self.path("state"))
            .env("SECRET_KEY", "hunter2")
            .env_remove("ALARA_TOKEN")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Returns its output, with `input` on standard input.
    pub fn with_input(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = self.alara(arguments).stdin(Stdio::piped()).spawn().unwrap();
        // A program may end before it has read everything.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// Returns a command for a task, whose trace goes to `trace.jsonl`.
    pub fn task(&self) -> Command {
        let fixed =
            ["run", "-m", "script:script.json", "--workdir", "work", "--trace", "trace.jsonl", "do it"];
        self.alara(&fixed)
    }

    /// Returns the records of that trace.
    pub fn trace(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path("trace.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

/// Whether programs run as expected here; prints a note if not.
pub fn sandboxed(test: &str) -> bool {
    let shown = text(&TestDir::calling(&[]).task().output().unwrap().stderr);
    let incomplete = shown.lines().any(|line| line.starts_with("warning: the sandbox is incomplete"));
    if incomplete {
        eprintln!("SKIPPED: {test}: this machine's sandbox is incomplete");
    }
    !incomplete
}

/// A team and a work directory, without isolation, in the test's own process.
pub struct TeamDir {
    pub team: Team,
    pub sandbox: Sandbox,
    pub work: tempfile::TempDir,
}

impl TeamDir {
    pub fn with(team: Team) -> Self {
        let work = tempfile::tempdir().unwrap();
        let policy = Policy { isolation: Isolation::Off, ..Policy::default() };
        let sandbox = Sandbox::new(work.path(), policy).unwrap();
        TeamDir { team, sandbox, work }
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.work.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

/// Runs the program at a terminal and types an answer after each of these words; returns its exit
/// code and everything shown.
pub fn at_a_terminal(dir: &TestDir, arguments: &[&str], answers: &[(&str, &str)]) -> (i32, String) {
    typed(dir.alara(arguments), answers)
}

/// Like [`at_a_terminal`], for any command.
/// Once no answers are left, the program runs on by itself; it is killed after a minute.
pub fn typed(command: Command, answers: &[(&str, &str)]) -> (i32, String) {
    on_screen(command, answers, 80, &[("TERM", "dumb"), ("NO_COLOR", "1")])
}

/// Like [`typed`], on a terminal of this width, with these variables.
pub fn on_screen(
    command: Command,
    answers: &[(&str, &str)],
    columns: u16,
    variables: &[(&str, &str)],
) -> (i32, String) {
    const TERMINAL: &str = r#"
import fcntl, json, os, pty, signal, struct, sys, termios
answers, columns, command = json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
child, terminal = pty.fork()
if child == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    os.execvp(command[0], command)
signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
signal.alarm(60)
shown, seen = b"", 0
while True:
    try:
        data = os.read(terminal, 4096)
    except OSError:
        break
    if not data:
        break
    shown += data
    while answers and answers[0][0].encode() in shown[seen:]:
        words, typed = answers.pop(0)
        seen = shown.index(words.encode(), seen) + len(words.encode())
        if typed:
            os.write(terminal, typed.encode() + b"\n")
sys.stdout.buffer.write(shown)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) % 256)
"#;
    let mut terminal = Command::new("python3");
    terminal.args(["-c", TERMINAL, &json!(answers).to_string(), &columns.to_string()]);
    terminal.arg(command.get_program()).args(command.get_args());
    terminal.env_remove("NO_COLOR").env_remove("CLICOLOR").envs(variables.iter().copied());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => terminal.env(name, value),
            None => terminal.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        terminal.current_dir(folder);
    }
    let output = terminal.output().unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    (code(&output), text(&output.stdout))
}
