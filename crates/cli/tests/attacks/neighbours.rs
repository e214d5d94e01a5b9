//! Attacks by other users of the machine, who can write to the temporary folder.

use std::process::Command;

use crate::dirs::{TestDir, code, text};

/// A run ends, whatever has the names of alara's folders and locks.
#[test]
fn what_others_put_into_the_temporary_folder_hangs_nobody() {
    let user = user();
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
        let mut child = dir.task().env("TMPDIR", dir.path("tmp")).spawn().unwrap();
        let ends = (0..600).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            child.try_wait().unwrap().is_some()
        });
        if !ends {
            child.kill().unwrap();
        }
        let output = child.wait_with_output().unwrap();
        assert!(ends, "it hangs: {}", text(&output.stderr));
        assert!(code(&output) < 2, "{}", text(&output.stderr));
        assert!(dir.trace().iter().any(|record| record.to_string().contains("it works")));
    }
}

/// Returns the user's numeric id.
fn user() -> String {
    text(&Command::new("id").arg("-u").output().unwrap().stdout).trim().to_owned()
}
