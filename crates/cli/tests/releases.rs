//! Consistency of a release: versions, workflows, and the files in packages.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::root;

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the quoted value after `key = ` in a Cargo file.
fn quoted<'a>(manifest: &'a str, key: &str) -> &'a str {
    let line = manifest.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""));
    line.unwrap_or_else(|| panic!("there is no {key}")).trim_end_matches('"')
}

fn output(command: &mut Command) -> String {
    let done = command.current_dir(root()).output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn all_that_is_published_has_one_version() {
    let manifest = read("Cargo.toml");
    let version = quoted(&manifest, "version");
    assert_eq!(output(&mut Command::new("packaging/version")).trim(), version);

    let own: Vec<_> =
        manifest.lines().filter(|line| line.starts_with("alara-") && line.contains("path")).collect();
    assert!(own.len() >= 6, "{own:?}");
    for line in own {
        assert!(line.contains(&format!("version = \"{version}\"")), "{line}");
    }
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let path = entry.unwrap().path().join("Cargo.toml");
        assert!(read(&path).contains("\nversion.workspace = true\n"), "{}", path.display());
    }
    // maturin uses Cargo's value if Python's file marks it as dynamic.
    if root().join("python/pyproject.toml").exists() {
        assert!(read("python/pyproject.toml").contains("dynamic = [\"version\"]"));
        assert!(read("python/Cargo.toml").contains("\nversion.workspace = true\n"));
    }
    let changes = read("CHANGELOG.md");
    let newest = changes.lines().find_map(|line| line.strip_prefix("## ")).unwrap();
    assert_eq!(newest.split(' ').next(), Some(version), "of CHANGELOG.md");

    let work = tempfile::tempdir().unwrap();
    let formula = read("packaging/homebrew/alara.rb.in");
    let targets: Vec<_> =
        formula.split("@SHA256:").skip(1).filter_map(|rest| Some(rest.split_once('@')?.0)).collect();
    assert_eq!(targets.len(), 4);
    let sums =
        targets.iter().enumerate().map(|(at, target)| format!("{at:064}  alara-{version}-{target}.tar.gz\n"));
    let list = work.path().join("SHA256SUMS");
    std::fs::write(&list, sums.collect::<String>()).unwrap();
    let formula = output(Command::new("packaging/homebrew/build").arg(&list));
    assert!(formula.contains(&format!("version \"{version}\"")) && formula.contains(&format!("{:064}", 3)));
    assert!(!formula.contains('@'), "{formula}");
}

#[test]
fn the_npm_package_depends_on_those_of_its_version() {
    if Command::new("node").arg("--version").output().is_err() {
        return crate::absent::skipped("Node.js", "node", "Debian has it as a package, nodejs");
    }
    let manifest = read("Cargo.toml");
    let version = quoted(&manifest, "version");
    let work = tempfile::tempdir().unwrap();
    let binary = work.path().join("alara");
    std::fs::write(&binary, "binary").unwrap();
    let target = format!("x86_64-unknown-linux-musl={}", binary.display());
    let folders = output(Command::new("packaging/npm/build").arg(work.path().join("npm")).arg(target));
    let folders: Vec<_> = folders.lines().collect();
    let [platform, main] = folders[..] else { panic!("{folders:?}") };
    let manifest = |folder: &str| -> Value {
        serde_json::from_str(&read(Path::new(folder).join("package.json"))).unwrap()
    };
    let (platform, main) = (manifest(platform), manifest(main));
    assert_eq!((&platform["version"], &main["version"]), (&version.into(), &version.into()));
    assert_eq!(main["optionalDependencies"][platform["name"].as_str().unwrap()], version);
    assert_eq!(platform["os"][0], "linux");
}

/// Returns the workflows and other YAML files in `.github`, by path.
fn github() -> BTreeMap<PathBuf, Value> {
    let mut found = BTreeMap::new();
    for folder in [".github", ".github/workflows", ".github/ISSUE_TEMPLATE"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "yml") {
                let value = serde_saphyr::from_str(&read(&path));
                found.insert(
                    path.clone(),
                    value.unwrap_or_else(|error| panic!("{}: {error}", path.display())),
                );
            }
        }
    }
    assert!(found.len() >= 6, "{found:?}");
    found
}

fn workflows() -> Vec<(PathBuf, Value)> {
    github().into_iter().filter(|(path, _)| path.parent().unwrap().ends_with("workflows")).collect()
}

#[test]
fn workflows_are_pinned_and_may_little() {
    let mut pinned = BTreeMap::new();
    for (path, workflow) in workflows() {
        let shown = path.display();
        assert_eq!(workflow["permissions"], serde_json::json!({"contents": "read"}), "{shown}");
        let text = read(&path);
        if text.contains("rustup toolchain install") {
            // CI builds with the oldest supported version.
            assert_eq!(workflow["env"]["TOOLCHAIN"], quoted(&read("Cargo.toml"), "rust-version"), "{shown}");
        }
        for (name, job) in workflow["jobs"].as_object().unwrap() {
            assert!(job["timeout-minutes"].is_u64(), "{shown}: {name} has no end");
            for step in job["steps"].as_array().unwrap() {
                let Some(uses) = step["uses"].as_str() else { continue };
                let (action, commit) = uses.split_once('@').unwrap();
                let is_commit = commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit());
                assert!(is_commit, "{shown}: {uses} is not pinned to a commit");
                assert!(text.contains(&format!("{uses} # v")), "{shown}: which version is {uses}?");
                let before = pinned.insert(action.to_owned(), commit.to_owned());
                assert!(before.is_none_or(|before| before == commit), "{shown}: {action} in two versions");
                if action == "actions/checkout" {
                    assert_eq!(step["with"]["persist-credentials"], false, "{shown}: {name}");
                }
            }
        }
    }
    assert!(pinned.len() >= 4, "{pinned:?}");
}

/// Except for the site of the docs.
#[test]
fn only_a_tag_publishes() {
    let tags = serde_json::json!({"push": {"tags": ["v*"]}});
    let site = serde_json::json!({"pages": "write", "id-token": "write"});
    for (path, workflow) in workflows().into_iter().filter(|(_, workflow)| workflow["on"] != tags) {
        for (name, job) in workflow["jobs"].as_object().unwrap() {
            let may = &job["permissions"];
            assert!(may.is_null() || *may == site, "{}: {name} may {may}", path.display());
        }
        assert!(!read(&path).contains("secrets."), "{}", path.display());
    }
}

/// Workflows call scripts by path; otherwise a renamed one would only be noticed on release day.
#[test]
fn what_workflows_call_is_there() {
    let mut called = 0;
    for (path, workflow) in workflows() {
        for (name, job) in workflow["jobs"].as_object().unwrap() {
            for step in job["steps"].as_array().unwrap() {
                let words = step["run"].as_str().unwrap_or_default().split([' ', '\n', '"', '(', ')', '$']);
                let scripts = words.filter(|word| {
                    ["packaging/", ".ci/", "scripts/"].iter().any(|folder| word.starts_with(folder))
                });
                for script in scripts {
                    called += 1;
                    assert!(root().join(script).is_file(), "{}: {name}: {script}", path.display());
                }
            }
        }
    }
    assert!(called >= 10, "only {called}");
}

/// Returns the files listed in `include`, following links to the repository's folders.
#[test]
fn a_crate_has_all_that_it_embeds() {
    let mut literals = 0;
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let manifest = read(folder.join("Cargo.toml"));
        let list = manifest.split_once("include = [").unwrap().1.split_once(']').unwrap().0;
        for path in list.split('"').filter_map(|part| part.strip_prefix('/')) {
            let path = path.replace("LICENSE-*", "LICENSE-MIT");
            assert!(folder.join(&path).exists(), "{}: {path}", folder.display());
        }
        let source = folder.join("src");
        for file in crate::conventions::files(&source, &[".rs"]) {
            let shown = file.strip_prefix(&source).unwrap().display().to_string();
            let text = read(&file);
            // Tests aren't run from a package.
            let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
            let code = code.split("#[cfg(doctest)]\n").next().unwrap();
            if shown.contains("tests") {
                continue;
            }
            let embedded = ["include_str!(\"", "include_bytes!(\""].map(|call| code.split(call).skip(1));
            for path in embedded.into_iter().flatten() {
                let path = path.split('"').next().unwrap();
                let ups = path.matches("../").count();
                literals += 1;
                assert!(
                    ups <= shown.matches('/').count() + 1,
                    "{}: {path} is not in the crate",
                    file.display()
                );
            }
        }
    }
    assert!(literals >= 10, "only {literals}");
}
