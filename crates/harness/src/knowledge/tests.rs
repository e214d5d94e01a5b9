use serde_json::json;

use super::bm25::Bm25;
use super::vectors::Kept;
use super::*;
use crate::model::Embedder;

fn markdown(text: &str) -> Document {
    Document { id: "d".into(), title: "D".into(), text: text.into(), headings: true, ..Document::default() }
}

fn write(folder: &std::path::Path, file: &str, text: impl AsRef<[u8]>) {
    let path = folder.join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[test]
fn chunks_by_heading_have_ids_that_stay() {
    let check = |text: &str, expected: &[(&str, &str)]| {
        let chunks = chunk::chunks(&markdown(text), 0);
        let found: Vec<_> = chunks.iter().map(|chunk| (chunk.id.as_str(), chunk.text.as_str())).collect();
        assert_eq!(found, expected, "{text:?}");
    };
    check("only", &[("d", "only")]);
    check("", &[]);
    check(
        "intro\n# A b!\none\n## Deep\n### Deeper\ntwo\n# A b\nthree\n",
        &[
            ("d", "intro"),
            ("d#a-b", "# A b!\none"),
            ("d#deeper", "### Deeper\ntwo"),
            ("d#a-b-2", "# A b\nthree"),
        ],
    );
    check("# A\n```\n# no\n```\n#no\n", &[("d#a", "# A\n```\n# no\n```\n#no")]);
    let long = format!("# L\n{}\n\n{}", "x ".repeat(800).trim(), "y ".repeat(800).trim());
    let ids: Vec<String> = chunk::chunks(&markdown(&long), 0).into_iter().map(|chunk| chunk.id).collect();
    assert_eq!(ids, ["d#l", "d#l/2"]);
    let plain = Document { headings: false, ..markdown("a\n# b\nc") };
    assert_eq!(chunk::chunks(&plain, 0)[0].text, "a\n# b\nc");
}

/// The numbers come from a Python script of ten lines, by the formula of the source that `bm25`
/// names.
#[test]
fn bm25_is_what_the_formula_says() {
    let mut bm25 = Bm25::default();
    for text in ["cat sat mat", "cat cat dog", "bird", "The dogs of a bird sing songs"] {
        bm25.add(text);
    }
    let check = |query: &str, least: f64, expected: &[(usize, f64)]| {
        let found = bm25.search(query, least);
        let near = found.iter().zip(expected).all(|(a, b)| a.0 == b.0 && (a.1 - b.1).abs() < 1e-9);
        assert!(found.len() == expected.len() && near, "{query}: {found:?}");
    };
    check("cat", 0.0, &[(1, 0.9620970329538673), (0, 0.6659055883108644)]);
    check("dogs cat zebra", 0.6, &[(1, 1.6280026212647316)]);
    check("dog", 0.0, &[(1, 0.6659055883108644), (3, 0.5754429423516527)]);
    check("the of", 0.0, &[]);
    check("zebra", 0.0, &[]);
}

/// Vectors that count letters.
struct Letters(std::sync::atomic::AtomicUsize);

impl Embedder for Letters {
    fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, crate::ModelError> {
        self.0.fetch_add(texts.len(), std::sync::atomic::Ordering::Relaxed);
        let count = |text: &String, letter| text.matches(letter).count() as f32;
        let vector = |text: &String| {
            let numbers = [count(text, 'x'), count(text, 'y')];
            let length = numbers[0].hypot(numbers[1]).max(1.0);
            numbers.map(|number| number / length).to_vec()
        };
        Ok(texts.iter().map(vector).collect())
    }
}

impl Letters {
    fn asked(&self) -> usize {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// Vectors of three numbers, the last of which is 0.
struct Longer(Letters);

impl Embedder for Longer {
    fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, crate::ModelError> {
        let vectors = self.0.embed(texts)?;
        Ok(vectors.into_iter().map(|vector| [vector, vec![0.0]].concat()).collect())
    }
}

#[test]
fn vectors_of_another_length_are_made_anew() {
    let texts = ["xx", "yy", "xy"].map(str::to_owned);
    let mut kept = Kept::default();
    let (short, new) = kept.of(&texts[..2], &Letters(0.into())).unwrap();
    assert!(new && Kept::from_bytes(&kept.to_bytes()).unwrap() == kept);
    assert_eq!(kept.of(&texts[..2], &Letters(0.into())).unwrap(), (short, false));
    let longer = Longer(Letters(0.into()));
    let (all, _) = kept.of(&texts, &longer).unwrap();
    assert_eq!(all, Vectors::of(&texts, &longer).unwrap());
}

fn ids(
    opened: &Index,
    text: &str,
    retrieval: Retrieval,
    vectors: Option<(&Vectors, &dyn Embedder)>,
) -> Vec<String> {
    let query = Query { text, retrieval, k: 10, least: 0.0 };
    opened.search(&query, vectors).unwrap().into_iter().map(|hit| hit.id).collect()
}

#[test]
fn rankings_are_put_together_by_rank() {
    let folder = tempfile::tempdir().unwrap();
    // By words: b (twice), a.
    // By vectors: c, then a, then b.
    write(folder.path(), "a.txt", "word xxx yyyy other");
    write(folder.path(), "b.txt", "word word yyyy");
    write(folder.path(), "c.txt", "xxx");
    let letters = Letters(0.into());
    let cache = IndexCache::default();
    let opened = cache.open(folder.path(), false).unwrap();
    let vectors = cache.vectors(&opened, &letters).unwrap();
    let find = |retrieval| ids(&opened.index, "word x", retrieval, Some((&vectors, &letters)));
    assert_eq!(find(Retrieval::Bm25), ["b", "a"]);
    assert_eq!(find(Retrieval::Embedding), ["c", "a", "b"]);
    // a: 1/62 + 1/62; b: 1/61 + 1/63; c: 1/61.
    assert_eq!(find(Retrieval::Hybrid), ["b", "a", "c"]);
    assert_eq!(find(Retrieval::None), Vec::<String>::new());
    let query = Query { text: "word", retrieval: Retrieval::Hybrid, k: 1, least: 0.0 };
    assert!(matches!(opened.index.search(&query, None), Err(Error::NoEmbedder { .. })));
}

#[test]
fn indexes_and_vectors_outlast_a_restart() {
    let (folder, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(folder.path(), "a.md", "# A\nxx\n## B\nyy");
    write(folder.path(), "broken.json", "{");
    let letters = Letters(0.into());
    let search = |expected: usize, files: usize| {
        let before = letters.asked();
        let cache = IndexCache::kept_in(kept.path().join("new"));
        let opened = cache.open(folder.path(), false).unwrap();
        assert_eq!(opened.index.problems.len(), 1);
        let vectors = cache.vectors(&opened, &letters).unwrap();
        assert_eq!(ids(&opened.index, "yy", Retrieval::Embedding, Some((&vectors, &letters)))[0], "a#b");
        assert_eq!(letters.asked() - before, expected);
        assert!(opened.new && !cache.open(folder.path(), false).unwrap().new);
        let names = std::fs::read_dir(kept.path().join("new")).unwrap().map(|entry| entry.unwrap().path());
        let names: Vec<_> = names.collect();
        assert_eq!(names.len(), files);
        names
    };
    // The probe, two chunks and the query; then no chunks.
    search(4, 2);
    let names = search(2, 2);
    // A broken file is rebuilt.
    names.iter().for_each(|name| std::fs::write(name, "{}").unwrap());
    search(4, 2);
    // Another text needs another index, and the unchanged chunks keep their vectors.
    write(folder.path(), "a.md", "# A\nxx\n## B\nyyy");
    search(3, 3);
    // The same holds in another place, and if a text occurs twice.
    write(folder.path(), "sub/b.md", "# A\nxx\n## B\nyyy");
    write(folder.path(), "sub/c.md", "# A\nxx\n## B\nyyyy");
    search(3, 4);
}

#[test]
fn every_kind_of_file_is_read_and_a_broken_one_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "a.md", "---\ntags: [x]\n---\n# Title\ntext\n");
    write(path, "sub/b.txt", "First line\n# no heading\n");
    write(path, "c.csv", "name,fee\nGold,\"1\n2\"\nBlue,3\n");
    write(
        path,
        "d.html",
        "<title>T &amp; U</title><style>p{}</style><h2>Head</h2><p>a &lt; b</p>\n<!-- no --><p>c &#x41;&nope",
    );
    write(
        path,
        "e.json",
        json!([{"id": "own", "title": "E", "url": "u", "text": "t"}, {"content": "c"}]).to_string(),
    );
    write(path, "f.json", r#"{"a": {"b": [1, "x"]}}"#);
    write(path, "a.txt", "the same id");
    write(path, "bad.csv", "a,b\n1\n");
    write(path, "bad.html", "<p");
    write(path, "bad.json", "{");
    write(path, "bad.md", b"caf\xe9");
    write(path, "picture.png", b"\x89");
    write(path, ".hidden.md", "no");
    let mut problems = Vec::new();
    let found = documents(path, &mut problems).unwrap();
    let found: Vec<_> =
        found.iter().map(|one| (one.id.as_str(), one.title.as_str(), one.text.as_str())).collect();
    assert_eq!(
        found,
        [
            ("a", "Title", "# Title\ntext"),
            ("c", "c", "## Gold\nname: Gold\nfee: 1 2\n\n## Blue\nname: Blue\nfee: 3"),
            ("d", "T & U", "T & U\n## Head\na < b\nc A&nope"),
            ("e-2", "e-2", "c"),
            ("f", "f", "a.b.0: 1\na.b.1: x"),
            ("own", "E", "t"),
            ("sub/b", "First line", "First line\n# no heading"),
        ]
    );
    let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let check = |begin: &str| assert!(told.iter().any(|line| line.starts_with(begin)), "{begin}: {told:#?}");
    check("a.txt: it has the id `a`, as a.md has; rename one of them");
    check("bad.csv: it is no CSV: ");
    check("bad.html: a tag `<` has no end `>`");
    check("bad.json: it is no JSON: ");
    check("bad.md: it is no UTF-8 text: save it as one; it is left out of the search");
    assert_eq!(told.len(), 5);
    let missing = documents(&path.join("none"), &mut problems).unwrap_err();
    assert!(missing.to_string().starts_with("there is no folder "), "{missing}");
}

#[test]
fn golden_documents_stand_in_one_order() {
    let documents = [markdown("one"), Document { id: "e".into(), ..markdown("two") }];
    let texts = |ids: &[&str]| golden(&documents, &ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>());
    let expected = ["<document id=\"d\">\none\n</document>", "<document id=\"e\">\ntwo\n</document>"];
    assert_eq!(texts(&["e", "d", "e"]).unwrap(), expected);
    assert!(texts(&["f"]).unwrap_err().to_string().contains("there is no document `f`"));
}
