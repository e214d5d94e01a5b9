//! Tests rules against calls: commands, paths, and answers.

use super::*;
use alara_team::jinx::{Choices, Input, Kind};
use serde_json::json;
use std::fs;

fn shell() -> Jinx {
    let input = Input {
        name: "command".into(),
        kind: Kind::String,
        description: String::new(),
        default: None,
        choices: Choices::Any,
    };
    Jinx { name: "shell".into(), inputs: vec![input], ..Jinx::default() }
}

/// An empty path, for calls without files.
fn nowhere() -> &'static Path {
    Path::new("/nothing/here")
}

fn arguments(command: &str) -> Map<String, Value> {
    json!({"command": command}).as_object().cloned().unwrap()
}

fn rule(pattern: &str, verdict: Verdict) -> Rule {
    Rule { pattern: pattern.into(), verdict, by: pattern.into(), inherited: false }
}

#[test]
fn the_longest_rule_that_fits_counts() {
    let team = Team {
        rules: vec![
            rule("shell", Verdict::Ask),
            rule("shell:git", Verdict::Allow),
            rule("shell:git push", Verdict::Deny),
            rule("shell:ls", Verdict::Allow),
            rule("shell:rm", Verdict::Deny),
        ],
        ..Team::default()
    };
    let check = |command: &str, expected: &str| {
        let found = Permissions::default().verdict(&team, &shell(), &arguments(command), nowhere());
        assert_eq!(found.unwrap().by, expected, "{command}");
    };
    check("git status", "shell:git");
    check("git  push origin", "shell:git push");
    check("git pushx", "shell:git");
    check("gitk", "shell");
    check("make", "shell");
    check("ls -l", "shell:ls");
    // Several commands are not covered by an answer about one of them.
    check("ls; make", "shell");
    check("ls $(make)", "shell");
    check("ls\nmake", "shell");
    check("ls; rm -rf /", "shell:rm");
    check("git status && git push", "shell:git push");
    check("echo `rm x`", "shell:rm");
    for dressed in
        ["if true; then rm x; fi", "! rm x", "FOO=1 rm x", "\\rm x", "'rm' x", "/bin/rm x", "ls | xargs rm"]
    {
        check(dressed, "shell:rm");
    }
    check("X=y git -C . push", "shell:git push");
    let other = Jinx { name: "py".into(), ..shell() };
    assert_eq!(Permissions::default().verdict(&team, &other, &arguments("git"), nowhere()), None);
}

#[test]
fn a_team_permits_no_more_than_those_above() {
    let above = [
        rule("shell:git push", Verdict::Deny),
        rule("shell:rm", Verdict::Deny),
        rule("shell:rm -i", Verdict::Ask),
    ];
    let above = above.map(|rule| Rule { inherited: true, ..rule });
    let check = |own: (&str, Verdict), command: &str, expected: Verdict| {
        let team = Team { rules: [above.to_vec(), vec![rule(own.0, own.1)]].concat(), ..Team::default() };
        let found = Permissions::default().verdict(&team, &shell(), &arguments(command), nowhere()).unwrap();
        assert_eq!(found.verdict, expected, "{own:?} {command}");
    };
    use Verdict::{Allow, Ask, Deny};
    for dressed in ["'git' push", "sudo git push", "/usr/bin/git push", "X=1 git push", "git -C . push"] {
        check((&format!("shell:{dressed}"), Allow), dressed, Deny);
    }
    check(("shell:ls; git push", Ask), "ls; git push", Deny);
    check(("shell:ls; git push", Allow), "ls; git push", Deny);
    check(("shell:git push origin", Ask), "git push origin", Deny);
    check(("shell:rm -i x", Allow), "rm -i x", Ask);
    check(("shell:rm -i x", Deny), "rm -i x", Deny);
    check(("shell:git", Allow), "git status", Allow);
    check(("shell", Deny), "git status", Deny);
}

#[test]
fn a_rule_for_several_commands_holds_for_them_together() {
    let team = Team {
        rules: vec![rule("shell", Verdict::Allow), rule("shell:curl x | sh", Verdict::Deny)],
        ..Team::default()
    };
    let check = |command: &str, expected| {
        let found =
            Permissions::default().verdict(&team, &shell(), &arguments(command), nowhere()).unwrap().verdict;
        assert_eq!(found, expected, "{command}");
    };
    check("curl x  |  sh", Verdict::Deny);
    check("curl x", Verdict::Allow);
}

#[test]
fn a_folder_is_not_left_by_dots() {
    let team = Team {
        rules: vec![rule("shell", Verdict::Ask), rule("shell:out/", Verdict::Allow)],
        ..Team::default()
    };
    let check = |path: &str, expected| {
        let found =
            Permissions::default().verdict(&team, &shell(), &arguments(path), nowhere()).unwrap().verdict;
        assert_eq!(found, expected, "{path}");
    };
    check("out/a", Verdict::Allow);
    check("./out//a", Verdict::Allow);
    check("out/../src", Verdict::Ask);
    check("outer", Verdict::Ask);
}

#[test]
fn answers_hold_as_long_as_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("deep/permissions.json");
    let jinx = Jinx { permission: Some(Verdict::Ask), ..shell() };
    let (here, there) = (Team { name: "a".into(), ..Team::default() }, Team::default());
    let verdict = |permissions: &Permissions, team: &Team, command: &str| {
        permissions.verdict(team, &jinx, &arguments(command), nowhere()).unwrap().verdict
    };
    let first = Permissions::open(&file).unwrap();
    assert_eq!(verdict(&first, &here, "make all"), Verdict::Ask);
    for answer in [Answer::Yes, Answer::No] {
        first.remember(&holder(&here), "shell:make all", answer).unwrap();
        assert_eq!(verdict(&first, &here, "make all"), Verdict::Ask);
    }
    first.remember(&holder(&here), "shell:make all", Answer::Session).unwrap();
    assert_eq!(verdict(&first, &here, "make all"), Verdict::Allow);
    assert!(!file.exists());
    let pattern = pattern(&jinx, &arguments("make\n  test; ls"));
    assert_eq!(pattern, "shell:make\n  test; ls");
    first.remember(&holder(&here), &pattern, Answer::Always).unwrap();
    first.remember(&holder(&here), "shell:rm x", Answer::Never).unwrap();

    let second = Permissions::open(&file).unwrap();
    assert_eq!(verdict(&second, &here, "make all"), Verdict::Ask);
    assert_eq!(verdict(&second, &here, "make\n  test; ls"), Verdict::Allow);
    // An answer covers exactly the text that was asked about.
    assert_eq!(verdict(&second, &here, "make test; ls"), Verdict::Ask);
    assert_eq!(verdict(&second, &here, "make\n  test; ls; make"), Verdict::Ask);
    assert_eq!(verdict(&second, &here, "rm x"), Verdict::Deny);
    assert_eq!(verdict(&second, &there, "rm x"), Verdict::Ask);

    std::fs::write(&file, "{").unwrap();
    let error = Permissions::open(&file).unwrap_err().to_string();
    assert!(error.starts_with("the file of answers "), "{error}");
    // Where no file can exist, as below /dev/null, there are no answers.
    assert!(Permissions::open(&file.join("permissions.json")).is_ok());
}

#[test]
fn no_answer_permits_what_a_rule_denies() {
    let rules = vec![rule("shell", Verdict::Ask), rule("shell:secrets/", Verdict::Deny)];
    let team = Team { rules, ..Team::default() };
    let reads = Jinx { effect: Effect::Read, ..shell() };
    let permissions = Permissions::default();
    // An answer about a jinx that only reads covers all of its calls.
    assert_eq!(pattern(&reads, &arguments("a")), "shell");
    permissions.remember(&holder(&team), "shell", Answer::Session).unwrap();
    let verdict =
        |path: &str| permissions.verdict(&team, &reads, &arguments(path), nowhere()).unwrap().verdict;
    assert_eq!((verdict("a"), verdict("secrets/a")), (Verdict::Allow, Verdict::Deny));
}

/// Some rules, and verdicts with commands.
#[derive(serde::Deserialize)]
struct Group {
    rules: BTreeMap<String, Verdict>,
    commands: Vec<(Verdict, String)>,
}

fn shell_rules(rules: &BTreeMap<String, Verdict>) -> Team {
    let pattern = |prefix: &str| if prefix.is_empty() { "shell".into() } else { format!("shell:{prefix}") };
    let rules = rules.iter().map(|(prefix, verdict)| rule(&pattern(prefix), *verdict)).collect();
    Team { rules, ..Team::default() }
}

/// The verdict on a command, if no rule permits.
fn held(team: &Team, command: &str) -> Verdict {
    let found = Permissions::default().verdict(team, &shell(), &arguments(command), nowhere());
    found.map_or(Verdict::Allow, |ruling| ruling.verdict)
}

#[test]
fn the_table_of_commands_has_no_wrong_cell() {
    let table =
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/permissions/commands.yaml"));
    let groups: Vec<Group> = serde_saphyr::from_str(table).unwrap();
    let mut wrong = Vec::new();
    let mut rows = 0;
    for group in groups {
        let team = shell_rules(&group.rules);
        for (expected, command) in group.commands {
            rows += 1;
            let found = held(&team, &command);
            if found != expected {
                wrong.push(format!("{command:?}: {found:?}, not {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(rows >= 120, "{rows}");
}

/// Pseudorandom numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % count as u64) as usize
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

/// Quotes a text for a shell with single quotes.
fn single(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// `rm` in one of many spellings.
fn dressed(dice: &mut Dice) -> String {
    let folder = dice.of(&["", "", "/bin/", "../../bin/", "./"]);
    let name = match dice.below(9) {
        0 => "'rm'".to_owned(),
        1 => "\"rm\"".to_owned(),
        2 => "r\\m".to_owned(),
        3 => "r\\\nm".to_owned(),
        4 => "$'r\\x6d'".to_owned(),
        5 => "r''m".to_owned(),
        6 => "$'\\162'\"m\"".to_owned(),
        _ => "rm".to_owned(),
    };
    format!("{folder}{name}")
}

/// A script that runs `rm`, in random wrappers, quotes and redirections.
fn wrapped(dice: &mut Dice) -> String {
    let before = dice.of(&["", "", "", "A=b ", ">out ", "2>&1 ", "A='b c' <in "]);
    let after = dice.of(&[" x", " -rf x", " -- x", " x >out 2>&1", " \"$x\"", ""]);
    let mut script = format!("{before}{}{after}", dressed(dice));
    for _ in 0..dice.below(5) {
        script = match dice.below(4) {
            0 | 1 => format!("{} {script}", dice.of(&PREFIXES)),
            2 => dice.of(&AROUND).replace('@', &script),
            _ => dice.of(&QUOTING).replace('@', &single(&script)),
        };
    }
    script
}

/// Prefixes of a command.
const PREFIXES: [&str; 34] = [
    "timeout 5",
    "timeout -k 1 -s KILL 5",
    "nice -n 5",
    "nice --adjustment=5",
    "ionice -c2",
    "nohup",
    "setsid -w",
    "stdbuf -oL -e 0",
    "flock -n lock",
    "env",
    "env -i -u A B=c",
    "sudo -E",
    "sudo -u root -g root",
    "doas -u root",
    "command",
    "command -p",
    "builtin command",
    "exec",
    "exec -a name",
    "time -p",
    "!",
    "coproc",
    "chroot /",
    "unshare -r --fork",
    "taskset 1",
    "strace -e trace=file",
    "busybox",
    "xargs",
    "xargs -0 -n 1 -P 4",
    "xargs -I{}",
    "true;",
    "ls | ",
    "ls && ",
    "cd sub\n",
];

/// Text around a command.
const AROUND: [&str; 24] = [
    "(@)",
    "{ @; }",
    "if true; then @; fi",
    "while true; do @; break; done",
    "for i in a b; do @; done",
    "case a in a) @;; esac",
    "f() { @; }; f",
    "echo $( @ )",
    "echo \"a $( @ ) b\"",
    "y=$( @ )",
    "cat <(@)",
    "cat < <(@) > out",
    "@ | cat",
    "@ & wait",
    "@ || true",
    "echo ${y:-$( @ )}",
    "[[ -n $( @ ) ]]",
    "cat <<'END'\nrm\nEND\n@",
    "cat <<END\n$( @ )\nEND",
    "find . -exec @ \\;",
    "# comment\n@",
    "echo 'a; b' && @",
    "a[$( @ )]=1",
    "echo $((1 + $( @ )))",
];

/// Commands that take a script in quotes.
const QUOTING: [&str; 14] = [
    "bash -c @",
    "sh -ec @",
    "dash -c @ _ x",
    "bash -euo pipefail -c @",
    "eval @",
    "trap @ EXIT",
    "su -c @",
    "flock lock -c @",
    "watch @",
    "alias z=@",
    "script -qc @ out",
    "echo @ | sh",
    "bash <<< @",
    "x=@; $x",
];

#[test]
fn nothing_denied_gets_through_in_ten_thousand_wrappings() {
    let team = shell_rules(&BTreeMap::from([("rm".to_owned(), Verdict::Deny)]));
    let mut dice = Dice(49);
    let mut denied = 0;
    for _ in 0..10_000 {
        let script = wrapped(&mut dice);
        match held(&team, &script) {
            Verdict::Allow => panic!("allowed: {script}"),
            Verdict::Deny => denied += 1,
            Verdict::Ask => {}
        }
    }
    // Most are understood, and not merely refused as unknown.
    assert!(denied > 3_000, "{denied}");
}

#[test]
fn a_script_that_is_deep_or_long_is_asked_about() {
    let team = shell_rules(&BTreeMap::from([("rm".to_owned(), Verdict::Deny)]));
    for (open, close) in
        [("(", ")"), ("$(", ")"), ("{ ", "; }"), ("${x:-", "}"), ("$((", "))"), ("\"$(echo ", ")\"")]
    {
        let script = format!("echo {}x{}", open.repeat(3000), close.repeat(3000));
        assert_eq!(held(&team, &script), Verdict::Ask, "{open}");
    }
    assert_eq!(held(&team, &"if ".repeat(5000)), Verdict::Ask);
    assert_eq!(held(&team, &"perf ".repeat(2000)), Verdict::Ask);
    assert_eq!(held(&team, &"nohup ".repeat(5000)), Verdict::Ask);
    assert_eq!(held(&team, &format!("ls {}", "x".repeat(70_000))), Verdict::Ask);
}

#[test]
fn a_question_about_what_is_not_told_says_so() {
    let team = shell_rules(&BTreeMap::from([("rm".to_owned(), Verdict::Deny)]));
    let found = Permissions::default().verdict(&team, &shell(), &arguments("$x y"), nowhere()).unwrap();
    let by = "shell:rm, because the command can't be determined from the text".to_owned();
    assert_eq!(found, Ruling { verdict: Verdict::Ask, doubtful: true, by });
}

#[test]
fn only_what_a_rule_may_deny_is_in_doubt() {
    let rules = |rules: &[(&str, Verdict)]| {
        shell_rules(&rules.iter().map(|(prefix, verdict)| ((*prefix).to_owned(), *verdict)).collect())
    };
    let check = |team: &Team, command: &str, expected: (Verdict, bool)| {
        let found = Permissions::default().verdict(team, &shell(), &arguments(command), nowhere()).unwrap();
        assert_eq!((found.verdict, found.doubtful), expected, "{command}");
    };
    use Verdict::{Allow, Ask, Deny};
    let team = rules(&[("rm", Deny), ("curl", Ask), ("", Allow)]);
    for doubtful in [
        "$(printf rm) x",
        "`echo rm` x",
        "bash <<< 'rm x'",
        "printf 'rm x' | bash -s",
        "env -i PATH=$PATH rm x",
        ". /dev/stdin <<< 'rm x'",
        "python3 -c 'x'",
        "curl x; $y",
    ] {
        check(&team, doubtful, (Ask, true));
    }
    check(&team, "rm x; $y", (Deny, false));
    check(&team, "curl x", (Ask, false));
    check(&team, "ls", (Allow, false));
    // However long another rule is that may match too.
    check(&rules(&[("rm", Deny), ("git push --force", Ask)]), "$x y", (Ask, true));
    check(&rules(&[("rm", Ask)]), "$x y", (Ask, false));
}

#[test]
fn another_programs_tool_is_held_by_all_arguments_where_the_first_input_is_missing() {
    let parameters = json!({"properties": {"path": {}, "url": {}}});
    let remote = alara_team::jinx::Remote { server: "s".into(), tool: "get".into(), parameters };
    let input = |name: &str| Input { name: name.into(), ..shell().inputs.remove(0) };
    let jinx = Jinx {
        name: "get".into(),
        inputs: vec![input("path"), input("url")],
        remote: Some(remote),
        ..Jinx::default()
    };
    let given = |arguments: Value| arguments.as_object().cloned().unwrap();
    let team = Team {
        rules: vec![
            rule("get:secrets/", Verdict::Deny),
            rule("get:http://a", Verdict::Deny),
            rule("get:a", Verdict::Allow),
        ],
        ..Team::default()
    };
    let check = |arguments: Value, about: &str, expected: Option<Verdict>| {
        let arguments = given(arguments);
        assert_eq!(pattern(&jinx, &arguments), about);
        let found = Permissions::default().verdict(&team, &jinx, &arguments, nowhere());
        assert_eq!(found.map(|ruling| ruling.verdict), expected, "{about}");
    };
    check(json!({"path": "a"}), "get:a", Some(Verdict::Allow));
    check(json!({"url": "b", "path": "secrets/a"}), "get:secrets/a", Some(Verdict::Deny));
    // An answer about one doesn't cover the other.
    check(json!({"url": "a"}), r#"get:{"url":"a"}"#, None);
    check(json!({"url": "http://a"}), r#"get:{"url":"http://a"}"#, Some(Verdict::Deny));
    check(json!({"other": "secrets/a"}), r#"get:{"other":"secrets/a"}"#, Some(Verdict::Deny));
    // Callers can't choose which argument is judged, nor get one allowed in place of another.
    let chosen = json!({"url": "a", "other": "secrets/a"});
    check(chosen, r#"get:{"url":"a","other":"secrets/a"}"#, Some(Verdict::Deny));
    let chosen = json!({"a": "a", "url": "http://a"});
    check(chosen, r#"get:{"a":"a","url":"http://a"}"#, Some(Verdict::Deny));
    check(json!({}), "get", None);
}

fn writer(input: &str) -> Jinx {
    let input = Input { name: input.into(), ..shell().inputs.remove(0) };
    Jinx { name: "write_file".into(), inputs: vec![input], ..Jinx::default() }
}

/// The verdict of `rules` on a path.
fn of_path(work: &Path, rules: &[(&str, Verdict)], path: &str) -> Option<Verdict> {
    let rules =
        rules.iter().map(|(prefix, verdict)| rule(&format!("write_file:{prefix}"), *verdict)).collect();
    let team = Team { rules, ..Team::default() };
    let arguments = json!({"path": path}).as_object().cloned().unwrap();
    Permissions::default().verdict(&team, &writer("path"), &arguments, work).map(|ruling| ruling.verdict)
}

#[test]
fn a_rule_about_a_folder_is_not_evaded_by_its_path() {
    let root = tempfile::tempdir().unwrap();
    let work = root.path();
    fs::create_dir(work.join("secrets")).unwrap();
    let rules = [("secrets/", Verdict::Deny), ("secrets/public/", Verdict::Allow)];
    let check = |path: &str, expected| assert_eq!(of_path(work, &rules, path), expected, "{path}");
    let absolute = work.join("secrets/a").display().to_string();
    for path in
        ["secrets/a", "secrets/../secrets/a", "x/../secrets/a", "./secrets/a", "secrets//a", &absolute]
    {
        check(path, Some(Verdict::Deny));
    }
    check("secrets/public/a", Some(Verdict::Allow));
    check("secrets/public/../a", Some(Verdict::Deny));
    check("other/a", None);
}

#[test]
fn a_rule_about_a_file_is_about_that_path_alone() {
    let rules = [("keep.txt", Verdict::Deny)];
    let check = |path: &str, expected| assert_eq!(of_path(nowhere(), &rules, path), expected, "{path}");
    check("keep.txt", Some(Verdict::Deny));
    check("./sub/../keep.txt", Some(Verdict::Deny));
    check("sub/keep.txt", None);
    check("keep.txt.bak", None);
}

#[test]
fn every_path_of_several_counts() {
    let team = Team {
        rules: vec![rule("write_file:out/", Verdict::Allow), rule("write_file:secrets/", Verdict::Deny)],
        ..Team::default()
    };
    let jinx = writer("paths");
    let check = |paths: &[&str], expected| {
        let arguments = json!({"paths": paths}).as_object().cloned().unwrap();
        let found = Permissions::default().verdict(&team, &jinx, &arguments, nowhere());
        assert_eq!(found.map(|ruling| ruling.verdict), expected, "{paths:?}");
    };
    check(&["out/a", "out/b"], Some(Verdict::Allow));
    check(&["out/a", "x/../secrets/b"], Some(Verdict::Deny));
}

/// Not every program's use of its arguments is known.
#[test]
fn a_denied_program_that_a_text_mentions_may_run() {
    let team = Team {
        rules: vec![rule("shell", Verdict::Allow), rule("shell:frob", Verdict::Deny)],
        ..Team::default()
    };
    let doubtful = |command: &str| {
        let ruling = Permissions::default().verdict(&team, &shell(), &arguments(command), nowhere()).unwrap();
        ruling.verdict == Verdict::Deny || ruling.doubtful
    };
    for command in [
        "git clone -u 'frob x;:' . z",
        "git clone -c core.sshCommand='frob x;:' x:y z",
        "git fetch --upl='frob x;:' .",
        "git archive --remote=. --exec 'frob x' HEAD",
        "git merge-index frob -a",
        "a=(-exec frob x \\;); find . \"${a[@]}\"",
        "set -- -exec frob x \\;; find . \"$@\"",
        "find $(echo . -exec fr''ob x ';')",
        "git \"$(echo -c)\" \"$(echo 'alias.x=!frob')\" x f",
        "git {-c,alias.x=!frob} x f",
        "printf -- '-exec\\nfrob\\nx\\n;' | xargs find .",
        "history -s 'frob x'; fc -s",
        "compgen -W '$(frob x)'",
        "y='a[$(frob x)0]'; b[y]=1",
        "TAR_OPTIONS=\"--checkpoint-action=exec='frob x'\" tar cf /dev/null f",
        "strace -o '|frob x' true",
        "run-parts --regex '^frob$' /usr/bin --arg=x",
        "echo '-wrapper frob,x' > l; gcc @l",
        "troff -U <<< '.sy frob x'",
        "pip --python /usr/bin/frob list",
        "ln -s /usr/bin/frob foo; ./foo x",
    ] {
        assert!(doubtful(command), "{command}");
    }
    for command in [
        "echo frob > notes.txt",
        "grep -rn frob src | head",
        "ls frob && cat frob/a",
        "git commit -qm 'Let frob be'",
        "git status && git diff frob.txt",
        "make frobnicate",
        "python3 frob/tool.py",
        "cargo build",
        "find . -name frob | xargs grep -l frob",
        "bash -c 'echo frob'",
        "sort frob | head",
    ] {
        assert!(!doubtful(command), "{command}");
    }
}
