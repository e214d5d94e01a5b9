//! Chooses which of a repository's files to use.

use crate::error::{Result, bail, ensure};
use crate::name::{Wanted, is_gguf, is_inside, parts, split};

/// Quantizations in order of preference when none is named: about four bits per weight first, then
/// more, then fewer.
const PREFERRED: [&str; 24] = [
    "Q4_K_M", "Q4_K_S", "Q4_K_L", "Q4_K_XL", "Q4_K", "MXFP4", "Q4_1", "Q4_0", "IQ4_NL", "IQ4_XS", "Q5_K_M",
    "Q5_K_S", "Q5_1", "Q5_0", "Q6_K", "Q8_0", "Q3_K_L", "Q3_K_M", "Q3_K_S", "IQ3_M", "Q2_K", "BF16", "F16",
    "F32",
];

/// The chosen model.
#[derive(Debug, PartialEq, Eq)]
pub struct Choice {
    /// All its parts.
    pub files: Vec<String>,
    /// The quantization chosen in place of Q4_K_M, if none was named and there is no Q4_K_M file.
    pub instead: Option<String>,
}

/// Chooses the model: the named quantization, else the only one, else Q4_K_M or the nearest to it.
///
/// # Errors
/// There is no match, or more than one: the error lists the files.
pub fn choose(repository: &str, files: &[String], wanted: &Wanted) -> Result<Choice> {
    let model = |file: &&String| {
        is_gguf(file) && is_inside(file) && !file.to_lowercase().contains("mmproj") && is_first(file)
    };
    let models: Vec<&String> = files.iter().filter(model).collect();
    ensure!(!models.is_empty(), Name, "{repository} has no GGUF file: it can't be run as it is");
    let of = |quantization: &str| -> Vec<&String> {
        models.iter().copied().filter(|file| is_of(file, quantization)).collect()
    };
    let (quantization, found) = match wanted {
        Wanted::File(file) => (None, models.iter().copied().filter(|other| *other == file).collect()),
        Wanted::Quantization(quantization) => (Some(quantization.as_str()), of(quantization)),
        Wanted::Any if models.len() == 1 => (None, models.clone()),
        Wanted::Any => {
            let there = PREFERRED.into_iter().map(|name| (Some(name), of(name)));
            let mut there = there.filter(|(_, files)| !files.is_empty());
            there.next().unwrap_or((Some(PREFERRED[0]), Vec::new()))
        }
    };
    let list = |files: &[&String]| files.iter().map(|file| format!("\n  {file}")).collect::<String>();
    match found.as_slice() {
        [file] => {
            let other = quantization.filter(|name| *wanted == Wanted::Any && *name != PREFERRED[0]);
            let instead =
                other.map(|name| format!("{repository} has no {} file; {name} is taken", PREFERRED[0]));
            Ok(Choice { files: parts(file), instead })
        }
        [] => bail!(
            Name,
            "{repository} has no {} file; it has{}\nhint: name one of them, {repository}:FILE",
            quantization.unwrap_or("such"),
            list(&models)
        ),
        several => bail!(
            Name,
            "{repository} has more than one such file:{}\nhint: name one of them, {repository}:FILE",
            list(several)
        ),
    }
}

/// Whether a file is a whole model or the first part of a split one.
fn is_first(file: &str) -> bool {
    split(file).is_none_or(|_| parts(file).first().is_some_and(|first| first == file))
}

/// Whether a file's name ends with this quantization: Q4_K must not match Q4_K_M, nor 4B match 14B.
fn is_of(file: &str, quantization: &str) -> bool {
    let upper = file.to_uppercase().replace('/', "-");
    let stem = upper.trim_end_matches(".GGUF");
    let stem =
        stem.rsplit_once("-OF-").and_then(|(stem, _)| stem.rsplit_once('-')).map_or(stem, |(stem, _)| stem);
    let before = stem.strip_suffix(&quantization.to_uppercase());
    before.is_some_and(|before| before.is_empty() || before.ends_with(['-', '.', '_']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(quantization: &str) -> Wanted {
        Wanted::Quantization(quantization.into())
    }

    #[test]
    fn the_file_that_is_meant() {
        let files: Vec<String> = [
            "README.md",
            "mmproj-F16.gguf",
            "x-14B-Q4_K.gguf",
            "x-14B-Q4_K_M.gguf",
            "x-14B.Q8_0.gguf",
            "BF16/x-14B-BF16-00001-of-00002.gguf",
            "BF16/x-14B-BF16-00002-of-00002.gguf",
            "UD-Q2_K_XL/x-14B-UD-Q2_K_XL.gguf",
            "../x-14B-Q6_K.gguf",
        ]
        .map(String::from)
        .into();
        let check = |wanted: Wanted, expected: &[&str]| {
            let choice = choose("o/r", &files, &wanted).unwrap();
            assert_eq!(
                (choice.files, choice.instead),
                (expected.iter().map(ToString::to_string).collect(), None)
            );
        };
        check(Wanted::Any, &["x-14B-Q4_K_M.gguf"]);
        check(named("q4_k_m"), &["x-14B-Q4_K_M.gguf"]);
        check(named("Q4_K"), &["x-14B-Q4_K.gguf"]);
        check(named("Q8_0"), &["x-14B.Q8_0.gguf"]);
        check(named("BF16"), &["BF16/x-14B-BF16-00001-of-00002.gguf", "BF16/x-14B-BF16-00002-of-00002.gguf"]);
        check(named("UD-Q2_K_XL"), &["UD-Q2_K_XL/x-14B-UD-Q2_K_XL.gguf"]);
        let fails = |files: &[String], wanted: Wanted, words: &str| {
            let error = choose("o/r", files, &wanted).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        fails(&files, named("Q5_K_M"), "has no Q5_K_M file; it has\n  x-14B-Q4_K.gguf\n");
        fails(&files, named("Q6_K"), "has no Q6_K file");
        fails(&files[..2], Wanted::Any, "has no GGUF file");
        let double = ["a-Q4_K_M.gguf", "b-Q4_K_M.gguf"].map(String::from);
        fails(&double, Wanted::Any, "more than one such file:\n  a-Q4_K_M.gguf\n  b-Q4_K_M.gguf\nhint: ");
        let odd = ["a.gguf", "b.gguf"].map(String::from);
        fails(&odd, Wanted::Any, "has no Q4_K_M file; it has\n  a.gguf\n  b.gguf");
    }

    #[test]
    fn what_is_nearest_is_taken_and_said() {
        let check = |files: &[&str], expected: &str, instead: Option<&str>| {
            let files: Vec<String> = files.iter().map(ToString::to_string).collect();
            let choice = choose("o/r", &files, &Wanted::Any).unwrap();
            assert_eq!(choice.files, [expected]);
            let instead = instead.map(|name| format!("o/r has no Q4_K_M file; {name} is taken"));
            assert_eq!(choice.instead, instead, "{files:?}");
        };
        check(&["x-Q8_0.gguf", "x-Q5_K_M.gguf"], "x-Q5_K_M.gguf", Some("Q5_K_M"));
        check(&["x-Q3_K_M.gguf", "x-Q8_0.gguf", "x-UD-Q4_K_XL.gguf"], "x-UD-Q4_K_XL.gguf", Some("Q4_K_XL"));
        check(&["x-F16.gguf", "x-Q2_K.gguf"], "x-Q2_K.gguf", Some("Q2_K"));
        check(&["x-Q8_0.gguf", "mmproj-x-Q4_K_M.gguf"], "x-Q8_0.gguf", None);
    }
}
