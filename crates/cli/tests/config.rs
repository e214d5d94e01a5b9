//! `alara config`: the defaults of options, where they were set, and their precedence.

use serde_json::{Value, json};

use crate::dirs::{TestDir, code, text};

/// Returns a command's exit code, stdout and stderr.
fn show(dir: &TestDir, arguments: &[&str]) -> (i32, String, String) {
    let output = dir.alara(arguments).output().unwrap();
    (code(&output), text(&output.stdout), text(&output.stderr))
}

const RUN: [&str; 4] = ["run", "--workdir", "work", "do it"];

#[test]
fn values_are_set_shown_and_unset() {
    let dir = TestDir::with(&json!([]));
    let file = dir.path("home/.config/alara/config.yaml");
    let (status, _, noted) = show(&dir, &["config", "set", "ctx", "4096"]);
    assert_eq!((status, noted), (0, format!("ctx is 4096 from now on, set in {}\n", file.display())));
    dir.write("home/.config/alara/config.yaml", "# mine\nctx: 2048\nmodel: qwen3-4b\n");
    let (_, shown, _) = show(&dir, &["config", "show", "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["ctx"], json!({"value": "2048", "set_in": file, "default": null}));
    assert_eq!(shown["color"], json!({"value": null, "set_in": null, "default": "auto"}));
    assert_eq!(shown["model"]["default"], "alara-tiny");
    let (_, table, _) = show(&dir, &["config"]);
    assert!(table.contains("qwen3-4b") && table.contains("auto (default) - colours"), "{table}");
    assert!(table.contains("what the model's makers recommend (default) - sampling"), "{table}");
    assert_eq!(show(&dir, &["config", "get", "ctx"]), (0, "2048\n".into(), String::new()));
    assert_eq!(show(&dir, &["config", "unset", "ctx"]).0, 0);
    assert_eq!(show(&dir, &["config", "get", "ctx"]), (1, String::new(), "ctx is not set\n".into()));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "# mine\nmodel: qwen3-4b\n");
    // It is the option's default in every command that has it.
    show(&dir, &["config", "set", "ctx", "2048"]);
    for command in ["run", "chat", "serve", "warm"] {
        let (_, help, _) = show(&dir, &[command, "--help"]);
        assert!(help.contains("[default: 2048]"), "{command}: {help}");
    }
}

#[test]
fn wrong_settings_are_errors() {
    let dir = TestDir::with(&json!([]));
    let check = |arguments: &[&str], expected: &str| {
        let (status, _, noted) = show(&dir, arguments);
        assert!(status == 2 && noted.contains(expected), "{arguments:?}: {noted}");
    };
    check(&["config", "set", "modle", "x"], "there is no setting modle, did you mean model?");
    check(&["config", "get", "modle"], "there is no setting modle, did you mean model?");
    check(&["config", "set", "ctx", "-1"], "`-1` is no value for ctx: it is a whole number from 1 up");
    check(
        &["config", "set", "model", "nosuch"],
        "there is no model file nosuch\nhint: `alara models list` tells the names that are known\n",
    );
    check(&["config", "set", "model", "http://"], "is no address of an endpoint");
    check(&["config", "set", "team", "alar"], "there is no team `alar`, did you mean `alara`?");
    check(&["config", "set", "team", "./nowhere"], "there is no team in ./nowhere");
    check(&["config", "set", "team", "nosuch"], "\nhint: name a team, or the path of its directory\n");
    assert!(!dir.path("home/.config").exists());
    dir.write("home/.config/alara/config.yaml", "model: x\npermissions: {shell: allow}\n");
    check(&RUN, "config.yaml is not usable: there is no setting permissions");
    check(&["config", "set", "ctx", "64"], "would not be usable; nothing was changed");
    assert_eq!(show(&dir, &["--version"]).0, 0);
    let mut edit = dir.alara(&["config", "edit"]);
    let output = edit.env_remove("VISUAL").env("EDITOR", "true").output().unwrap();
    assert!(text(&output.stderr).contains("there is no setting permissions"), "{output:?}");
    std::fs::remove_file(dir.path("home/.config/alara/config.yaml")).unwrap();
    let output = dir.alara(&["config", "edit"]).env("VISUAL", "true").output().unwrap();
    assert_eq!(code(&output), 0);
    let created = std::fs::read_to_string(dir.path("home/.config/alara/config.yaml")).unwrap();
    assert!(created.contains("# temperature: "), "{created}");
}

#[test]
fn models_and_teams_are_set_if_they_are_known() {
    let dir = TestDir::with(&json!([]));
    dir.write("teams/crew/a.npc", "name: a\nprimary_directive: x\n");
    let set = |key: &str, value: &str| {
        let (status, _, noted) = show(&dir, &["config", "set", key, value]);
        assert_eq!(status, 0, "{noted}");
        (show(&dir, &["config", "get", key]).1.trim_end().to_owned(), noted)
    };
    for model in ["alara-tiny", "script:later.json", "http://127.0.0.1:1/v1#m"] {
        assert_eq!(set("model", model).0, model);
    }
    // It may be downloaded later.
    let (value, noted) = set("model", "qwen3-4b");
    assert_eq!(value, "qwen3-4b");
    assert!(noted.starts_with("Qwen3 4B is not on this machine yet\nhint: alara models pull qwen3-4b\n"));
    assert_eq!(set("team", "review").0, "review");
    // A team here is found from every directory.
    let crew = dir.path("teams/crew").canonicalize().unwrap();
    for name in ["crew", "teams/crew/"] {
        assert_eq!(set("team", name).0, crew.to_str().unwrap());
    }
}

#[test]
fn an_error_names_the_setting_that_causes_it() {
    let dir = TestDir::with(&json!([]));
    let file = dir.path("home/.config/alara/config.yaml");
    let check = |settings: &str, arguments: &[&str], expected: &str| {
        dir.write("home/.config/alara/config.yaml", settings);
        let (status, _, noted) = show(&dir, arguments);
        assert!(status == 2 && noted.contains(expected), "{arguments:?}: {noted}");
        noted
    };
    let at = file.display();
    let missing = format!("error: the default model, set in {at}: there is no model file nosuch\n");
    let noted = check("model: nosuch\n", &RUN, &missing);
    let remedy = "`alara config set model NAME` names another, `alara config unset model` none";
    assert!(noted.contains(&format!("hint: {remedy}\n")) && !noted.contains("without -m"), "{noted}");
    check(
        "model: qwen3-4b\n",
        &RUN,
        &format!("error: the default model, set in {at}: Qwen3 4B (2.3 GiB) is not on this machine\n"),
    );
    let other = "without -m alara-tiny is used, set in ";
    check("model: alara-tiny\n", &[&RUN[..], &["-m", "nosuch"]].concat(), other);
    let missing = format!("error: the default team, set in {at}: there is no team `nosuch` (known: ");
    check("team: nosuch\n", &[&RUN[..], &["-m", "script:script.json"]].concat(), &missing);
    dir.write("home/.config/alara/config.yaml", "");
    let output = dir.alara(&RUN).env("ALARA_MODEL", "nosuch").output().unwrap();
    let missing = "error: the default model, set in ALARA_MODEL: there is no model file nosuch\n";
    assert!(text(&output.stderr).contains(missing), "{output:?}");
    dir.write("alara.yaml", "team: nosuch\n");
    let noted = show(&dir, &[&RUN[..], &["-m", "script:script.json"]].concat()).2;
    assert!(noted.contains("alara.yaml: there is no team in ") && noted.contains("hint: -t TEAM"), "{noted}");
}

#[test]
fn the_default_model_is_used_where_no_other_is_named() {
    let dir = TestDir::with(&json!([{"text": "from the settings"}]));
    dir.write("other.json", &json!([{"text": "from the line"}]).to_string());
    dir.write("third.json", &json!([{"text": "from the environment"}]).to_string());
    dir.write("npc.json", &json!([{"text": "from the team"}]).to_string());
    dir.write("team/a.npc", "name: a\nprimary_directive: x\nmodel: script:npc.json\n");
    show(&dir, &["config", "set", "model", "script:script.json"]);
    let (status, answer, noted) = show(&dir, &RUN);
    assert_eq!((status, answer.as_str()), (0, "from the settings\n"), "{noted}");
    let line = format!(
        "model script:script.json, set in {}\n",
        dir.path("home/.config/alara/config.yaml").display()
    );
    assert_eq!(noted.matches(&line).count(), 1, "{noted}");
    let named = [&RUN[..], &["-m", "script:other.json"]].concat();
    let (_, answer, noted) = show(&dir, &named);
    assert_eq!(answer, "from the line\n");
    assert!(!noted.contains("set in"), "{noted}");
    let output = dir.alara(&RUN).env("ALARA_MODEL", "script:third.json").output().unwrap();
    assert_eq!(text(&output.stdout), "from the environment\n");
    assert!(text(&output.stderr).contains("model script:third.json, set in ALARA_MODEL"));
    let (_, answer, _) = show(&dir, &[&RUN[..], &["-t", "team"]].concat());
    assert_eq!(answer, "from the team\n");
    // A file is found from every directory.
    show(&dir, &["config", "set", "model", "other.json"]);
    let path = std::path::absolute(dir.path("other.json")).unwrap();
    assert!(show(&dir, &["config"]).1.contains(path.to_str().unwrap()));
    // The model that ships can still be named.
    let (status, _, noted) = show(&dir, &["models", "show", "alara-tiny"]);
    assert!(status == 0 && !noted.contains("set in"), "{noted}");
}

#[test]
fn commands_of_all_kinds_use_the_default_model() {
    let dir = TestDir::with(&json!([]));
    let tiny = format!("{}/tests/fixtures/arch/qwen3-exact/model.gguf", crate::root().display());
    show(&dir, &["config", "set", "model", &tiny]);
    let line = format!("model {tiny}, set in ");
    let (_, shown, noted) = show(&dir, &["models", "show", "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert!(shown["architecture"] == "qwen3" && noted.contains(&line), "{shown}{noted}");
    let arguments = ["warm", "--tool-format", "generic", "--cache", "cache", "--json"];
    let (status, shown, noted) = show(&dir, &arguments);
    assert!(status == 0 && !shown.contains("alara-tiny") && noted.contains(&line), "{shown}{noted}");
}

#[test]
fn a_project_may_choose_a_model_and_a_team_if_the_user_agrees() {
    let dir = TestDir::with(&json!([{"text": "chosen"}]));
    dir.write("alara.yaml", "model: script:script.json\n");
    let (_, _, noted) = show(&dir, &RUN);
    let expected = "alara.yaml wants the model script:script.json; it is not used without your consent";
    assert!(noted.contains(expected), "{noted}");
    for (settings, key) in [("ctx: 64\n", "ctx"), ("color: never\n", "color")] {
        dir.write("alara.yaml", settings);
        let (status, _, noted) = show(&dir, &RUN);
        let refused = noted.contains(&format!("a project can't set {key}, only model and team\n"));
        let hint = format!("hint: `alara config set {key} VALUE` sets it in your own settings");
        assert!(status == 2 && refused && noted.contains(&hint), "{noted}");
    }
    dir.write("alara.yaml", "taem: crew\n");
    let (_, _, noted) = show(&dir, &RUN);
    let expected = "there is no setting taem, did you mean team? (a project's settings: model and team)";
    assert!(noted.contains(expected) && !noted.contains("ctx"), "{noted}");
    // Its paths are relative to the file.
    dir.write("models/m.gguf", "GGUF");
    dir.write("alara.yaml", "model: models/m.gguf\n");
    let output = dir.alara(&["config", "show"]).output().unwrap();
    let path = std::path::absolute(dir.path("models/m.gguf")).unwrap();
    assert!(text(&output.stdout).contains(path.to_str().unwrap()), "{output:?}");
    dir.write("crew/a.npc", "name: a\nprimary_directive: x\n");
    dir.write("alara.yaml", "team: crew\n");
    let script = [&RUN[..], &["-m", "script:script.json"]].concat();
    let (status, _, noted) = show(&dir, &script);
    assert!(status == 2 && noted.contains("was found here, not named"), "{noted}");
    let (status, answer, noted) = show(&dir, &[&script[..], &["--yes"]].concat());
    assert_eq!((status, answer.as_str()), (0, "chosen\n"), "{noted}");
    // It applies in every folder of the repository.
    std::fs::create_dir_all(dir.path(".git")).unwrap();
    std::fs::create_dir_all(dir.path("src/deep")).unwrap();
    let output = dir.alara(&["config", "show"]).current_dir(dir.path("src/deep")).output().unwrap();
    assert!(text(&output.stdout).contains("crew"), "{output:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn colours_can_be_switched_off() {
    use crate::dirs::at_a_terminal;
    let dir = TestDir::with(&json!([{"text": "x"}]));
    dir.write("home/.config/alara/config.yaml", "color: never\n");
    let (_, shown) = at_a_terminal(&dir, &["models", "list"], &[]);
    assert!(!shown.contains("\u{1b}["), "{shown}");
}
