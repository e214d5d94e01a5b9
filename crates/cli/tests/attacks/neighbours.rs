//! Other users of the machine, who write to the temporary folder.

use std::process::Command;

use crate::dirs::{TestDir, code, text};

/// Whatever lies at the names of alara's folders and locks, a run ends.
#[test]
fn what_others_put_into_the_temporary_folder_hangs_nobody() {
    let user = nix_user();
    let plants: [&dyn Fn(&str); 4] = [
        &|path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
        &|path| std::fs::create_dir(path).unwrap(),
        &|path| std::os::unix::fs::symlink("/var/tmp", path).unwrap(),
        &|path| std::fs::write(path, "").unwrap(),
    ];
    for plant in plants {
        let dir = TestDir::calling(&["echo it works"]);
        dir.write("tmp/x", "");
        for name in [format!("alara-{user}"), format!("alara-{user}.1"), "alara-1-0.lock".to_owned()] {
            plant(&dir.path(&format!("tmp/{name}")).display().to_string());
        }
        let output = dir.task().env("TMPDIR", dir.path("tmp")).output().unwrap();
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
        assert!(dir.trace().iter().any(|record| record.to_string().contains("it works")));
    }
}

fn nix_user() -> String {
    text(&Command::new("id").arg("-u").output().unwrap().stdout).trim().to_owned()
}
