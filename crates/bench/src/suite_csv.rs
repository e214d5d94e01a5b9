//! Reads suites from CSV files with the columns of the npcsh benchmark.
//! Their tasks use absolute `/tmp` paths.

use std::path::Path;

use alara_engine::file;

use crate::Error;
use crate::task::{Difficulty, Task};

/// The columns, in any order.
/// `setup_cmd` and `description` may be blank; the description isn't used.
const COLUMNS: [&str; 7] =
    ["id", "category", "difficulty", "setup_cmd", "instruction", "verify_cmd", "description"];

/// Reads the tasks of the file, each with file and line.
pub fn read(path: &Path) -> Result<Vec<(Task, String)>, Error> {
    let csv_error = |error: csv::Error| row_error(path, error);
    let bytes =
        file::read(path, file::TEXT).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let mut reader = csv::Reader::from_reader(bytes.as_slice());
    let headers = reader.headers().map_err(csv_error)?.clone();
    let columns = columns(&headers).map_err(|problem| Error::Columns {
        path: path.to_owned(),
        problem: format!("{problem}; the columns are {}", COLUMNS.join(",")),
    })?;
    let mut tasks = Vec::new();
    for row in reader.records() {
        let row = row.map_err(csv_error)?;
        let line = row.position().map_or(0, csv::Position::line);
        let location = format!("{}:{line}", path.display());
        let [id, category, difficulty, setup, instruction, verify, _] =
            columns.map(|column| row.get(column).unwrap_or_default().to_owned());
        let difficulty = match difficulty.as_str() {
            "easy" => Difficulty::Easy,
            "medium" => Difficulty::Medium,
            "hard" => Difficulty::Hard,
            _ => {
                let wanted = "it is easy, medium or hard";
                return Err(Error::Value { location, field: "difficulty", value: difficulty, wanted });
            }
        };
        let task = Task {
            id,
            category,
            difficulty,
            instruction,
            setup,
            verify,
            jinxes: Vec::new(),
            delegates: Vec::new(),
            gold: None,
            wrong: Vec::new(),
            timeout: None,
            dialogue: None,
        };
        task.check(|_| location.clone())?;
        tasks.push((task, location));
    }
    Ok(tasks)
}

/// Describes an error in a row in terms of the file.
fn row_error(path: &Path, error: csv::Error) -> Error {
    let (position, problem) = match error.into_kind() {
        csv::ErrorKind::Io(source) => return Error::Read { path: path.to_owned(), source },
        csv::ErrorKind::Utf8 { pos, .. } => (pos, "this is no UTF-8 text: save the file as UTF-8".to_owned()),
        csv::ErrorKind::UnequalLengths { pos, expected_len, len } => (
            pos,
            format!(
                "this row has {len} fields and not {expected_len}: a text with a comma in it stands in quotes"
            ),
        ),
        _ => (None, "it can't be read as CSV".to_owned()),
    };
    let line = position.map(|position| format!(":{}", position.line())).unwrap_or_default();
    Error::Row { location: format!("{}{line}", path.display()), problem }
}

/// Returns the index of each of [`COLUMNS`], or an error in the headers.
fn columns(headers: &csv::StringRecord) -> Result<[usize; 7], String> {
    for (index, name) in headers.iter().enumerate() {
        if !COLUMNS.contains(&name) {
            return Err(format!("the column `{name}` is unknown"));
        }
        if headers.iter().take(index).any(|other| other == name) {
            return Err(format!("the column `{name}` occurs twice"));
        }
    }
    let mut found = [0; 7];
    for (column, name) in found.iter_mut().zip(COLUMNS) {
        *column = headers
            .iter()
            .position(|header| header == name)
            .ok_or_else(|| format!("the column `{name}` is missing"))?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Suite;

    const HEAD: &str = "id,category,difficulty,setup_cmd,instruction,verify_cmd,description\n";

    fn load(text: &str) -> Result<Suite, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.csv");
        std::fs::write(&path, text).unwrap();
        Suite::load(&path)
    }

    #[test]
    fn reads_a_suite() {
        let text = format!(
            "{HEAD}s-2,s,hard,,\"Write \"\"a\"\", b\nto /tmp/x\",test -f /tmp/x,\ns-1,s,easy,mkdir /tmp/d,Go.,ls,why\n"
        );
        let suite = load(&text).unwrap();
        assert_eq!(suite.name, "old");
        let [first, second] = suite.tasks.as_slice() else { panic!("{suite:?}") };
        assert_eq!(
            (first.id.as_str(), first.setup.as_str(), first.uses_tmp()),
            ("s-1", "mkdir /tmp/d", true)
        );
        assert_eq!(
            (second.difficulty, second.instruction.as_str()),
            (Difficulty::Hard, "Write \"a\", b\nto /tmp/x")
        );
    }

    #[test]
    fn errors_name_file_and_line() {
        let check = |text: &str, expected: &str| {
            let error = load(text).unwrap_err();
            let chain = format!("{error} {:?}", std::error::Error::source(&error).map(ToString::to_string));
            assert!(
                chain.contains("old.csv") && chain.contains(expected),
                "`{chain}` does not say `{expected}`"
            );
        };
        check("id,category\n", ":1: the column `difficulty` is missing");
        check(&HEAD.replace("description", "points"), "the column `points` is unknown");
        check(&HEAD.replace("description", "id"), "the column `id` occurs twice");
        check(HEAD, "there is no task");
        check(&format!("{HEAD}a,b,easy,,c,d,\na2,b,easy,,,d,\n"), ":3: the field `instruction` is empty");
        check(&format!("{HEAD}a,b,tricky,,c,d,\n"), ":2: `tricky` is no difficulty");
        check(&format!("{HEAD}a,b,easy\n"), ":2: this row has 3 fields and not 7: a text with a comma");
        check(&format!("{HEAD}a,b,easy,,c,d,\na,b,easy,,c,d,\n"), "old.csv:2 and in");
    }

    #[test]
    fn other_encodings_are_told_with_their_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.csv");
        let mut bytes = format!("\u{feff}{HEAD}a,b,easy,,c,d,\nb,b,easy,,").into_bytes();
        bytes.extend(b"\xe9t\xe9,d,\n");
        std::fs::write(&path, bytes).unwrap();
        let error = Suite::load(&path).unwrap_err().to_string();
        assert!(error.ends_with("old.csv:3: this is no UTF-8 text: save the file as UTF-8"), "{error}");
    }

    #[test]
    fn reads_the_original_suite() {
        let Some(path) = crate::absent::shared("fixtures/tasks/npcsh-tasks-115.csv") else { return };
        let suite = Suite::load(&path).unwrap();
        let count = |difficulty| suite.tasks.iter().filter(|task| task.difficulty == difficulty).count();
        assert_eq!([Difficulty::Easy, Difficulty::Medium, Difficulty::Hard].map(count), [34, 49, 32]);
        assert_eq!(
            suite.tasks.iter().filter(|task| !task.uses_tmp()).map(|task| &task.id).collect::<Vec<_>>(),
            Vec::<&String>::new()
        );
    }
}
