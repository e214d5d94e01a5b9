//! Compares the rules for repositories with git itself.

use std::ffi::OsString;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use super::*;

/// A directory on the disk.
struct Disk(PathBuf);

impl Disk {
    fn place(&self, path: &Path) -> Option<PathBuf> {
        let parents = path.ancestors().skip(1);
        let leads = |part: &Path| self.0.join(part).symlink_metadata().is_ok_and(|found| found.is_dir());
        parents.into_iter().all(leads).then(|| self.0.join(path))
    }
}

impl Tree for Disk {
    fn kind(&self, path: &Path) -> Option<Kind> {
        let found = self.place(path)?.symlink_metadata().ok()?;
        Some(match found.file_type() {
            kind if kind.is_dir() => Kind::Directory,
            kind if kind.is_symlink() => Kind::Link,
            kind if kind.is_file() => Kind::File,
            _ => Kind::Other,
        })
    }

    fn bytes(&self, path: &Path, most: u64) -> Option<Vec<u8>> {
        use std::io::Read;
        let file = std::fs::File::open(self.place(path)?).ok()?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        std::fs::read_link(self.place(path)?).ok()
    }

    fn names(&self, path: &Path) -> Vec<OsString> {
        let entries = self.place(path).and_then(|path| path.read_dir().ok()).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect()
    }
}

/// Creates an entry at a path: a file with a text, `-> ` and a link's target, `/` for a folder, `+`
/// for an executable file; an empty text creates nothing.
fn put(path: &Path, what: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    match what {
        b"" => {}
        b"/" => std::fs::create_dir(path).unwrap(),
        b"+" => {
            std::fs::write(path, "").unwrap();
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        _ => match what.strip_prefix(b"-> ") {
            Some(target) => symlink(std::str::from_utf8(target).unwrap(), path).unwrap(),
            None => std::fs::write(path, what).unwrap(),
        },
    }
}

const NAME: &[u8] = b"0123456789abcdef0123456789abcdef01234567";

fn heads() -> Vec<Vec<u8>> {
    let long = |text: &[u8]| [text, &b"x".repeat(70_000)].concat();
    let plain: [&[u8]; 22] = [
        b"ref: refs/heads/main\n",
        b"ref:refs/heads/main",
        b"ref:  \t\r\n refs/",
        b"ref: refs",
        b"ref:\x0brefs/heads/main",
        b"Ref: refs/heads/main\n",
        b" ref: refs/heads/main\n",
        b"ref: \0refs/heads/main",
        b"ref: refs/heads/\xff\xfe\n",
        b"refs/heads/main",
        b"x",
        b"\n",
        b"/",
        b"",
        b"-> refs/heads/main",
        b"-> refs/",
        b"-> refs",
        b"-> objects",
        b"-> /refs/heads/main",
        NAME,
        &NAME[..39],
        b"0123456789ABCDEF0123456789ABCDEF01234567 and more\n",
    ];
    let long = [long(b"ref: refs/heads/main\n"), long(NAME), long(b"\xff"), long(b"no ref: refs/heads/main")];
    let spaces = [250, 251, 300].map(|count| [b"ref:", &*b" ".repeat(count), b"refs/heads/main"].concat());
    plain.iter().map(|text| text.to_vec()).chain(long).chain(spaces).collect()
}

const PARTS: [&[u8]; 7] = [b"/", b"", b"x", b"+", b"-> ../else", b"-> nowhere", b"-> refs"];
const COMMONDIRS: [&[u8]; 11] = [
    b"",
    b"../else\n",
    b"../else\r\n\r\n",
    b"../else ",
    b"./../else/../else",
    b"../nothing",
    b"../nothing/../else",
    b"\n",
    b"/",
    b"-> ../else/name",
    b"..",
];
const GITFILES: [&[u8]; 12] = [
    b"gitdir: own",
    b"gitdir: own\r\n\n",
    b"gitdir: ./else/../own\n",
    b"gitdir: nothing/../own\n",
    b"gitdir: own/\n",
    b"gitdir: own \n",
    b"gitdir:own",
    b"gitdir: \n",
    b"gitdir: nothing",
    b" gitdir: own",
    b"gitdir: own\0more",
    b"-> own/gitfile",
];

/// The contents of a folder, and where git is asked.
struct Made {
    head: Vec<u8>,
    objects: &'static [u8],
    refs: &'static [u8],
    commondir: &'static [u8],
    /// The name of the repository's own folder; empty if it is the top.
    own: &'static str,
    gitfile: &'static [u8],
}

impl Made {
    /// Whether everything that decides is visible here.
    fn is_plain(&self) -> bool {
        let plain = |part: &[u8]| matches!(part, b"/" | b"");
        plain(self.objects)
            && plain(self.refs)
            && self.commondir.is_empty()
            && !self.gitfile.starts_with(b"-> ")
    }

    fn make(&self, top: &Path) {
        let own = top.join(self.own);
        std::fs::create_dir_all(&own).unwrap();
        for part in ["objects", "refs"] {
            std::fs::create_dir_all(own.join("../else").join(part)).unwrap();
        }
        put(&own.join("../else/name"), b"../else");
        put(&own.join("HEAD"), &self.head);
        put(&own.join("objects"), self.objects);
        put(&own.join("refs"), self.refs);
        put(&own.join("commondir"), self.commondir);
        if self.own == "own" {
            put(&own.join("gitfile"), b"gitdir: own");
            put(&top.join(".git"), self.gitfile);
        }
    }
}

/// All cases: each variant of one part, with correct values for the others.
fn all() -> Vec<Made> {
    let right = |own| Made {
        head: b"ref: refs/heads/main\n".to_vec(),
        objects: b"/",
        refs: b"/",
        commondir: b"",
        own,
        gitfile: b"gitdir: own",
    };
    let mut made = Vec::new();
    for own in ["", ".git", "own"] {
        for head in heads() {
            for commondir in [b"", b"../else" as &[u8]] {
                made.push(Made { head: head.clone(), commondir, ..right(own) });
            }
        }
        for objects in PARTS {
            made.extend(PARTS.map(|refs| Made { objects, refs, ..right(own) }));
        }
        for commondir in COMMONDIRS {
            made.push(Made { commondir, ..right(own) });
            made.push(Made { commondir, objects: b"", ..right(own) });
            made.push(Made { commondir, head: b"x".to_vec(), ..right(own) });
        }
    }
    made.extend(GITFILES.map(|gitfile| Made { gitfile, ..right("own") }));
    let long = Vec::leak([&b"gitdir: own"[..], &b"\n".repeat((1 << 20) - 11)].concat());
    made.push(Made { gitfile: long, ..right("own") });
    made.push(Made { gitfile: Vec::leak([&*long, b"\n"].concat()), ..right("own") });
    made
}

#[test]
fn what_git_takes_for_a_repository_is_taken_for_one() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    if Command::new("git").arg("--version").output().is_err() {
        eprintln!("SKIPPED: what_git_takes_for_a_repository_is_taken_for_one: there is no git");
        return;
    }
    let (mut wrong, mut sure, mut yes) = (Vec::new(), 0, 0);
    let all = all();
    for (at, made) in all.iter().enumerate() {
        let around = root.join(at.to_string());
        let top = around.join("top");
        made.make(&top);
        let mut git = Command::new("git");
        git.args(["-c", "safe.bareRepository=all", "-c", "safe.directory=*", "rev-parse", "--git-dir"]);
        git.current_dir(&top).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        git.env("HOME", &root).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CEILING_DIRECTORIES", &around);
        let theirs = git.output().unwrap().status.success();
        let ours = is_top(&Disk(around), Path::new("top"));
        let fits = match ours {
            Taken::No => !theirs,
            Taken::Yes => theirs,
            Taken::Perhaps => !made.is_plain(),
        };
        if !fits {
            let [head, gitfile] = [&made.head[..], made.gitfile]
                .map(|text| String::from_utf8_lossy(&text[..text.len().min(60)]).into_owned());
            let parts = [made.objects, made.refs, made.commondir].map(String::from_utf8_lossy);
            wrong.push(format!("{ours:?}, git {theirs}: {:?} {head:?} {parts:?} {gitfile:?}", made.own));
        }
        sure += usize::from(ours != Taken::Perhaps);
        yes += usize::from(theirs);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Most are decided, and both ways.
    assert!(all.len() > 300 && sure * 2 > all.len() && yes > 100 && all.len() - yes > 100, "{sure} {yes}");
}
