//! Resource limits of programs: processes, memory, CPU time, disk, output.

use super::*;

#[test]
fn programs_are_killed_at_their_limits() {
    let Some(_) = needs("programs_are_killed_at_their_limits", all) else { return };
    let policy = Policy {
        memory_bytes: 256 << 20,
        processes: 64,
        cpu: Duration::from_secs(2),
        written_bytes: 64 << 20,
        output_bytes: 16 << 20,
        ..Policy::default()
    };
    let dir = SandboxDir::new(policy);
    for (what, code, expected) in [
        ("a fork bomb", ":(){ :|:& };:; sleep 30".to_owned(), "killed: more than 64 processes"),
        (
            "threads",
            "exec python3 -c 'import threading, time\nthreading.stack_size(65536)\nfor _ in range(100): threading.Thread(target=time.sleep, args=[30]).start()'"
                .to_owned(),
            "killed: more than 64 processes",
        ),
        (
            "memory by many children",
            format!("for i in 1 2 3 4 5; do python3 -c \"{HOG}\" & done; wait"),
            "killed: more than 256 MiB of memory",
        ),
        (
            "memory in files",
            "for i in 1 2 3 4; do head -c 64M /dev/zero > /dev/shm/$i; done; sleep 30".to_owned(),
            "killed: more than 256 MiB of memory",
        ),
        (
            "processor time of many children",
            "for i in 1 2 3 4; do (while :; do :; done) & done; wait".to_owned(),
            "killed: more than 2 s of processor time",
        ),
        (
            "a disk filler",
            "i=0; while :; do head -c 4M /dev/zero > f$((i++)); done".to_owned(),
            "killed: more than 64 MiB written to disk",
        ),
        ("endless output", "yes".to_owned(), "killed: more than 16 MiB of output"),
    ] {
        let output = dir.bash(&code);
        let killed = output.killed.as_deref();
        assert_eq!((killed, output.exit), (Some(expected), None), "{what} gave {output:?}");
    }
}

/// Limits are enforced even where namespaces are refused, as in most containers.
/// Such a place is a sandbox itself, so this test runs itself in one.
#[test]
fn limits_hold_without_namespaces() {
    launch_with(Path::new(env!("CARGO_BIN_EXE_alara")));
    let policy = Policy { memory_bytes: 256 << 20, processes: 64, ..Policy::default() };
    if enforced().processes {
        let Some(_) = needs("limits_hold_without_namespaces", all) else { return };
        let tests = std::env::current_exe().unwrap();
        // Wherever they were built: below a home directory they would be hidden.
        let readable = vec![tests.clone(), env!("CARGO_BIN_EXE_alara").into()];
        let policy = Policy { memory_bytes: 8 << 30, processes: 4000, readable, ..Policy::default() };
        let (dir, tests) = (SandboxDir::new(policy), tests.display().to_string());
        let output = dir.run(&[&tests, "--exact", "sandbox::limits::limits_hold_without_namespaces"], false);
        let message = text(&output.stdout);
        assert!(message.contains("1 passed"), "{message}\n{} {output:?}", text(&output.stderr));
        return;
    }
    let found = enforced();
    assert!(
        !found.user && !found.mounts && found.landlock > 0 && found.seccomp && found.supervised,
        "{found}"
    );
    let dir = SandboxDir::new(policy);
    let killed = |code: &str, expected: &str| {
        let output = dir.bash(code);
        assert_eq!(output.killed.as_deref(), Some(expected), "{code} gave {output:?}");
    };
    // One by one, because a fork bomb may starve the monitor, and then the sandbox around this test
    // ends it first.
    killed("for i in {1..999}; do sleep 7533 & done; wait", "killed: more than 64 processes");
    killed(
        &format!("for i in 1 2 3; do (setsid python3 -c \"{HOG}\" &) ; done; sleep 7533"),
        "killed: more than 256 MiB of memory",
    );
    check(&dir, "echo x > ../outside", 1, "../outside: Permission denied");
    check(&dir, "(setsid bash -c 'exec sleep 7532' > /dev/null 2>&1 &) ; sleep 0.1; echo begun", 0, "begun");
    assert_eq!(running("7532"), 0);
    assert_eq!(running("7533"), 0);
}

#[test]
fn a_process_alone_gets_no_more_than_the_limit() {
    let Some(_) = needs("a_process_alone_gets_no_more_than_the_limit", all) else { return };
    let dir = SandboxDir::new(Policy { memory_bytes: 256 << 20, file_bytes: 1 << 20, ..Policy::default() });
    check(&dir, "python3 -c 'x = bytearray(300 << 20)' 2>&1 | tail -1", 0, "MemoryError");
    // 128 + SIGXFSZ.
    check(
        &dir,
        "head -c 2M /dev/zero > big; s=$?; stat -c %s big; exit $((s == 153 || s == 1 ? 0 : 9))",
        0,
        "1048576",
    );
}

#[test]
fn memory_that_children_share_counts_once() {
    let Some(_) = needs("memory_that_children_share_counts_once", all) else { return };
    let dir = SandboxDir::new(Policy { memory_bytes: 256 << 20, ..Policy::default() });
    let code = "import os, time\nx = bytearray(100 << 20); x[::4096] = b'x' * len(x[::4096])\n\
                children = [os.fork() for _ in range(2)]\n\
                time.sleep(0.3)\nif all(children): os.wait(); os.wait(); print('unharmed')";
    let output = dir.run(&["python3", "-c", code], false);
    assert!(output.killed.is_none() && text(&output.stdout).contains("unharmed"), "{output:?}");
}

#[test]
fn a_million_lines_are_drained() {
    let dir = SandboxDir::new(Policy::default());
    let output = dir.bash("seq 1000000");
    assert_eq!(output.exit, Some(0));
    let told = text(&output.stdout);
    let mark = told.lines().find(|line| line.starts_with('[')).unwrap();
    assert!(mark.ends_with(&format!(" lines, {} bytes left out …]", output.stdout_dropped)), "{mark}");
    assert_eq!(output.stdout.len() as u64 - mark.len() as u64 - 1 + output.stdout_dropped, 6_888_896);
    assert!(output.stdout.starts_with(b"1\n2\n") && output.stdout.ends_with(b"\n1000000\n"));
}

/// A user whose limits are lower than ours couldn't run any program at all.
#[test]
fn lower_limits_of_the_system_hold() {
    if !crate::dirs::sandboxed("lower_limits_of_the_system_hold") {
        return;
    }
    let dir = crate::dirs::TestDir::calling(&["ulimit -Hf; ulimit -Ht"]);
    let task = dir.task();
    let mut limited = std::process::Command::new("bash");
    limited.args(["-c", "ulimit -f 100000; ulimit -t 600; exec \"$@\"", "bash"]);
    limited.arg(task.get_program()).args(task.get_args()).current_dir(dir.root.path());
    for (name, value) in task.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let output = limited.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let trace = dir.trace();
    let result = trace.iter().find(|record| record["record"] == "tool_result").unwrap();
    assert_eq!(result["result"]["ok"], true, "{result}");
    let told = result.to_string();
    assert!(told.contains("100000\\n600"), "{told}");
}
