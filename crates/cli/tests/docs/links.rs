//! Links between pages, and the table of contents.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::page::Page;
use crate::conventions::files;
use crate::root;

/// Resolves `.` and `..` in `path`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = plain.pop(),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// Returns the problem with a link of `page`, if it leads to a file.
fn fault(page: &Page, target: &str, anchors: &BTreeMap<PathBuf, Vec<String>>) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => page.path.clone(),
        file => plain(&page.path.parent().unwrap().join(file)),
    };
    if !root().join(&path).exists() {
        return Some(format!("there is no {}", path.display()));
    }
    let known = anchors.get(&path)?;
    (!anchor.is_empty() && !known.iter().any(|known| known == anchor))
        .then(|| format!("{} has no heading #{anchor}; it has {}", path.display(), known.join(", ")))
}

#[test]
fn every_link_leads_somewhere() {
    let pages: Vec<Page> = files(root(), &[".md"]).iter().map(|path| Page::read(path)).collect();
    let anchors: BTreeMap<_, _> = pages.iter().map(|page| (page.path.clone(), page.anchors())).collect();
    let mut faults = Vec::new();
    let mut count = 0;
    for page in &pages {
        for (line, target) in page.links() {
            count += 1;
            let fault = fault(page, &target, &anchors);
            faults.extend(fault.map(|fault| format!("{}:{line}: {target}: {fault}", page.path.display())));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(count > 150, "only {count} links were seen");
}

#[test]
fn the_table_of_contents_has_every_page() {
    let docs = root().join("docs");
    let summary = Page::read(&docs.join("SUMMARY.md"));
    let listed: Vec<PathBuf> = summary.links().into_iter().map(|(_, target)| docs.join(target)).collect();
    let there: BTreeSet<PathBuf> = files(&docs, &[".md"]).into_iter().collect();
    let missing: Vec<_> =
        there.iter().filter(|page| !listed.contains(page) && !page.ends_with("SUMMARY.md")).collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md does not list {missing:?}");
    assert_eq!(listed.iter().collect::<BTreeSet<_>>().len(), listed.len(), "a page is listed twice");
}

#[test]
fn a_link_that_leads_nowhere_is_seen() {
    let page = |path: &str, text: &str| Page { path: path.into(), text: text.to_owned() };
    let one = page("docs/index.md", "# One\n");
    let anchors =
        [(PathBuf::from("README.md"), vec!["licence".to_owned()]), (one.path.clone(), one.anchors())];
    let anchors = BTreeMap::from(anchors);
    let check = |target: &str| fault(&one, target, &anchors);
    for good in ["../README.md", "../README.md#licence", "#one", "https://example.org/x#y", "../docs"] {
        assert_eq!(check(good), None, "{good}");
    }
    for bad in ["README.md", "../README.md#license", "#two", "../no/such"] {
        assert!(check(bad).is_some(), "{bad}");
    }
}
