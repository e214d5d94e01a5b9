//! Finds syntax errors in the bash and Python programs of jinxes.
//!
//! alara asks bash and Python themselves, in a sandbox: they parse the programs and run none.
//! If one of them is missing, its programs aren't checked.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::needs;
use crate::jinx::check::of_piece;
use crate::jinx::template::{Language, Piece, pieces};
use crate::jinx::{Action, Jinx, Step};
use crate::types::{Diagnostic, Location, Severity};
use alara_sandbox::{Sandbox, Script};

/// Reads programs that each end with a NUL, and writes the errors of each, ended alike.
/// It enables the extended patterns that a script may switch on.
const BASH: &str =
    r#"while IFS= read -r -d '' code; do printf '%s' "$code" | bash -O extglob -n 2>&1; printf '\0'; done"#;
/// Reads a list of programs, and writes for each the error and its line, or null.
const PYTHON: &str = "\
import json, sys, warnings
warnings.simplefilter('ignore')
def look(program):
    try:
        compile(program, 'step', 'exec', dont_inherit=True)
    except SyntaxError as error:
        return [error.msg, error.lineno or 1]
    except (ValueError, RecursionError, MemoryError):
        pass
json.dump([look(program) for program in json.load(sys.stdin)], sys.stdout)";
/// How long either may take for all programs.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Most bytes of an answer.
const ANSWER_BYTES: usize = 4 << 20;

/// The error of a program, and its line from 1.
type Wrong = Option<(String, usize)>;

/// A program of a jinx, and the location of its step.
struct Program<'a> {
    jinx: &'a Jinx,
    step: Location,
    code: &'a str,
    language: Language,
}

/// The programs of `jinxes` with syntax errors, each with its line.
/// `text_of` returns the text of a file, to determine locations.
pub fn check<'a>(
    jinxes: impl Iterator<Item = &'a Jinx>,
    text_of: &dyn Fn(&Path) -> Option<String>,
) -> Vec<Diagnostic> {
    let mut programs = Vec::new();
    for jinx in jinxes {
        collect(jinx, &jinx.steps, &mut programs);
    }
    let mut found = Vec::new();
    for (language, name) in [(Language::Bash, "bash"), (Language::Python, "Python")] {
        let own: Vec<&Program> = programs.iter().filter(|program| program.language == language).collect();
        let plain: Vec<String> = own.iter().map(|program| plain(program)).collect();
        if plain.iter().all(String::is_empty) {
            continue;
        }
        let Some(answers) = ask(language, &plain) else { continue };
        for (program, wrong) in own.iter().zip(answers) {
            let Some((message, line)) = wrong else { continue };
            let text = program.code.lines().nth(line.saturating_sub(1)).unwrap_or_default().trim();
            let file = text_of(&program.jinx.path).unwrap_or_default();
            let message = format!("{name} can't read line {line} of the code, `{text}`: {message}");
            let (path, location) = (program.jinx.path.clone(), of_piece(&file, program.step, text));
            found.push(Diagnostic { path, location, severity: Severity::Error, message });
        }
    }
    found
}

/// The syntax error in each of these bash scripts: the message, and the line from 1.
/// Nothing runs.
pub fn unreadable_bash(scripts: &[&str]) -> Vec<Option<(String, usize)>> {
    let scripts: Vec<String> = scripts.iter().map(|script| script.replace('\0', "")).collect();
    ask(Language::Bash, &scripts).unwrap_or_else(|| vec![None; scripts.len()])
}

fn collect<'a>(jinx: &'a Jinx, steps: &'a [Step], programs: &mut Vec<Program<'a>>) {
    for step in steps {
        let mut add = |code, language| programs.push(Program { jinx, step: step.location, code, language });
        match &step.action {
            Action::Bash { code, .. } => add(code, Language::Bash),
            Action::Python { code } => add(code, Language::Python),
            Action::When { then, otherwise, .. } => {
                [then, otherwise].into_iter().for_each(|steps| collect(jinx, steps, programs));
            }
            Action::For { steps, .. } => collect(jinx, steps, programs),
            Action::Try { steps, catch, finally } => {
                [steps, catch, finally].into_iter().for_each(|steps| collect(jinx, steps, programs));
            }
            _ => {}
        }
    }
}

/// A program as it runs, with a value in place of each placeholder, on unchanged lines.
/// Empty if it has tags, or is only a placeholder: its text is unknown before it is rendered.
fn plain(program: &Program) -> String {
    let Program { code, language, .. } = program;
    let pieces = pieces(code);
    let is_text =
        |piece: &Piece| matches!(piece, Piece::Text(range) if !code[range.clone()].trim().is_empty());
    if !pieces.iter().any(is_text) || pieces.iter().any(|piece| matches!(piece, Piece::Tag(..))) {
        return String::new();
    }
    let mut plain = String::new();
    for piece in &pieces {
        let text = &code[piece.range()];
        let lines = "\n".repeat(text.matches('\n').count());
        match (piece, language) {
            (Piece::Text(_), _) => plain += text,
            (_, Language::Bash) => plain += &format!("\"$__v1{lines}\""),
            (_, Language::Python) => plain += &format!("(__v[0]{lines})"),
        }
    }
    // A NUL ends a program here.
    plain.replace('\0', "")
}

/// The error of each of these programs; `None` if there is no answer.
fn ask(language: Language, programs: &[String]) -> Option<Vec<Wrong>> {
    let sandbox = needs::sandbox(Path::new("."), Vec::new())?;
    match language {
        Language::Bash => {
            let question: String = programs.iter().map(|program| format!("{program}\0")).collect();
            let answer = output(&sandbox, &["bash", "-c", BASH], &question)?;
            let mut answers: Vec<&str> = answer.split('\0').collect();
            answers.pop();
            (answers.len() == programs.len()).then(|| answers.into_iter().map(of_bash).collect())
        }
        Language::Python => {
            let question = serde_json::to_string(programs).ok()?;
            let answer = output(&sandbox, &["python3", "-I", "-c", PYTHON], &question)?;
            let answers: Vec<Value> = serde_json::from_str(&answer).ok()?;
            let read = |answer: &Value| {
                Some((answer.get(0)?.as_str()?.to_owned(), usize::try_from(answer.get(1)?.as_u64()?).ok()?))
            };
            (answers.len() == programs.len()).then(|| answers.iter().map(read).collect())
        }
    }
}

fn output(sandbox: &Sandbox, program: &[&str], question: &str) -> Option<String> {
    let output = sandbox.run(&Script {
        env: &[("LC_ALL".to_owned(), "C".to_owned())],
        stdin: Some(question.as_bytes()),
        output_limit: ANSWER_BYTES,
        ..Script::new(program, TIMEOUT)
    });
    let output = output.ok().filter(|output| output.exit == Some(0) || output.exit == Some(1))?;
    String::from_utf8(output.stdout).ok()
}

/// The error in bash's output for a program: `bash: line 3: syntax error near …`, and more lines.
fn of_bash(answer: &str) -> Wrong {
    let told = answer.lines().find_map(|line| {
        let (_, rest) = line.split_once(": line ")?;
        let (number, message) = rest.split_once(": ")?;
        Some((message.to_owned(), number.parse().ok()?))
    });
    // Warnings are no errors: a here-document that the end of the program ends works.
    told.filter(|(message, _)| !message.starts_with("warning:"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    fn check_steps(steps: &str, expected: &[&str]) {
        let text = format!("steps:\n{steps}\n");
        let source = Source { path: "j.jinx".into(), text: text.clone() };
        let jinx = crate::jinx::read(&source, &mut Vec::new()).unwrap();
        let found = check([&jinx].into_iter(), &|_| Some(text.clone()));
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found} should start with {expected}");
        }
    }

    #[test]
    fn what_bash_can_not_read() {
        check_steps(
            "- engine: bash\n  code: |\n    echo a\n    if true; then ls\n- {engine: bash, code: 'ls )'}",
            &[
                // At the end of the program.
                "j.jinx:2:3: error: bash can't read line 3 of the code, ``: syntax error: unexpected end of file",
                "j.jinx:6:25: error: bash can't read line 1 of the code, `ls )`: syntax error near unexpected token",
            ],
        );
        // In any kind of step.
        check_steps(
            "- {try: [{when: 1 > 0, then: [{engine: bash, code: 'done'}]}], catch: [{for: x, in: [1], do: [{engine: bash, code: 'fi'}]}]}",
            &["j.jinx:2:", "j.jinx:2:"],
        );
        for good in [
            "'echo \"a b\" | while read -r x; do echo \"$x\"; done'",
            "'ls {{ x }} {{ y | length }}'",
            "'{{ code }}'",
            "'{% if a %}if{% endif %} true'",
            "'shopt -s extglob; ls !(a|b)'",
            "\"cat <<E\\nx\\nE\"",
        ] {
            check_steps(&format!("- {{engine: bash, code: {good}}}"), &[]);
        }
    }

    #[test]
    fn what_python_can_not_read() {
        check_steps(
            "- engine: python\n  code: |\n    x = 1\n    import csv csv\n- {engine: python, code: 'return 1'}",
            &[
                "j.jinx:5:5: error: Python can't read line 2 of the code, `import csv csv`: ",
                "j.jinx:6:27: error: Python can't read line 1 of the code, `return 1`: 'return' outside function",
            ],
        );
        for good in ["'output = {{ x }} + 1'", "'{{ code }}'", "'print(1)'"] {
            check_steps(&format!("- {{engine: python, code: {good}}}"), &[]);
        }
    }
}
