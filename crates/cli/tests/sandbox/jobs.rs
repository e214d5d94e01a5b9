//! Background programs: what they can reach, what happens to their files, and what ends them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use alara_harness::sandbox::{Ended, Error, Job, Policy, Risk, Sandbox, Script, losses};
use alara_harness::undo::By;

use super::{all, needs, text};

/// A work directory with files, guarded or not.
struct JobDir {
    root: tempfile::TempDir,
    sandbox: Sandbox,
}

const PYTHON_SERVER: &str = "exec python3 -u -m http.server --bind 127.0.0.1 8123";
/// Prints a server's response for a path, as soon as the server is up.
const FETCH: &str = "for i in $(seq 100); do python3 -c \"import sys, urllib.request as u; \
    sys.stdout.write(u.urlopen('http://127.0.0.1:8123/' + sys.argv[1]).read().decode())\" \"$1\" 2> /dev/null \
    && exit; sleep 0.05; done; exit 1";

impl JobDir {
    fn new(guard: bool) -> Self {
        let root = tempfile::tempdir_in("/var/tmp").or_else(|_| tempfile::tempdir()).unwrap();
        let work = root.path().join("work");
        std::fs::create_dir_all(&work).unwrap();
        std::fs::write(work.join("page"), "first\n").unwrap();
        let sandbox = Sandbox::new(&work, Policy { guard, ..Policy::default() }).unwrap();
        JobDir { root, sandbox }
    }

    fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.work().join(name)).ok()
    }

    fn start(&self, code: &str) -> Job {
        let program = ["bash", "-c", code];
        self.sandbox
            .start::<Error>(&script(&program), true, false, By::default(), &mut |_| panic!("asked"))
            .unwrap()
            .unwrap()
    }

    /// Returns a program's stdout; it runs as a step of an agent.
    fn step(&self, program: &[&str], job: &Job) -> String {
        self.take(job, false).unwrap();
        job.refresh();
        let mut no = |_: Risk| Ok(true);
        let ran = self
            .sandbox
            .run_guarded::<Error>(&script(program), false, false, By::default(), &mut no)
            .unwrap();
        job.refresh();
        match ran {
            alara_harness::sandbox::Guarded::Ran(output) => text(&output.stdout),
            other => panic!("{other:?}"),
        }
    }

    fn bash(&self, code: &str, job: &Job) -> String {
        self.step(&["bash", "-c", code], job)
    }

    fn fetch(&self, path: &str, job: &Job) -> String {
        self.step(&["bash", "-c", FETCH, "bash", path], job)
    }

    /// Applies the files that a job wrote, with a user who answers `yes` or no; returns the
    /// questions, if the answer ended it.
    fn take(&self, job: &Job, yes: bool) -> Result<(), Vec<String>> {
        let mut asked = Vec::new();
        let taken = self.sandbox.take::<Error>(job, By::default(), &mut |risk| {
            match risk {
                Risk::Losses(changes, _) => asked.extend(losses(changes)),
                Risk::Refused(changes) => asked.extend(changes.iter().map(ToString::to_string)),
                risk => panic!("{risk:?}"),
            }
            Ok(yes)
        });
        if taken.unwrap() { Ok(()) } else { Err(asked) }
    }
}

fn script<'a>(program: &'a [&'a str]) -> Script<'a> {
    let timeout = Duration::from_secs(60);
    Script::new(program, timeout)
}

/// Prints whether a server listens on a port.
fn connect(port: u16) -> String {
    format!("(: < /dev/tcp/127.0.0.1/{port}) 2> /dev/null && echo reached || echo no")
}

/// Waits until a condition holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what} did not come about");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn ended(job: &Job) -> Ended {
    job.ended(Duration::from_secs(20)).cloned().expect("the job ends")
}

#[test]
fn a_server_is_reached_by_the_next_step_and_serves_what_steps_write() {
    let Some(_) = needs("a_server_is_reached_by_the_next_step", all) else { return };
    for guard in [true, false] {
        let dir = JobDir::new(guard);
        let job = dir.start(PYTHON_SERVER);
        assert_eq!(dir.fetch("page", &job), "first", "guarded: {guard}");
        assert!(dir.fetch("", &job).contains("page"));
        dir.bash("echo second > new && mv new page && echo more > other", &job);
        assert_eq!((dir.fetch("page", &job), dir.fetch("other", &job)), ("second".into(), "more".into()));
        // The user's files are visible by then, too.
        std::fs::write(dir.work().join("mine"), "mine\n").unwrap();
        std::fs::write(dir.work().join(".page"), "third\n").unwrap();
        std::fs::rename(dir.work().join(".page"), dir.work().join("page")).unwrap();
        assert_eq!((dir.fetch("page", &job), dir.fetch("mine", &job)), ("third".into(), "mine".into()));
        let (output, dropped) = job.read();
        assert!(output.contains("\"GET /page HTTP/1.1\" 200") && dropped == 0, "{output}");
        job.end();
        assert_eq!(ended(&job).how, "ended when asked to");
        assert_eq!(dir.bash(&connect(8123), &job), "no");
    }
}

#[test]
fn two_sessions_do_not_see_each_others_ports_nor_the_machines() {
    let Some(_) = needs("two_sessions_do_not_see_each_others_ports", all) else { return };
    let outside = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = outside.local_addr().unwrap().port();
    let (one, other) = (JobDir::new(true), JobDir::new(true));
    let job = one.start(PYTHON_SERVER);
    let quiet = other.start("sleep 60");
    assert_eq!(one.fetch("page", &job), "first");
    assert_eq!(one.bash(&connect(8123), &job), "reached");
    assert_eq!(other.bash(&connect(8123), &quiet), "no");
    assert_eq!(
        (one.bash(&connect(port), &job), other.bash(&connect(port), &quiet)),
        ("no".into(), "no".into())
    );
    assert!(std::net::TcpStream::connect("127.0.0.1:8123").is_err());
    // There is no route out either.
    let routes = one.bash("cat /proc/net/dev | tail -n +3 | cut -d: -f1; wc -l < /proc/net/route", &job);
    assert!(routes.trim().starts_with("lo") && routes.ends_with('1'), "{routes}");
}

#[test]
fn output_of_a_job_is_read_in_pieces() {
    let Some(_) = needs("output_of_a_job_is_read_in_pieces", all) else { return };
    let dir = JobDir::new(true);
    let job = dir.start("echo one; while ! test -f go; do sleep 0.05; done; echo two >&2; exit 3");
    until("output", || job.has_output());
    assert_eq!((job.read(), job.read()), (("one\n".into(), 0), (String::new(), 0)));
    assert_eq!(job.ended(Duration::ZERO), None);
    dir.bash("touch go", &job);
    let end = ended(&job);
    assert_eq!((end.exit, end.how.as_str()), (Some(3), "exit status 3"));
    assert_eq!(job.read(), ("two\n".into(), 0));
}

#[test]
fn what_a_job_writes_comes_into_the_directory_by_and_by() {
    let Some(_) = needs("what_a_job_writes_comes_into_the_directory", all) else { return };
    let dir = JobDir::new(true);
    let job = dir.start(
        "mkdir -p out/deep; echo 1 > out/deep/a; echo x > out/gone; \
         until test -f next; do sleep 0.02; done; \
         rm out/gone; echo 2 > out/deep/b; echo done > out/done; sleep 60",
    );
    until("the first files", || {
        dir.take(&job, false).unwrap();
        dir.read("out/gone").is_some()
    });
    assert_eq!(dir.read("out/deep/a").as_deref(), Some("1\n"));
    // Later steps see the files, and their changes to them are kept.
    assert_eq!(dir.bash("cat out/deep/a; echo changed > out/deep/a; touch next", &job), "1");
    until("the other files", || {
        dir.take(&job, false).unwrap();
        dir.read("out/done").is_some()
    });
    assert_eq!((dir.read("out/gone"), dir.read("out/deep/b").as_deref()), (None, Some("2\n")));
    assert_eq!(dir.read("out/deep/a").as_deref(), Some("changed\n"));
    job.end();
    dir.take(&job, false).unwrap();
    assert_eq!(dir.read("out/deep/a").as_deref(), Some("changed\n"));
}

#[test]
fn a_job_loses_nothing_of_the_users_and_writes_no_hook_without_a_yes() {
    let Some(_) = needs("a_job_loses_nothing_of_the_users", all) else { return };
    for (code, expected) in [
        ("rm page", "removes page"),
        ("echo new > page", "overwrites page"),
        (
            "mkdir -p .git/hooks; echo x > .git/hooks/post-commit",
            "creates .git/hooks/post-commit, which git obeys",
        ),
        ("mkdir .vscode; echo x > .vscode/tasks.json", "creates .vscode/tasks.json, which an editor obeys"),
    ] {
        let dir = JobDir::new(true);
        let job = dir.start(&format!("{code}; echo harmless > new; echo done; sleep 60"));
        until("output", || job.has_output());
        let asked = dir.take(&job, false).unwrap_err();
        assert!(asked.iter().any(|change| change == expected), "{code}: {asked:?}");
        assert_eq!((dir.read("page").as_deref(), dir.read("new")), (Some("first\n"), None), "{code}");
        assert!(!dir.work().join(".git").exists() && !dir.work().join(".vscode").exists(), "{code}");
        // After a yes it is done.
        dir.take(&job, true).unwrap();
        assert_eq!(dir.read("new").as_deref(), Some("harmless\n"), "{code}");
        job.end();
    }
}

#[test]
fn a_job_is_asked_to_end_before_it_is_killed() {
    let Some(_) = needs("a_job_is_asked_to_end_before_it_is_killed", all) else { return };
    let dir = JobDir::new(true);
    let job =
        dir.start("trap 'echo bye; echo kept > last; exit 0' TERM; echo up; while :; do sleep 0.05; done");
    until("output", || job.has_output());
    job.end();
    let (exit, output) = (ended(&job).exit, job.read().0);
    // The shell reports the end of its own program, too.
    assert!(exit == Some(0) && output.contains("bye\n"), "{exit:?} {output}");
    dir.take(&job, false).unwrap();
    assert_eq!(dir.read("last").as_deref(), Some("kept\n"));
    let job = dir.start("trap '' TERM; echo up; while :; do sleep 0.05; done");
    until("output", || job.has_output());
    let begun = Instant::now();
    job.end();
    assert!(job.ended(Duration::ZERO).is_some() && begun.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_job_is_ended_with_all_that_it_started_when_it_is_dropped() {
    let Some(_) = needs("a_job_is_ended_when_it_is_dropped", all) else { return };
    let dir = JobDir::new(false);
    let code = "(setsid bash -c 'while :; do date +%N > beat; sleep 0.02; done' &) ; sleep 60";
    let job = dir.start(code);
    until("a beat", || dir.read("beat").is_some());
    drop(job);
    let last = dir.read("beat");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(dir.read("beat"), last);
}

#[test]
fn limits_hold_for_jobs() {
    let Some(_) = needs("limits_hold_for_jobs", all) else { return };
    let dir = JobDir::new(false);
    let program = ["bash", "-c", "for i in $(seq 40); do sleep 30 & done; wait"];
    let policy = Policy { processes: 16, ..Policy::default() };
    let sandbox = Sandbox::new(&dir.work(), policy).unwrap();
    let job = sandbox
        .start::<Error>(&script(&program), false, false, By::default(), &mut |_| Ok(true))
        .unwrap()
        .unwrap();
    assert_eq!(ended(&job).how, "killed: more than 16 processes");
}

#[test]
fn what_a_job_writes_takes_no_more_of_the_disk_and_does_not_lie_too_deep() {
    use std::os::unix::fs::MetadataExt;
    let Some(_) = needs("what_a_job_writes_takes_no_more_of_the_disk", all) else { return };
    let dir = JobDir::new(true);
    let job = dir.start("truncate -s 200M s; echo all > f; ln f g; chmod 000 .; echo done");
    ended(&job);
    assert_eq!(dir.take(&job, false), Ok(()));
    let found = |name: &str| dir.work().join(name).metadata().unwrap();
    assert_eq!(found("s").len(), 200 << 20);
    assert!(found("s").blocks() * 512 < 1 << 20, "{}", found("s").blocks());
    assert_eq!((found("f").ino(), dir.read("g").as_deref()), (found("g").ino(), Some("all\n")));
    let deep = "python3 -c 'import os\nfor _ in range(3000): os.mkdir(\"d\"); os.chdir(\"d\")'";
    let job = dir.start(deep);
    ended(&job);
    assert_eq!(dir.take(&job, true), Err(vec!["lays folders deeper than 256 in d".to_owned()]));
    assert!(!dir.work().join("d").exists());
}
