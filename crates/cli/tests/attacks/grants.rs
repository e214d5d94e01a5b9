//! Steps that try to gain more than they have: the user's answers, rules, tools, files of their
//! team, or programs that a later step with more rights would run.

use std::process::Command;

use serde_json::{Value, json};

use crate::dirs::{TestDir, code, sandboxed, text, typed};
use crate::sandbox::guard::layered;

const PLANT: &str = r#"plant() { mkdir -p "$(dirname "$1")"; echo planted > "$1"; }; "#;

/// Returns the results of a run's calls that the model received, as one text.
fn results(dir: &TestDir) -> String {
    let told = dir.trace().into_iter().filter(|record| record["record"] == "tool_result");
    told.map(|record| record["result"].to_string()).collect::<Vec<_>>().join("\n")
}

/// Sets up a model that makes these shell calls in one turn, then is done.
fn at_once(commands: &[&str]) -> TestDir {
    let call = |command: &&str| json!({"name": "shell", "arguments": {"command": command}});
    let calls: Vec<Value> = commands.iter().map(call).collect();
    TestDir::with(&json!([{"calls": calls}, {"text": "Done."}]))
}

/// Runs the commands as an agent's, with these arguments and variables.
fn run(dir: &TestDir, arguments: &[&str], set: impl Fn(&mut Command)) -> String {
    let fixed = ["run", "-m", "script:script.json", "--trace", "trace.jsonl"];
    let mut command = dir.alara(&[&fixed[..], arguments, &["do it"]].concat());
    set(&mut command);
    let output = command.output().unwrap();
    assert!(code(&output) < 2, "{}{}", text(&output.stdout), text(&output.stderr));
    results(dir)
}

/// Lists the files below the folder that contain "planted".
fn planted(dir: &TestDir, folder: &str) -> Vec<String> {
    let (root, mut left, mut found) = (dir.path(folder), vec![dir.path(folder)], Vec::new());
    while let Some(folder) = left.pop() {
        for entry in folder.read_dir().unwrap().map(Result::unwrap) {
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                left.push(path);
            } else if std::fs::read_to_string(&path).is_ok_and(|text| text == "planted\n") {
                found.push(path.strip_prefix(&root).unwrap().display().to_string());
            }
        }
    }
    found.sort();
    found
}

/// Files by which a step would grant itself something, below the user's folders.
const GRANTS: [&str; 4] = [
    "STATE/alara/permissions.json",
    "CONFIG/alara/jinxes/shell.jinx",
    "CONFIG/alara/teams/alara/one.npc",
    "CACHE/alara/prefix/x",
];

/// Returns commands that plant these files, and that move obstacles out of the way.
fn plants(state: &str, config: &str, cache: &str) -> Vec<String> {
    let folders = [("STATE", state), ("CONFIG", config), ("CACHE", cache)];
    let place =
        |file: &str| folders.iter().fold(file.to_owned(), |file, (name, path)| file.replace(name, path));
    let plain = GRANTS.iter().map(|file| format!("{PLANT} plant {}", place(file)));
    let moved = folders.iter().flat_map(|(name, path)| {
        let file = place(GRANTS.iter().find(|file| file.starts_with(name)).unwrap());
        [
            format!("{PLANT} mv {path} {path}.old; plant {file}"),
            format!("{PLANT} mv {path}/alara {path}/old; plant {file}"),
            format!("{PLANT} rm -rf {path}; plant {file}"),
        ]
    });
    plain.chain(moved).collect()
}

#[test]
fn a_step_grants_itself_nothing_in_folders_that_were_not_there() {
    if !sandboxed("a_step_grants_itself_nothing_in_folders_that_were_not_there") {
        return;
    }
    // The user's folders are in the work directory because the user chose that.
    let commands = plants("state", "config", "cache");
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    for yes in [&["--yes"][..], &[]] {
        let dir = at_once(&commands);
        let told = run(&dir, &[&["--workdir", "work"], yes].concat(), |command| {
            command.env("XDG_STATE_HOME", dir.path("work/state"));
            command.env("XDG_CONFIG_HOME", dir.path("work/config"));
            command.env("XDG_CACHE_HOME", dir.path("work/cache"));
        });
        assert_eq!(planted(&dir, "work"), Vec::<String>::new(), "{told}");
        assert!(told.contains("Read-only file system") || told.contains("Device or resource busy"), "{told}");
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &dir.path("work/config/alara").metadata().unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o700);
    }
}

#[test]
fn a_step_grants_itself_nothing_in_a_home_directory() {
    if !layered("a_step_grants_itself_nothing_in_a_home_directory") {
        return;
    }
    let mut commands = plants(".local/state", ".config", ".cache");
    commands.extend(
        [".bashrc", ".zshenv", ".ssh/authorized_keys", ".config/autostart/x.desktop", ".newrc"]
            .map(|file| format!("{PLANT} plant {file}")),
    );
    commands.extend(["cat .bash_history .ssh/id".to_owned(), "rm .config; mkdir .config".to_owned()]);
    commands.push("echo of the user > notes.txt".to_owned());
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let dir = at_once(&commands);
    dir.write("home/.bashrc", "mine\n");
    dir.write("home/.bash_history", "typed before\n");
    dir.write("home/.ssh/id", "private\n");
    // A link may be replaced, wherever it leads.
    dir.write("home/dots/config/git/config", "mine\n");
    std::os::unix::fs::symlink("dots/config", dir.path("home/.config")).unwrap();
    let home = dir.path("home").display().to_string();
    let told = run(&dir, &["--workdir", &home, "--yes"], |command| {
        command.env_remove("XDG_STATE_HOME").env_remove("XDG_CACHE_HOME");
    });
    assert_eq!(planted(&dir, "home"), Vec::<String>::new(), "{told}");
    assert!(!told.contains("typed before") && !told.contains("private"), "{told}");
    assert!(told.contains("no step may write it"), "{told}");
    assert_eq!(std::fs::read_to_string(dir.path("home/.bashrc")).unwrap(), "mine\n");
    assert!(dir.path("home/.config").is_symlink());
    // The rest is what the user confirmed.
    assert_eq!(std::fs::read_to_string(dir.path("home/notes.txt")).unwrap(), "of the user\n");
}

#[test]
fn a_home_directory_is_no_work_directory_without_a_yes() {
    let dir = TestDir::calling(&[]);
    dir.write("own/.config/alara/teams/x/one.npc", "name: one\nprimary_directive: x\n");
    dir.write("own/.ssh/id", "private");
    dir.write("own/.npcsh/npc_team/x", "");
    std::os::unix::fs::symlink("own", dir.path("link")).unwrap();
    let question = "y: this time, a: always, n: no, never: ";
    let alara = |work: &str, more: &[&str]| {
        let fixed = ["run", "-m", "script:script.json", "--workdir", work, "do it"];
        let mut command = dir.alara(&[&fixed[..], more].concat());
        command.env("HOME", dir.path("own"));
        command
    };
    for (work, what) in [
        ("own", "is your home directory"),
        ("link", "is your home directory"),
        (".", "is a folder around your home directory"),
        ("/", "is the root of the file system"),
        ("own/.config/alara/teams/x", "is in a folder of alara's own"),
        ("own/.ssh", "where programs keep what they obey"),
        ("own/.npcsh/npc_team", "where programs keep what they obey"),
    ] {
        let output = alara(work, &[]).output().unwrap();
        let shown = text(&output.stderr);
        assert!(code(&output) == 2 && shown.contains(what) && shown.contains("--workdir DIR"), "{shown}");
        let (code, shown) = typed(alara(work, &[]), &[(question, "n")]);
        assert!(code == 2 && shown.contains(what), "{shown}");
    }
    let (code, shown) = typed(alara("own", &[]), &[(question, "a")]);
    assert!(code == 0 && shown.contains("all but what begins with a dot"), "{shown}");
    assert!(alara("own", &[]).output().unwrap().status.success());
    // A dry run changes nothing.
    assert!(alara(".", &["--dry-run"]).output().unwrap().status.success());
}

#[test]
fn a_team_around_the_work_directory_is_not_written() {
    if !layered("a_team_around_the_work_directory_is_not_written") {
        return;
    }
    let files = [
        "new.npc",
        "permissions.yaml",
        "jinxes/shell.jinx",
        "jinxes/deep/s/SKILL.md",
        "sub/new.npc",
        "sub/deep/x.ctx",
        "agents/x.md",
        "sub/agents.md",
        "one.npc",
        "rules.gate",
        "jinxes/old.jinx",
        "below/two.npc",
        "below/jinxes/x.jinx",
        "server.py",
    ];
    let mut commands: Vec<String> = files.iter().map(|file| format!("{PLANT} plant {file}")).collect();
    commands.extend(
        files.iter().map(|file| format!("{PLANT} plant a/b; mkdir -p $(dirname {file}); mv a/b {file}")),
    );
    commands.push(format!("{PLANT} plant hidden/x.jinx; ln -s hidden jinxs"));
    commands.push("echo of the project > notes.txt".to_owned());
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    for (team, work) in [("work", "work"), ("work", "work/project")] {
        for yes in [&["--yes"][..], &[]] {
            let dir = at_once(&commands);
            let server = "mcp_servers: [{name: s, path: server.py}]";
            dir.write(
                "work/one.npc",
                &format!("name: one\nprimary_directive: Work.\njinxes: [shell]\n{server}\n"),
            );
            dir.write("work/jinxes/old.jinx", "steps: [{engine: bash, code: 'true'}]\n");
            dir.write("work/below/team.ctx", "name: below\nforenpc: two\n");
            dir.write("work/below/two.npc", "name: two\nprimary_directive: Work.\njinxes: []\n");
            dir.write("work/server.py", "# a server\n");
            std::fs::create_dir(dir.path("work/project")).unwrap();
            let told = run(&dir, &[&["-t", team, "--workdir", work], yes].concat(), |_| ());
            let left: Vec<String> = planted(&dir, "work")
                .into_iter()
                .filter(|path| *path != "hidden/x.jinx" && !path.ends_with("a/b"))
                // No team is loaded from this file.
                .filter(|path| path != "project/server.py")
                .collect();
            assert_eq!(left, Vec::<String>::new(), "{told}");
            assert!(told.contains("no step may write it"), "{told}");
            assert!(!dir.path(&format!("{work}/jinxs")).exists());
            let notes = std::fs::read_to_string(dir.path(&format!("{work}/notes.txt"))).unwrap();
            assert_eq!(notes, "of the project\n");
        }
    }
}

/// A team with a tool that has network access, and one that has a key.
fn with_rights(dir: &TestDir, code: &str) {
    for (name, rights) in [("net", "network: true"), ("key", "env: [SECRET_KEY]")] {
        let jinx = json!([{"name": "look", "engine": "python", "code": code}]);
        dir.write(
            &format!("team/jinxes/{name}.jinx"),
            &format!("jinx_name: {name}\ndescription: looks\n{rights}\neffect: read\nsteps: {jinx}\n"),
        );
    }
    dir.write("team/one.npc", "name: one\nprimary_directive: Work.\njinxes: [shell, net, key]\n");
}

#[test]
fn a_tool_with_rights_runs_nothing_that_other_steps_have_written() {
    if !sandboxed("a_tool_with_rights_runs_nothing_that_other_steps_have_written") {
        return;
    }
    let call = |name: &str, arguments: Value| json!({"calls": [{"name": name, "arguments": arguments}]});
    let plant = r#"
        mkdir -p .venv/bin; printf '#!/bin/sh\necho PWNED by PATH\n' > .venv/bin/python3; chmod +x .venv/bin/python3
        cp .venv/bin/python3 .venv/bin/tool
        echo 'print("PWNED by a module")' > evil.py; cp evil.py json.py
        cp evil.py "$HOME/usercustomize.py"; d="$(/usr/bin/env -i HOME="$HOME" $REAL -c 'import site; print(site.getusersitepackages())')"
        mkdir -p "$d"; cp evil.py "$d/usercustomize.py"; echo 'url = "http://127.0.0.1:9"' > "$HOME/.curlrc"; echo done"#;
    let dir = TestDir::with(&json!([
        call("shell", json!({"command": plant})),
        call("net", json!({})),
        call("key", json!({})),
        {"text": "Done."},
    ]));
    let code = "import os, shutil, sys\ntry:\n    import evil\nexcept ModuleNotFoundError:\n    print('no module')\n\
                print(os.listdir(os.environ['HOME']), shutil.which('tool'), sys.executable)\n";
    with_rights(&dir, code);
    // As for users who work in an active Python environment.
    std::fs::create_dir_all(dir.path("work/.venv/bin")).unwrap();
    let python = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    let real = text(&python.stdout).trim().to_owned();
    let told = run(&dir, &["-t", "team", "--workdir", "work", "--yes"], |command| {
        let path = std::env::var_os("PATH").unwrap();
        let path = std::iter::once(dir.path("work/.venv/bin")).chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(path).unwrap());
        let script = std::fs::read_to_string(dir.path("script.json")).unwrap();
        std::fs::write(dir.path("script.json"), script.replace("$REAL", &real)).unwrap();
    });
    assert!(!told.contains("PWNED"), "{told}");
    assert_eq!(told.matches("no module").count(), 2, "{told}");
    assert_eq!(told.matches("[] None").count(), 2, "{told}");
    assert!(dir.path("work/.venv/bin/python3").exists());
}

#[test]
fn programs_on_the_path_are_not_put_into_the_work_directory_unasked() {
    if !layered("programs_on_the_path_are_not_put_into_the_work_directory_unasked") {
        return;
    }
    let dir = TestDir::calling(&["echo x > .venv/bin/ls", "echo x > .venv/other"]);
    dir.write("work/.venv/bin/activate", "x");
    let told = run(&dir, &["--workdir", "work"], |command| {
        let path = std::env::var_os("PATH").unwrap();
        let path = std::iter::once(dir.path("work/.venv/bin")).chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(path).unwrap());
    });
    assert!(told.contains(".venv/bin/ls, which a shell obeys"), "{told}");
    assert!(!dir.path("work/.venv/bin/ls").exists() && dir.path("work/.venv/other").exists());
}

/// Tests a user's answers in a stranger's trace.
#[test]
fn a_strangers_trace_answers_no_question_where_something_runs() {
    if !sandboxed("a_strangers_trace_answers_no_question_where_something_runs") {
        return;
    }
    let dir = TestDir::with(&json!([
        {"calls": [{"name": "key", "arguments": {}}]},
        {"text": "Done."},
    ]));
    with_rights(&dir, "import os\nprint('with', os.environ.get('SECRET_KEY'))\n");
    run(&dir, &["-t", "team", "--workdir", "work", "--yes"], |_| ());
    assert!(results(&dir).contains("with hunter2"));
    let replayed = |file: &str| {
        let arguments = ["trace", "replay", "--run", "-t", "team", "--workdir", "work", file, "--json"];
        let output = dir.alara(&arguments).output().unwrap();
        text(&output.stdout) + &text(&output.stderr)
    };
    let shown = replayed("trace.jsonl");
    assert!(!shown.contains("\"difference\":null"), "{shown}");
    // In one's own trace they count.
    dir.write("state/alara/traces/own.jsonl", &std::fs::read_to_string(dir.path("trace.jsonl")).unwrap());
    let shown = replayed(&dir.path("state/alara/traces/own.jsonl").display().to_string());
    assert!(shown.contains("\"difference\":null"), "{shown}");
}

const NET: &str = "jinx_name: shell\nnetwork: true\nsteps: [{engine: bash, code: 'true'}]\n";

#[test]
fn what_a_team_would_read_if_it_were_there_does_not_come_there() {
    if !layered("what_a_team_would_read_if_it_were_there_does_not_come_there") {
        return;
    }
    let commands = [
        format!("mkdir -p more; printf '%s' '{NET}' > more/shell.jinx"),
        "echo planted > WORKERS.md".to_owned(),
        "echo planted > other.md".to_owned(),
    ];
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let dir = at_once(&commands);
    let ctx = "name: t\nforenpc: one\nSKILLS_DIRECTORY: ../more\nagents: [WORKERS.md]\n";
    dir.write("work/npc_team/team.ctx", ctx);
    dir.write("work/npc_team/one.npc", "name: one\nprimary_directive: Work.\njinxes: [shell]\n");
    let told = run(&dir, &["-t", "work/npc_team", "--workdir", "work", "--yes"], |_| ());
    assert!(!dir.path("work/more").exists() && planted(&dir, "work") == ["other.md"], "{told}");
}

#[test]
fn a_work_directory_in_a_teams_own_folders_is_not_written() {
    if !layered("a_work_directory_in_a_teams_own_folders_is_not_written") {
        return;
    }
    for work in ["team/jinxes/tool", "team/agents", "team/sub/jinxs"] {
        let dir = at_once(&[
            "echo planted > shell.jinx",
            "echo planted > z.md",
            "mkdir s; echo planted > s/SKILL.md",
        ]);
        dir.write("team/one.npc", "name: one\nprimary_directive: Work.\njinxes: [shell]\n");
        dir.write(&format!("{work}/.keep"), "");
        let told = run(&dir, &["-t", "team", "--workdir", work, "--yes"], |_| ());
        assert_eq!(planted(&dir, "team"), Vec::<String>::new(), "{told}");
    }
}

#[test]
fn other_names_of_what_is_kept_are_kept() {
    if !layered("other_names_of_what_is_kept_are_kept") {
        return;
    }
    for yes in [&["--yes"][..], &[]] {
        let dir = at_once(&[
            "echo planted > copy",
            "cat copy >> /dev/null; echo more >> copy",
            "echo '{\"evil\": 1}' >> trace.jsonl; rm -f trace.jsonl; echo planted > trace.jsonl",
        ]);
        let npc = "name: one\nprimary_directive: Work.\njinxes: [shell]\n";
        dir.write("work/npc_team/one.npc", npc);
        std::fs::hard_link(dir.path("work/npc_team/one.npc"), dir.path("work/copy")).unwrap();
        let fixed =
            ["run", "-m", "script:../script.json", "--trace", "trace.jsonl", "-t", "./npc_team", "do it"];
        let output = dir.alara(&[&fixed[..], yes].concat()).current_dir(dir.path("work")).output().unwrap();
        assert!(code(&output) < 2, "{}", text(&output.stderr));
        assert_eq!(std::fs::read_to_string(dir.path("work/npc_team/one.npc")).unwrap(), npc);
        let trace = std::fs::read_to_string(dir.path("work/trace.jsonl")).unwrap();
        let last: Value = serde_json::from_str(trace.lines().last().unwrap()).unwrap();
        assert!(last["record"] == "end" && trace.lines().count() > 6, "{trace}");
    }
}

#[test]
fn what_tools_obey_takes_a_yes_in_an_empty_directory_too() {
    if !layered("what_tools_obey_takes_a_yes_in_an_empty_directory_too") {
        return;
    }
    let dir = at_once(&[
        "mkdir -p .git/hooks; echo planted > .git/hooks/post-checkout",
        "echo planted > .envrc",
        "mkdir -p .venv/bin; echo planted > .venv/bin/ls",
        "mkdir -p rel; echo planted > rel/ls",
        "echo mine > notes.txt; echo other > notes.txt; rm notes.txt; echo planted > kept.txt",
    ]);
    let told = run(&dir, &["--workdir", "work"], |command| {
        let path = std::env::var_os("PATH").unwrap();
        // Neither exists yet.
        let more = [dir.path("work/.venv/bin"), "work/rel".into()];
        command
            .env("PATH", std::env::join_paths(more.into_iter().chain(std::env::split_paths(&path))).unwrap());
    });
    assert_eq!(planted(&dir, "work"), ["kept.txt"], "{told}");
}

#[test]
fn home_is_apart_where_the_temporary_folder_lies_in_the_work_directory() {
    if !sandboxed("home_is_apart_where_the_temporary_folder_lies_in_the_work_directory") {
        return;
    }
    let call = |name: &str, arguments: Value| json!({"calls": [{"name": name, "arguments": arguments}]});
    let plant = "for d in $(find . -name apart); do echo x > $d/.curlrc; mv $d $d.old; mkdir $d; echo x > $d/.curlrc; done; echo x > $HOME/.curlrc; echo done";
    let dir = TestDir::with(&json!([
        call("shell", json!({"command": plant})),
        call("key", json!({})),
        {"text": "Done."},
    ]));
    with_rights(&dir, "import os\nprint('home has', os.listdir(os.environ['HOME']))\n");
    dir.write("work/tmp/x", "");
    let told = run(&dir, &["-t", "team", "--workdir", "work", "--yes"], |command| {
        command.env("TMPDIR", dir.path("work/tmp"));
    });
    assert!(told.contains("home has []"), "{told}");
}

/// A team with a shell and these rules.
fn ruled(dir: &TestDir, rules: &str) {
    dir.write("guarded/team.ctx", &format!("name: guarded\npermissions: {rules}\n"));
    dir.write("guarded/one.npc", "name: one\nprimary_directive: Work.\njinxes: [shell]\n");
}

#[test]
fn a_yes_beforehand_permits_nothing_that_a_rule_may_deny() {
    let commands = [
        "$(printf rm) x",
        "`echo rm` x",
        "bash <<< 'rm x'",
        "printf 'rm x' | bash -s",
        "env -i PATH=$PATH rm x",
        ". /dev/stdin <<< 'rm x'",
        "python3 -c 'import os; os.remove(\"x\")'",
        "perl -e 'unlink \"x\"'",
        "awk 'BEGIN { system(\"rm x\") }'",
        "printf 'all:\\n\\trm x\\n' | make -f -",
        "tar cf a.tar --checkpoint=1 --checkpoint-action=exec='rm x' x",
        "echo 'something else' > y",
    ];
    let dir = at_once(&commands);
    ruled(&dir, "{'shell:rm': deny}");
    dir.write("work/x", "mine\n");
    let told = run(&dir, &["-t", "./guarded", "--workdir", "work", "--yes"], |_| {});
    assert_eq!(std::fs::read_to_string(dir.path("work/x")).unwrap(), "mine\n", "{told}");
    assert_eq!(
        told.matches("a rule may deny this call, so a person must confirm it").count(),
        commands.len() - 1,
        "{told}"
    );
    // Calls that no rule denies are confirmed, even if a rule asks.
    assert!(dir.path("work/y").exists(), "{told}");
    let dir = at_once(&["$(printf rm) x"]);
    ruled(&dir, "{'shell:rm': ask}");
    dir.write("work/x", "mine\n");
    let told = run(&dir, &["-t", "./guarded", "--workdir", "work", "--yes"], |_| {});
    assert!(!dir.path("work/x").exists(), "{told}");
}

#[test]
fn what_a_rule_may_deny_is_asked_at_the_terminal_also_with_a_yes_beforehand() {
    let check = |answer: &str, removed: bool| {
        let dir = at_once(&["echo y > y", "$(printf rm) x"]);
        ruled(&dir, "{shell: ask, 'shell:rm': deny}");
        dir.write("work/x", "mine\n");
        let fixed =
            ["run", "-m", "script:script.json", "-t", "./guarded", "--workdir", "work", "--yes", "do it"];
        let (code, shown) = typed(dir.alara(&fixed), &[("never: ", answer)]);
        assert!(code < 2 && shown.matches("allow? ").count() == 1, "{shown}");
        assert!(shown.contains("$(printf rm) x"), "{shown}");
        assert_eq!((dir.path("work/x").exists(), dir.path("work/y").exists()), (!removed, true), "{shown}");
    };
    check("y", true);
    check("n", false);
}
