//! Where git keeps the files of a work tree that are outside it.
//! They are the repository of a linked work tree, a submodule or `--separate-git-dir`, and the
//! borrowed objects of a shared clone (`objects/info/alternates`).
//!
//! Of these, programs see only what git follows, and git was asked before the first of them ran.
//! Nevertheless a step may have written a `.git` or alternates, in an earlier session without a
//! layer to hold it back: there, alara follows only paths that name the work tree themselves.

use std::path::{Path, PathBuf};

use super::tree::text_of;

/// How many levels of borrowed objects git follows.
const DEPTH: usize = 5;
/// Most folders of borrowed objects.
const BORROWED: usize = 16;

/// Git's answer about the repository that a work tree belongs to; all paths are canonical.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The top of the work tree.
    pub top: PathBuf,
    /// The work tree's own folder, usually that of the repository.
    pub own: PathBuf,
    /// The repository's folder, which its work trees share.
    pub common: PathBuf,
    /// Whether settings in there name the work tree.
    pub named: bool,
}

/// A work tree with files elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkout {
    found: Found,
    /// Folders of objects that belong to other repositories.
    borrowed: Vec<PathBuf>,
}

impl Checkout {
    /// The files that belong to the work tree.
    /// `is_repository` returns whether git accepts a folder as a repository's own.
    /// Returns `None` if the repository that git found doesn't belong to it.
    pub fn of(found: Found, is_repository: impl Fn(&Path) -> bool) -> Option<Self> {
        let mut found = found;
        if found.own != found.common {
            // As git does it: both sides of a linked work tree must name each other.
            let is_listed = found.own.parent() == Some(&found.common.join("worktrees"));
            found.named = is_listed && backlink(&found.own)? == found.top.join(".git");
            if !found.named {
                return None;
            }
        }
        let borrowed = borrowed(&found.common.join("objects"), is_repository);
        Some(Checkout { found, borrowed })
    }

    /// The paths outside the work tree that programs must see; with `trusting`, also those that
    /// only the work tree itself names.
    pub fn elsewhere(&self, trusting: bool) -> Vec<PathBuf> {
        let Found { top, own, common, named } = &self.found;
        let mut all = Vec::new();
        if *named || trusting {
            all.extend([own.clone(), common.clone()]);
        }
        // Don't trust what a step can write.
        if trusting || (*named && !common.starts_with(top)) {
            all.extend(self.borrowed.iter().cloned());
        }
        // A path inside another one is visible with it, and may be part of its work tree.
        let within = |path: &PathBuf| all.iter().any(|other| path != other && path.starts_with(other));
        let mut outer: Vec<PathBuf> =
            all.iter().filter(|path| !path.starts_with(top) && !within(path)).cloned().collect();
        outer.dedup();
        outer
    }

    /// The repository's folder, and the part of it that belongs to the work tree alone, if `work`
    /// is that work tree and the folder is elsewhere.
    pub fn store(&self, work: &Path) -> Option<(&Path, &Path)> {
        let Found { top, own, common, .. } = &self.found;
        let apart = !common.starts_with(work) && !work.starts_with(common);
        let own = own.strip_prefix(common).ok()?;
        (top == work && apart).then_some((common, own))
    }
}

/// The `.git` file that a linked work tree's own folder names as its other side.
fn backlink(own: &Path) -> Option<PathBuf> {
    let text = text_of(&own.join("gitdir"))?;
    let named = own.join(text.trim_end_matches(['\n', '\r']));
    // The file itself may be a link, but its folder is real.
    let folder = named.parent()?.canonicalize().ok()?;
    Some(folder.join(named.file_name()?))
}

/// The folders of objects that a repository borrows, to the depth that git follows.
/// Git accepts any folder; alara accepts only that of a repository, so that a forged entry can't
/// expose any other folder.
fn borrowed(objects: &Path, is_repository: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![(objects.to_owned(), 0)];
    while let Some((objects, depth)) = left.pop() {
        if depth > DEPTH {
            continue;
        }
        let text = text_of(&objects.join("info/alternates")).unwrap_or_default();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let Ok(folder) = objects.join(line).canonicalize() else { continue };
            let is_objects = folder.ends_with("objects") && folder.parent().is_some_and(&is_repository);
            if is_objects && !found.contains(&folder) && found.len() < BORROWED {
                found.push(folder.clone());
                left.push((folder, depth + 1));
            }
        }
    }
    found
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A folder with repositories `a`, `b` and `c`, each of which borrows from the next.
    fn chain() -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().canonicalize().unwrap();
        for (name, next) in
            [("a", "../../b/objects"), ("b", "../../c/objects\n# d\n\n/missing"), ("c", "../../a/objects")]
        {
            fs::create_dir_all(path.join(name).join("objects/info")).unwrap();
            fs::write(path.join(name).join("objects/info/alternates"), next).unwrap();
        }
        (root, path)
    }

    #[test]
    fn borrowed_objects_are_followed_to_repositories_alone() {
        let (_root, path) = chain();
        let objects =
            |names: &[&str]| names.iter().map(|name| path.join(name).join("objects")).collect::<Vec<_>>();
        assert_eq!(borrowed(&path.join("a/objects"), |_| true), objects(&["b", "c", "a"]));
        assert_eq!(borrowed(&path.join("a/objects"), |folder| folder.ends_with("b")), objects(&["b"]));
        fs::create_dir(path.join("keys")).unwrap();
        fs::write(path.join("a/objects/info/alternates"), "../../keys").unwrap();
        assert_eq!(borrowed(&path.join("a/objects"), |_| true), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_linked_work_tree_is_one_that_both_sides_know_of() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let own = root.join("main/worktrees/w");
        fs::create_dir_all(&own).unwrap();
        fs::create_dir(root.join("w")).unwrap();
        let found = |own: &Path| Found {
            top: root.join("w"),
            own: own.to_owned(),
            common: root.join("main"),
            named: false,
        };
        let of = |own: &Path| Checkout::of(found(own), |_| true);
        assert_eq!(of(&own), None);
        for text in ["../../../w/.git\n".to_owned(), format!("{}/w/.git", root.display())] {
            fs::write(own.join("gitdir"), text).unwrap();
            let checkout = of(&own).unwrap();
            assert_eq!(checkout.elsewhere(false), [root.join("main")]);
            assert_eq!(
                checkout.store(&root.join("w")),
                Some((root.join("main").as_path(), Path::new("worktrees/w")))
            );
            assert_eq!(checkout.store(&root), None);
        }
        for text in ["../../../other/.git", "../../../w/git", "/etc/.git"] {
            fs::write(own.join("gitdir"), text).unwrap();
            assert_eq!(of(&own), None, "{text}");
        }
        // A folder in the work tree proves nothing, and neither does one elsewhere.
        let other = root.join("w/own");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("gitdir"), "../.git").unwrap();
        assert_eq!(of(&other), None);
    }

    #[test]
    fn what_only_the_work_tree_points_to_takes_trust() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let (top, store) = (root.join("w"), root.join("store"));
        let of = |common: &Path, named| {
            let (own, common) = (common.to_owned(), common.to_owned());
            Checkout::of(Found { top: top.clone(), own, common, named }, |_| true).unwrap()
        };
        assert_eq!(of(&store, false).elsewhere(false), Vec::<PathBuf>::new());
        assert_eq!(of(&store, false).elsewhere(true), std::slice::from_ref(&store));
        assert_eq!(of(&store, true).elsewhere(false), std::slice::from_ref(&store));
        let inner = top.join(".git");
        fs::create_dir_all(inner.join("objects/info")).unwrap();
        fs::create_dir_all(root.join("other/objects")).unwrap();
        fs::write(inner.join("objects/info/alternates"), "../../../other/objects").unwrap();
        assert_eq!(of(&inner, true).elsewhere(false), Vec::<PathBuf>::new());
        assert_eq!(of(&inner, false).elsewhere(true), [root.join("other/objects")]);
    }
}
