use super::*;

fn sandbox(work: &Path) -> Sandbox {
    Sandbox::new(work, Policy { isolation: Isolation::Off, ..Policy::default() }).unwrap()
}

fn bash<'a>(code: &'a [&'a str; 3]) -> Script<'a> {
    Script::new(code, Duration::from_secs(20))
}

#[test]
fn reports_what_a_program_did() {
    let work = tempfile::tempdir().unwrap();
    let sandbox = sandbox(work.path());
    let check = |code: &str, exit, stdout: &str, stderr: &str| {
        let output = sandbox.run(&bash(&["bash", "-c", code])).unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(
            (output.exit, text(&output.stdout), text(&output.stderr)),
            (exit, stdout.into(), stderr.into())
        );
    };
    check("echo out; echo err >&2; exit 3", Some(3), "out\n", "err\n");
    check("kill -9 $$", Some(137), "", "");
    check("cat", Some(0), "", "");
    check("pwd", Some(0), &format!("{}\n", sandbox.work().display()), "");
    check(
        "test -d $HOME && test -w $TMPDIR && env | cut -d= -f1 | grep -c -E 'CARGO|USER'",
        Some(1),
        "0\n",
        "",
    );
}

#[test]
fn passes_environment_and_input() {
    let work = tempfile::tempdir().unwrap();
    let env = [("value".to_owned(), "'; rm -rf / #".to_owned())];
    let script = Script {
        env: &env,
        stdin: Some(b"from stdin"),
        ..bash(&["bash", "-c", r#"printf %s "$value"; cat"#])
    };
    let output = sandbox(work.path()).run(&script).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "'; rm -rf / #from stdin");
}

#[test]
fn a_timeout_may_be_longer_than_any_clock() {
    let work = tempfile::tempdir().unwrap();
    let script = Script { timeout: Duration::MAX, ..bash(&["bash", "-c", "exit 3"]) };
    assert_eq!(sandbox(work.path()).run(&script).unwrap().exit, Some(3));
}

#[test]
fn a_timeout_kills_the_children_too() {
    let work = tempfile::tempdir().unwrap();
    let code = ["bash", "-c", "(sleep 1; touch late) & sleep 30"];
    let script = Script { timeout: Duration::from_millis(300), ..bash(&code) };
    let begun = Instant::now();
    let output = sandbox(work.path()).run(&script).unwrap();
    assert!(output.timed_out && output.exit.is_none(), "{output:?}");
    assert!(begun.elapsed() < Duration::from_secs(5));
    std::thread::sleep(Duration::from_millis(1200));
    assert!(!work.path().join("late").exists());
}

#[test]
fn a_flood_is_drained_and_counted() {
    let work = tempfile::tempdir().unwrap();
    let code = ["bash", "-c", "yes | head -c 5000000"];
    let output = sandbox(work.path()).run(&Script { output_limit: 1000, ..bash(&code) }).unwrap();
    let mark = "[… 2499500 lines, 4999000 bytes left out …]\n";
    let expected = format!("{0}{mark}{0}", "y\n".repeat(250));
    assert_eq!((output.exit, output.stdout_dropped), (Some(0), 4_999_000));
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn cancelling_ends_the_program() {
    let work = tempfile::tempdir().unwrap();
    let cancel = Arc::new(AtomicBool::new(true));
    let output = sandbox(work.path()).with_cancel(cancel).run(&bash(&["bash", "-c", "sleep 30"])).unwrap();
    assert!(output.cancelled && !output.timed_out, "{output:?}");
}

#[test]
fn refuses_what_it_cannot_do() {
    let check = |work: &str, policy: Policy, expected: &str| {
        let error = Sandbox::new(Path::new(work), policy).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    };
    let off = || Policy { isolation: Isolation::Off, ..Policy::default() };
    check("/no/such", off(), "the work directory /no/such can't be used");
    check("/etc/passwd", off(), "the work directory /etc/passwd can't be used");
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::ffi::OsStrExt;

        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join(std::ffi::OsStr::from_bytes(b"w\xff"));
        std::fs::create_dir(&work).unwrap();
        let error = Sandbox::new(&work, off()).unwrap_err();
        let why = std::error::Error::source(&error).unwrap().to_string();
        assert!(why.starts_with("its path is no UTF-8 text"), "{error}: {why}");
    }
    check("/", Policy { private_tmp: Some("/var".into()), ..off() }, "a private /tmp can't be enforced");
    check("/", Policy::default(), "the sandbox has no launcher");
}
