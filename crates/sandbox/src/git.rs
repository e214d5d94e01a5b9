//! The git settings that make git run something.

/// Settings with which git runs nothing and writes nowhere else: names of sections, or of sections
/// and keys; `*` is any name between.
/// A setting that isn't listed counts as harmful: git gets new settings.
const HARMLESS: [&str; 41] = [
    "advice",
    "apply.whitespace",
    "branch.*.description",
    "branch.*.merge",
    "branch.*.pushremote",
    "branch.*.rebase",
    "branch.*.remote",
    "branch.autosetupmerge",
    "branch.autosetuprebase",
    "clean.requireforce",
    "color",
    "column",
    "commit.gpgsign",
    "commit.verbose",
    "core.abbrev",
    "core.autocrlf",
    "core.bare",
    "core.compression",
    "core.eol",
    "core.filemode",
    "core.ignorecase",
    "core.logallrefupdates",
    "core.longpaths",
    "core.precomposeunicode",
    "core.quotepath",
    "core.repositoryformatversion",
    "core.safecrlf",
    "core.symlinks",
    "core.whitespace",
    "extensions.objectformat",
    "fetch.prune",
    "init.defaultbranch",
    "log",
    "merge.conflictstyle",
    "pull.ff",
    "pull.rebase",
    "push.default",
    "remote.*.fetch",
    "remote.*.url",
    "status",
    "user",
];

/// Whether git runs nothing because of a setting, with a value after `=` or without one.
pub fn is_harmless(setting: &str) -> bool {
    let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
    let name = name.trim().to_lowercase();
    let is_it = |listed: &&str| match (listed.split_once(".*."), listed.contains('.')) {
        (Some((section, key)), _) => {
            name.strip_prefix(section).and_then(|rest| rest.strip_prefix('.')).is_some_and(|rest| {
                rest.strip_suffix(key).is_some_and(|middle| middle.len() > 1 && middle.ends_with('.'))
            })
        }
        (None, true) => name == **listed,
        (None, false) => name.strip_prefix(*listed).is_some_and(|rest| rest.starts_with('.')),
    };
    // `ext::` and `fd::` are commands rather than addresses, `-` begins an option.
    let address = !value.contains("::") && !value.trim_start().starts_with('-');
    HARMLESS.iter().any(is_it) && (!name.ends_with("url") || address)
}

/// The settings in a file like `.git/config`, as `name=value`.
/// `None` if a part of it can't be parsed.
pub fn settings(text: &str) -> Option<Vec<String>> {
    let mut section = String::new();
    let mut settings = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        // A continued value, or quotes, which may contain anything.
        if line.ends_with('\\') {
            return None;
        }
        if let Some(head) = line.strip_prefix('[') {
            let head = head.strip_suffix(']')?;
            section = match head.split_once(" \"") {
                Some((name, sub)) => {
                    let sub = sub.strip_suffix('"').filter(|sub| !sub.contains(['"', '\\', ']', '[']))?;
                    format!("{name}.{sub}")
                }
                None => head.to_owned(),
            };
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/');
            if section.is_empty() || !section.chars().all(plain) {
                return None;
            }
            continue;
        }
        let (key, value) = line.split_once('=').map_or((line, ""), |(key, value)| (key.trim(), value.trim()));
        let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if section.is_empty() || !plain {
            return None;
        }
        settings.push(format!("{section}.{key}={value}"));
    }
    Some(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_nothing_is_listed() {
        for setting in
            ["user.name=A", "core.autocrlf=input", "branch.a/b.merge=refs/heads/a", "color.ui=always"]
        {
            assert!(is_harmless(setting), "{setting}");
        }
        assert!(is_harmless("remote.origin.url=https://example.org/a.git"));
        for setting in [
            "core.fsmonitor=rm",
            "core.hooksPath=x",
            "alias.st=!rm",
            "users.name=A",
            "branch.merge=a",
            "remote.origin.url=ext::sh -c rm",
            "remote.origin.uploadpack=rm",
            "include.path=x",
            "",
        ] {
            assert!(!is_harmless(setting), "{setting}");
        }
    }

    #[test]
    fn settings_are_read_or_refused() {
        let text =
            "# a\n[core]\n\tbare = false\n[branch \"a/b\"]\n\tmerge = refs/heads/a\n\n[user]\nname=A B\n";
        let expected = ["core.bare=false", "branch.a/b.merge=refs/heads/a", "user.name=A B"];
        assert_eq!(settings(text).unwrap(), expected);
        for text in ["a = b", "[core] fsmonitor = x", "[a]\nb = c \\\nd", "[a \"b]\" c", "[a]\n= x", "x"] {
            assert_eq!(settings(text), None, "{text}");
        }
    }
}
